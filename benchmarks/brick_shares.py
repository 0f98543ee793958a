"""Shares from the engine's own clocks next to shares that py-spy samples, of one workload.

The embedded passage runs in fresh processes in turn: one with its bricks clocked, one sampled. A
sample belongs to the innermost of the engine's functions on its stack, as a brick's own time is
without the bricks within; the bricks of one function are summed (``ternary_gemv`` is four). The
own time of the two blocks that hold a layer's kernels includes the clock's own cost, so
kernels are compared among themselves.

``sampling error`` is one standard error of so many independent samples, were the bricks' share
true; ``all errors`` is one of the rounds' differences, which include those between processes.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.passage import profiled
from benchmarks.tables import Table
from pytest_flamegate.bricks.record import BrickTotals
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.profile.model import Stack

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "ternary_gemv": ("QkvProjection", "OutputProjection", "GateUpProjection", "DownProjection"),
    "attention": ("AttentionScore",),
    "rms_norm": ("RmsNorm",),
    "quantize": ("Quantize",),
    "lm_head": ("LmHead",),
    "rope": ("RopeEmbedding",),
    "swiglu": ("Activation",),
    "sample": ("Sampling",),
    "embed": ("Embedding",),
}
"""The bricks that are calls of each kernel."""
BLOCKS = {"_attention_block": ("AttentionBlock",), "_feed_forward": ("FeedForward",)}
"""Blocks around the kernels: their samples and own time count in no share."""
ROUNDS, SECONDS = 14, 6.0

Shares = dict[str, float]


def tables(brief: bool) -> Iterator[Table]:
    """Yield the one table."""
    rounds, seconds = (2, 0.5) if brief else (ROUNDS, SECONDS)
    clocked: list[Shares] = []
    seen: list[Counter[str]] = []
    for _ in range(rounds):
        clocked.append(of_bricks(_bricked(seconds)))
        seen.append(samples(profiled("py-spy", seconds).stacks))
    yield table(clocked, seen)


def _bricked(seconds: float) -> Sequence[BrickTotals]:
    """Return the totals of one fresh process whose bricks were clocked."""
    workload = next(each for each in embedded_workloads(Path()) if each.name == "passage")
    kind = engine(workload.engine)
    _, found, _ = Observer(workload, kind.plan(workload, kind.model(workload))).run_bricks(seconds)
    return found.totals


def of_bricks(totals: Sequence[BrickTotals]) -> Shares:
    """Return the part (0 to 1) of all kernels' own time that each function took."""
    names = {brick: function for function, bricks in FUNCTIONS.items() for brick in bricks}
    known = {*names, *(brick for bricks in BLOCKS.values() for brick in bricks)}
    if unknown := {each.name for each in totals} - known:
        raise ValueError(f"bricks of no function: {', '.join(sorted(unknown))}")
    spent: Counter[str] = Counter()
    for each in totals:
        if each.name in names:
            spent[names[each.name]] += each.self_ns
    return shares(spent)


def samples(stacks: Mapping[Stack, int]) -> Counter[str]:
    """Return how many samples each kernel has; frames within it, as NumPy's, are its own."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        within = (frame.name for frame in reversed(stack))
        name = next((each for each in within if each in FUNCTIONS or each in BLOCKS), "")
        if name in FUNCTIONS:
            found[name] += count
    return found


def shares(spent: Mapping[str, int]) -> Shares:
    """Return each function's part of the whole; ``ValueError`` if the whole is zero."""
    whole = sum(spent.values())
    if not whole:
        raise ValueError("no time was spent in kernels")
    return {name: spent.get(name, 0) / whole for name in FUNCTIONS}


def table(clocked: Sequence[Shares], seen: Sequence[Counter[str]]) -> Table:
    """Return both shares of each kernel over all rounds, and how far apart they may lie."""
    counts = [sum(each.values()) for each in seen]
    sampled = [shares(each) for each in seen]
    rows, by_chance, by_rounds = [], 0, 0
    for name in FUNCTIONS:
        brick_share = statistics.fmean(each[name] for each in clocked)
        sampled_share = sum(each[name] for each in seen) / sum(counts)
        apart = [a[name] - b[name] for a, b in zip(clocked, sampled, strict=True)]
        chance = math.sqrt(brick_share * (1.0 - brick_share) / sum(counts))
        error = statistics.stdev(apart) / math.sqrt(len(apart))
        difference = brick_share - sampled_share
        by_chance += abs(difference) <= 2.0 * chance
        by_rounds += abs(difference) <= 2.0 * error
        figures = (brick_share, sampled_share, difference, chance, error)
        rows.append((name, *(f"{100.0 * each:.2f}" for each in figures)))
    title = (
        f"Shares of kernels in the embedded passage: {len(clocked)} processes clocked, "
        f"{len(seen)} sampled ({sum(counts):,} samples); of {len(rows)} kernels {by_chance} agree "
        f"within two sampling errors, {by_rounds} within two of all errors"
    )
    head = ("function", "bricks %", "sampled %", "difference pp", "sampling error pp")
    return Table(title, (*head, "all errors pp"), tuple(rows))

"""Cross-checks over passes in which bricks were clocked: their runs, times, calls and tokens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.record import (
    KNOWN_BRICKS,
    compute_bucket_bounds_ns,
    find_bucket,
    parse_bucket,
    resolve_alias,
)
from pytest_flamegate.core.text import quote
from pytest_flamegate.observe.observation import of_one_process
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.bricks.record import BrickRun, BrickTotals, Provenance, Sync
    from pytest_flamegate.observe.observation import Run
    from pytest_flamegate.receipt.rules.subject import Case


LANE_SLACK = 0.01
"""A thread's own bricks and the sequences are read from one clock, some calls apart."""
SLACK_NS = 1_000_000

_LATER: tuple[Provenance, ...] = ("measured_device_event", "derived")
_CLOCKED: Mapping[Sync, tuple[Provenance, ...]] = {
    "none": ("measured_wall",),
    "immediate": ("measured_wall",),
    "per_layer": _LATER,
    "deferred": _LATER,
}
"""How times come about, by when the device was waited for."""
_ONE_A_LAYER = (
    *("AttentionBlock", "QkvProjection", "RopeEmbedding", "AttentionScore", "OutputProjection"),
    *("FeedForward", "GateUpProjection", "Activation", "DownProjection"),
)
_FOUR_A_LAYER = ("RmsNorm", "Quantize")
_ONE_AN_OUTPUT = ("RmsNorm", "LmHead", "Sampling")
"""The embedded engine's bricks, by how often they run."""

CHECKS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_BRICKS_PROCESS",
    "Each pass over the bricks is of one run that was for this alone, and each such run has one.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _bricks_process(case: Case) -> Iterator[str]:
    # Bricks of a timed process would have slowed it; those of another say nothing of these runs.
    runs = Counter((run.pid, run.started_ticks) for run in _runs(case))
    passes = Counter((each.pid, each.started_ticks) for each in case.evidence.bricks)
    for pid, _ in passes - runs:
        yield f"The bricks of process {pid} were clocked, and no run was for that."
    for pid, _ in runs - passes:
        yield f"The run of process {pid} was for its bricks, and nothing is told of them."
    if passes and (
        case.evidence.clock_scope == "process" or of_one_process(case.evidence.workload)
    ):
        yield "Bricks are clocked in processes of the observer's own, and this engine ran in none."


@CHECKS.rule(
    "E_BRICKS_TIME",
    "A thread spends no longer in its bricks than the sequences took, nor these than their run.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _bricks_time(case: Case) -> Iterator[str]:
    # The observer's clock against that of the process.
    for each, run in _pairs(case):
        seen_ns = sum(block.interval.wall_ns for block in run.blocks)
        if each.wall_ns > seen_ns + SLACK_NS:
            yield (
                f"Process {each.pid} tells of {each.wall_ns / 1e6:.1f} ms of sequences, and was "
                f"seen to take {seen_ns / 1e6:.1f} ms."
            )
        for lane in each.lanes:
            if lane.self_ns > each.wall_ns * (1 + LANE_SLACK) + SLACK_NS:
                yield (
                    f"Process {each.pid} spent {lane.self_ns / 1e6:.1f} ms in bricks of the thread "
                    f"{quote(lane.name)}, of {each.wall_ns / 1e6:.1f} ms."
                )


@CHECKS.rule(
    "E_BRICKS_TOTALS",
    "The totals of a brick agree with one another: calls, shortest, longest, own and whole time.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _bricks_totals(case: Case) -> Iterator[str]:
    # A sum that was made smaller no longer is the sum of its calls.
    embedded = _is_embedded(case)
    for each in case.evidence.bricks:
        if not each.totals:
            yield f"The bricks of process {each.pid} were clocked, and there is none."
        yield from _unlike_itself(each)
        yield from _misnamed(each)
        for row in each.totals:
            if (fault := _fault(row, nested=not embedded)) is not None:
                yield f"Of the brick {quote(row.name)} in process {each.pid} {fault}."
        for what in ("calls", "self_ns"):
            lanes = sum(getattr(lane, what) for lane in each.lanes)
            rows = sum(getattr(row, what) for row in each.totals)
            if lanes != rows:
                yield (
                    f"The threads of process {each.pid} have {lanes:,} {what}, and its bricks "
                    f"{rows:,}."
                )


def _unlike_itself(each: BrickRun) -> Iterator[str]:
    """Yield bricks whose own time, or whose longest call, is longer than all of their calls.

    Over layers and phases: a call within its own brick counts where the outermost stands.
    """
    total_ns, least_ns = Counter[str](), Counter[str]()
    longest_ns: dict[str, int] = {}
    for row in each.totals:
        total_ns[row.name] += row.total_ns
        least_ns[row.name] += row.self_ns
        longest_ns[row.name] = max(longest_ns.get(row.name, 0), row.max_ns)
    for name, whole_ns in total_ns.items():
        if whole_ns < max(least_ns[name], longest_ns[name]):
            yield (
                f"All calls of the brick {quote(name)} in process {each.pid} took {whole_ns:,} ns, "
                f"{least_ns[name]:,} ns of its own, the longest {longest_ns[name]:,} ns."
            )


def _misnamed(each: BrickRun) -> Iterator[str]:
    """Yield bricks that the clock would not have told so: what is told twice counts twice."""
    rows = Counter((row.name, row.layer, row.phase) for row in each.totals)
    for (name, _, _), times in rows.items():
        if times > 1:
            yield f"The brick {quote(name)} stands twice in one layer of process {each.pid}."
    for row in each.totals:
        known = resolve_alias(row.name)
        if known != row.name:
            yield f"Process {each.pid} tells of {quote(row.name)}, which is {known}."
        if KNOWN_BRICKS.get(row.name, row.category) != row.category:
            yield f"Process {each.pid} tells of {quote(row.name)} as {row.category}."


def _fault(row: BrickTotals, *, nested: bool) -> str | None:
    """Say how ``row`` contradicts itself; where bricks ran within themselves its whole is less."""
    least = most = 0
    numbers = []
    for name, calls in row.durations.items():
        if (number := parse_bucket(name)) is None:
            return f"a duration is called {quote(name)}"
        low_ns, high_ns = compute_bucket_bounds_ns(number)
        least += calls * low_ns
        most += calls * high_ns
        numbers += [number] if calls else []
    told = sum(row.durations.values())
    if row.calls < 1 or told != row.calls:
        return f"{row.calls:,} calls are told, and the durations of {told:,}"
    ends = (find_bucket(row.min_ns), find_bucket(row.max_ns))
    if ends != (min(numbers), max(numbers)):
        return "the shortest and the longest call are others than those of its durations"
    if row.total_ns > most or (not nested and row.total_ns < max(least, row.self_ns)):
        return f"the calls add up to {least:,} to {most:,} ns, and {row.total_ns:,} are told"
    return None


@CHECKS.rule(
    "E_BRICKS_PROVENANCE",
    "Times of bricks are told as what they are: deferred ones are of device events, or derived.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _bricks_provenance(case: Case) -> Iterator[str]:
    # What is derived is never gated.
    for each in case.evidence.bricks:
        for row in each.totals:
            if row.provenance not in _CLOCKED[each.sync]:
                yield (
                    f"Process {each.pid} waited for its device in the way {each.sync!r}, and its "
                    f"brick {quote(row.name)} is told as {row.provenance}."
                )
            if row.latency_ns and row.provenance != "derived":
                yield f"The brick {quote(row.name)} in process {each.pid} was measured and waits."


@CHECKS.rule(
    "E_BRICKS_TOKENS",
    "A pass over the bricks counts the sequences and tokens that its run was seen to generate.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _bricks_tokens(case: Case) -> Iterator[str]:
    # More tokens would make each cheaper.
    for each, run in _pairs(case):
        lengths = [len(gaps) for block in run.blocks for gaps in block.sequences_ns]
        seen = (len(lengths), sum(lengths), sum(lengths) - len(lengths))
        told = (each.sequences, each.tokens, each.decode_tokens)
        if told != seen:
            yield (
                f"Process {each.pid} counts {told[1]:,} tokens in {told[0]:,} sequences, "
                f"{told[2]:,} of them after the first; seen were {seen[1]:,} in {seen[0]:,}."
            )


@CHECKS.rule(
    "E_BRICKS_CALLS",
    "The embedded engine calls each brick as often as its tokens and layers ask for.",
    remedy=_AGAIN,
    protects=Grade.OBSERVED,
)
def _bricks_calls(case: Case) -> Iterator[str]:
    # More calls would make each cheaper, fewer would be work left out.
    if not _is_embedded(case):
        return
    most = case.evidence.workload.get("max_tokens")
    for each, run in _pairs(case):
        lengths = [len(gaps) for block in run.blocks for gaps in block.sequences_ns]
        # A sequence that ends early ends by one more token, which is no output.
        steps = sum(length if length == most else length + 1 for length in lengths) - len(lengths)
        calls: Counter[tuple[str, str, int | None]] = Counter()
        for row in each.totals:
            calls[row.name, row.phase, row.layer] += row.calls
        layers = {layer for _, _, layer in calls if layer is not None}
        prompt = calls["Embedding", "prefill", None]
        wanted = _wanted(layers | {0}, prompt, len(lengths), steps)
        # Of these, none runs anywhere else.
        names = {name for name, _, _ in wanted}
        wanted |= {key: 0 for key in calls if key[0] in names and key not in wanted}
        for key, count in wanted.items():
            if calls[key] != count:
                yield (
                    f"Process {each.pid} called {key[0]} {calls[key]:,} times in {key[1]}"
                    f"{'' if key[2] is None else f' in layer {key[2]}'}, and its tokens ask for "
                    f"{count:,}."
                )
        if layers and max(layers) >= len(layers):
            yield f"Process {each.pid} has a layer {max(layers)}, and {len(layers)} layers."
        if not prompt or prompt % max(len(lengths), 1):
            yield f"Process {each.pid} read a prompt of {prompt:,} tokens {len(lengths):,} times."


def _wanted(
    layers: set[int], prompt: int, outputs: int, steps: int
) -> dict[tuple[str, str, int | None], int]:
    """Return how often the embedded engine calls a brick, by its name, phase and layer.

    It read ``prompt`` tokens of prompts, for so many first ``outputs``, and took ``steps`` more.
    """
    wanted: dict[tuple[str, str, int | None], int] = {("Embedding", "prefill", None): prompt}
    wanted["Embedding", "decode", None] = steps
    for phase, output, forwarded in (("prefill", outputs, prompt), ("decode", steps, steps)):
        wanted |= {(name, phase, None): output for name in _ONE_AN_OUTPUT}
        for layer in sorted(layers):
            wanted |= {(name, phase, layer): forwarded for name in _ONE_A_LAYER}
            wanted |= {(name, phase, layer): 4 * forwarded for name in _FOUR_A_LAYER}
    return wanted


def _runs(case: Case) -> list[Run]:
    return [run for run in case.evidence.runs if run.role == "bricks"]


def _pairs(case: Case) -> Iterator[tuple[BrickRun, Run]]:
    """Yield each pass with its run; a pass without one is another rule's."""
    runs = {(run.pid, run.started_ticks): run for run in _runs(case)}
    for each in case.evidence.bricks:
        run = runs.get((each.pid, each.started_ticks))
        if run is not None:
            yield each, run


def _is_embedded(case: Case) -> bool:
    return case.evidence.workload.get("engine") == "embedded"

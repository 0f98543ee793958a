"""Replay a way of deciding on measured pairs: how often it gives each answer, and when."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from benchmarks.streams import Pair
from pytest_flamegate.gate import statistics as gate_statistics

Decision = Literal["regressed", "pass", "improved", "inconclusive"]

ENOUGH = 100
"""Gates that share no pair; if a cell gives fewer, its pairs are drawn in blocks instead."""
DRAWS = 1000
BLOCK = 5
"""Pairs drawn together, so that drift over seconds stays in the draws."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gate's answer, on how many measured pairs, and the seconds its processes took."""

    decision: Decision
    pairs: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Method:
    """A way of deciding. ``judge`` gets ``most`` pairs in order and may use fewer.

    ``draws`` is how many gates are drawn if they cannot be had without sharing pairs.
    ``part`` is how much of each pair it measures: a half where it takes one process of each.
    """

    name: str
    most: int
    judge: Callable[[Sequence[Pair]], Outcome]
    draws: int = DRAWS
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Replay:
    """A method's answers on one cell. ``drawn``: from drawn blocks, not from gates in order."""

    outcomes: tuple[Outcome, ...]
    drawn: bool

    def rate(self, *decisions: Decision) -> float:
        """Return the share (0 to 1) of gates that said one of ``decisions``."""
        return sum(each.decision in decisions for each in self.outcomes) / len(self.outcomes)

    @property
    def median_s(self) -> float:
        """Median seconds of a gate."""
        return median(each.took_s for each in self.outcomes)

    @property
    def median_pairs(self) -> float:
        """Median pairs of a gate."""
        return median(each.pairs for each in self.outcomes)

    def quantile_s(self, part: float) -> float:
        """Return the seconds within which ``part`` (0 to 1) of the gates had ended."""
        ordered = sorted(each.took_s for each in self.outcomes)
        return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]


def in_order(method: Method, pairs: Sequence[Pair]) -> tuple[Outcome, ...]:
    """Return the gates that follow each other through ``pairs`` and share none.

    The last pairs are left out if they might not suffice: a gate that ended early because
    they did would count too often.
    """
    found: list[Outcome] = []
    start = 0
    while start + method.most <= len(pairs):
        found.append(method.judge(pairs[start : start + method.most]))
        start += found[-1].pairs
    return tuple(found)


def drawn(pairs: Sequence[Pair], size: int, count: int) -> Iterator[list[Pair]]:
    """Yield ``count`` seeded samples of ``size`` pairs, drawn in blocks that wrap around.

    If both sides are the same code, each pair's sides are exchanged at random: no chance
    difference between the sides of these few pairs shall pass for a real one.
    """
    rng = random.Random(f"{len(pairs)} {size}")
    block = max(1, min(BLOCK, len(pairs) // 2))
    for _ in range(count):
        sample: list[Pair] = []
        while len(sample) < size:
            start = rng.randrange(len(pairs))
            sample += [pairs[(start + i) % len(pairs)] for i in range(block)]
        yield [
            pair.swapped() if pair.effect_pct == 0.0 and rng.random() < 0.5 else pair
            for pair in sample[:size]
        ]


def replay(method: Method, pairs: Sequence[Pair]) -> Replay:
    """Return the answers of ``method`` on the pairs of a cell: in order if they are enough."""
    if len(pairs) >= ENOUGH and len(found := in_order(method, pairs)) >= ENOUGH:
        return Replay(found, drawn=False)
    return by_draws(method, pairs, method.draws)


def by_draws(method: Method, pairs: Sequence[Pair], count: int) -> Replay:
    """Return the answers of ``method`` on ``count`` samples drawn from the pairs of a cell."""
    samples = drawn(pairs, method.most, count)
    return Replay(tuple(method.judge(sample) for sample in samples), drawn=True)


def clopper_pearson_upper(hits: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound (0 to 1) of a probability seen ``hits`` in ``trials``.

    ValueError if there are no trials or more hits than trials.
    """
    # The package answers 1 for zero trials; a table here would show it.
    if not 0 <= hits <= trials or trials == 0:
        raise ValueError(f"a bound needs 0 <= hits <= trials and trials, got {hits}, {trials}")
    return gate_statistics.clopper_pearson_upper(hits, trials, confidence)


def clopper_pearson_lower(hits: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided lower bound (0 to 1) of a probability seen ``hits`` in ``trials``."""
    return 1.0 - clopper_pearson_upper(trials - hits, trials, confidence)

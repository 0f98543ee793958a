"""Replay a way of deciding on measured pairs: how often it gives each answer, and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from benchmarks.streams import Pair
from pytest_flamegate.gate import statistics as gate_statistics

Decision = Literal["regressed", "pass", "improved", "inconclusive"]

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

    ``draws`` is how many gates are drawn.
    ``part`` is how much of each pair it measures: a half where it takes one process of each.
    """

    name: str
    most: int
    judge: Callable[[Sequence[Pair]], Outcome]
    draws: int = DRAWS
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Replay:
    """A method's answers on one cell."""

    outcomes: tuple[Outcome, ...]

    def rate(self, *decisions: Decision) -> float:
        """Return the share (0 to 1) of gates that said one of ``decisions``."""
        return sum(each.decision in decisions for each in self.outcomes) / len(self.outcomes)

    @property
    def median_s(self) -> float:
        """Median seconds of a gate."""
        return median(each.took_s for each in self.outcomes)


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


def replay(method: Method, pairs: Sequence[Pair], *, slower_pct: float = 0.0) -> Replay:
    """Return the answers of ``method`` on samples drawn from ``pairs``.

    ``slower_pct`` lowers head's rate by so many percent, after the sides were exchanged.
    """
    factor = 1.0 / (1.0 - slower_pct / 100.0)
    return Replay(
        tuple(
            method.judge(
                [pair.slowed(factor, slower_pct) for pair in sample] if slower_pct else sample
            )
            for sample in drawn(pairs, method.most, method.draws)
        )
    )


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

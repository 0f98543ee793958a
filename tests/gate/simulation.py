"""Machines with known truth: what a gate says over many runs of a seeded random machine."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.gate import ErrorRates
from pytest_flamegate.gate.throughput import judge_throughput
from tests.gate.factory import evidence, judge_stored, measurement, sampled

if TYPE_CHECKING:
    from collections.abc import Mapping


LOOKS = (5, 8, 12)
"""Current processes at each look; the baseline has the eight it was accepted with."""
BASELINE_PROCESSES = 8
SHARES = {"gemv": 0.55, "attention": 0.25, "rms_norm": 0.08, "rope": 0.04}


@dataclass(frozen=True, slots=True)
class Machine:
    """Spread between fresh processes (log time), drift between batches, and bad placement.

    ``tail_df`` makes the spread Student's t with that many degrees of freedom;
    ``misplaced`` is the chance that a process is 8 to 11 % slow all its life.
    """

    spread: float
    drift: float = 0.0042
    misplaced: float = 0.0
    tail_df: int | None = None

    def process(self, random: Random) -> float:
        """Log time of one fresh process of an unchanged engine."""
        noise = random.gauss(0.0, 1.0)
        if self.tail_df is not None:
            chi = sum(random.gauss(0.0, 1.0) ** 2 for _ in range(self.tail_df))
            noise /= math.sqrt(chi / self.tail_df)
        placed = random.random() < self.misplaced
        return self.spread * noise + (random.uniform(0.08, 0.11) if placed else 0.0)

    def batch(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Log times of a batch of fresh processes, drift included."""
        level = math.log1p(slowdown) + random.gauss(0.0, self.drift)
        return [level + self.process(random) for _ in range(count)]


@cache  # the same trials answer several questions
def rate_outcomes(
    machine: Machine, slowdown: float, trials: int, *, seed: int = 1, drop_pct: float = 5.0
) -> dict[str, float]:
    """Share of the trials (0 to 1) in which the rate was judged each way."""
    random = Random(seed)
    rates = ErrorRates(analyses=len(LOOKS))
    found: Counter[str] = Counter()
    for _ in range(trials):
        old = measurement(machine.batch(random, BASELINE_PROCESSES, 0.0))
        new = machine.batch(random, LOOKS[-1], slowdown)
        for look in LOOKS:
            signal, _rate = judge_throughput(old, measurement(new[:look]), drop_pct, rates)
            if signal.decision != "inconclusive":
                break
        found[signal.decision] += 1
    return {decision: count / trials for decision, count in found.items()}


def gate_outcomes(
    machine: Machine,
    factors: Mapping[str, float],
    trials: int,
    *,
    samples: int = 1500,
    share_spread: float = 0.06,
    seed: int = 2,
) -> dict[str, float]:
    """Share of the trials in which the whole gate, profiles included, gave each verdict.

    ``factors`` multiply the cost of frames; ``share_spread`` (log-odds) comes on top of
    the spread of sampling.
    """
    random = Random(seed)
    whole = 1.0 + sum(SHARES[name] * (factor - 1.0) for name, factor in factors.items())
    shares = {name: share * factors.get(name, 1.0) / whole for name, share in SHARES.items()}
    found: Counter[str] = Counter()

    def times(count: int, slowdown: float) -> list[float]:
        return [1e3 * math.exp(x) for x in machine.batch(random, count, slowdown)]

    def profile(count: int, of: Mapping[str, float]) -> list[dict[str, int]]:
        return [sampled(random, of, samples, share_spread) for _ in range(count)]

    for _ in range(trials):
        old = evidence(
            times(BASELINE_PROCESSES, 0.0),
            profile(BASELINE_PROCESSES, SHARES),
            nonce="baseline",
            samples=samples,
        )
        new_times, new_profile = times(LOOKS[-1], whole - 1.0), profile(LOOKS[-1], shares)
        for look in LOOKS:
            new = evidence(new_times[:look], new_profile[:look], first_pid=300, samples=samples)
            verdict = judge_stored(old, new, Thresholds(), analyses=len(LOOKS))
            if not verdict.more_processes:
                break
        found[verdict.verdict] += 1
    return {verdict: count / trials for verdict, count in found.items()}

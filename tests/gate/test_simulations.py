"""The rules on machines of known truth: how often they err. Seeded, so figures are reproducible.

The bounds hold for these seeds, and leave room for what another machine's draws would give.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest

from pytest_flamegate.gate import FIRST_ANALYSES, ErrorRates, decide
from pytest_flamegate.gate.bricks import judge_bricks
from pytest_flamegate.gate.pairs import interim_analyses, pair_rates
from pytest_flamegate.gate.signals import log_time_of_drop
from pytest_flamegate.gate.throughput import MIN_BATCHES, estimate_from_batches, judge_throughput
from pytest_flamegate.receipt.types import Batch, Evidence
from tests.gate.bricked import allowing, brick_runs, drawn
from tests.gate.factory import evidence, judge_stored, measurement, sampled

ANALYSES = (5, 8, 12)
"""Current processes at each analysis; the baseline has the eight that it was accepted with."""
BASELINE_PROCESSES = 8
SHARES = {"gemv": 0.55, "attention": 0.25, "rms_norm": 0.08, "rope": 0.04}


@dataclass(frozen=True, slots=True)
class Machine:
    """Spread in log time, between processes or between pairs, and what comes on top of it.

    ``drift`` is that between batches. ``misplaced`` is the chance that a process is 8 to 35 % slow
    all its life. ``tail_df`` makes the spread Student's t; ``memory`` is the correlation of a pair
    with the one before.
    """

    spread: float
    drift: float = 0.0042
    misplaced: float = 0.0
    tail_df: int | None = None
    memory: float = 0.0

    def noise(self, random: Random) -> float:
        noise = random.gauss(0.0, 1.0)
        if self.tail_df is not None:
            chi = sum(random.gauss(0.0, 1.0) ** 2 for _ in range(self.tail_df))
            noise /= math.sqrt(chi / self.tail_df)
        return noise

    def batch(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Log times of a batch of fresh processes, drift included."""
        level = math.log1p(slowdown) + random.gauss(0.0, self.drift)
        return [
            level
            + self.spread * self.noise(random)
            + (random.uniform(0.08, 0.11) if random.random() < self.misplaced else 0.0)
            for _ in range(count)
        ]

    def pairs(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Consecutive pairs whose head is slower by ``slowdown`` in log time."""
        found, before = [], 0.0
        for _ in range(count):
            before = self.memory * before + math.sqrt(1.0 - self.memory**2) * self.noise(random)
            placed = sum(
                sign * random.uniform(0.1, 0.35)
                for sign in (1, -1)
                if random.random() < self.misplaced
            )
            found.append(slowdown + self.spread * before + placed)
        return found


class Outcomes(Counter[str]):
    """Trials by decision; ``part`` is the part of them, 0 to 1."""

    def part(self, decision: str) -> float:
        return self[decision] / self.total()


@cache  # the same trials answer several questions
def stored(machine: Machine, slowdown: float, trials: int, drop_pct: float = 5.0) -> Outcomes:
    random, found = Random(1), Outcomes()
    rates = ErrorRates(analyses=len(ANALYSES))
    for _ in range(trials):
        old = measurement(machine.batch(random, BASELINE_PROCESSES, 0.0))
        new = machine.batch(random, ANALYSES[-1], slowdown)
        for count in ANALYSES:
            signal, _rate = judge_throughput(old, measurement(new[:count]), drop_pct, rates)
            if signal.decision != "inconclusive":
                break
        found[signal.decision] += 1
    return found


@cache
def paired(machine: Machine, drop_pct: float, slowdown: float, trials: int = 2000) -> Outcomes:
    random, found = Random(3), Outcomes()
    threshold, rates = log_time_of_drop(drop_pct), pair_rates(FIRST_ANALYSES)
    for _ in range(trials):
        values = machine.pairs(random, FIRST_ANALYSES[-1], slowdown)
        taken = interim_analyses(values, threshold, rates, FIRST_ANALYSES, ended=True)
        found[taken[-1].verdict.decision] += 1
    return found


def gated(
    machine: Machine, factors: Mapping[str, float], trials: int, share_spread: float = 0.06
) -> Outcomes:
    """The whole gate, profiles included; ``factors`` multiply the cost of functions."""
    random, found, samples = Random(2), Outcomes(), 1500
    whole = 1.0 + sum(SHARES[name] * (factor - 1.0) for name, factor in factors.items())
    shares = {name: share * factors.get(name, 1.0) / whole for name, share in SHARES.items()}
    for _ in range(trials):
        times, profile = [], []
        for count, slowdown, of in (
            (BASELINE_PROCESSES, 0.0, SHARES),
            (ANALYSES[-1], whole - 1.0, shares),
        ):
            times.append([1e3 * math.exp(x) for x in machine.batch(random, count, slowdown)])
            profile.append([sampled(random, of, samples, share_spread) for _ in range(count)])
        old = evidence(times[0], profile[0], nonce="baseline", samples=samples)
        for count in ANALYSES:
            new = evidence(times[1][:count], profile[1][:count], first_pid=300, samples=samples)
            verdict = judge_stored(old, new, analyses=len(ANALYSES))
            if not verdict.more_processes:
                break
        found[verdict.verdict] += 1
    return found


BRICKS = {"RmsNorm": 3.0, "QkvProjection": 20.0, "DownProjection": 40.0, "LmHead": 60.0}


def bricks(
    spread: float, trials: int, *, slower: float = 1.0, batch: float = 0.02, over: float = 0.0
) -> Outcomes:
    """Any of four bricks judged each way, first regressed, then open; one is ``slower``.

    ``over`` holds every call to that many times its budget, in place of growths.
    """
    random, found = Random(7), Outcomes()
    asked = allowing(every=(None, 10.0))
    if over:
        asked = allowing(**{name: (cost, None) for name, cost in BRICKS.items()})

    def side(first_pid: int, costs: dict[str, float]) -> Evidence:
        level = math.exp(random.gauss(0.0, batch))
        runs = brick_runs(costs, drawn(random, spread, by=level), first_pid=first_pid, durations={})
        return evidence(bricks=runs)

    now = {name: cost * (over or 1.0) for name, cost in BRICKS.items()}
    now["RmsNorm"] *= slower
    for _ in range(trials):
        judged = judge_bricks(
            side(800, BRICKS), side(700, now), asked, ErrorRates(analyses=2), drift_sd=batch
        )
        decisions = {signal.decision for signal in judged.signals}
        assert len(judged.signals) == len(BRICKS)
        names = ("regressed", "inconclusive", "pass", "improved")
        found[next(name for name in names if name in decisions)] += 1
    return found


QUIET, MIXED, CONTENDED = Machine(0.017), Machine(0.028), Machine(0.036)
MISPLACED, HEAVY = Machine(0.017, misplaced=0.1), Machine(0.017, tail_df=3)
PAIR_MACHINES = [
    Machine(0.012),
    Machine(0.03),
    Machine(0.015, tail_df=3),
    Machine(0.015, misplaced=0.06),
    Machine(0.015, memory=0.1),
]


def test_a_few_trials_of_each_rule() -> None:
    for found in (
        stored(QUIET, 0.0, 60),
        paired(PAIR_MACHINES[0], 5.0, 0.0, 100),
        gated(QUIET, {}, 10),
        bricks(0.015, 20, batch=0.0),
    ):
        assert found["regressed"] <= 1
        assert found.part("pass") >= 0.8
    assert stored(QUIET, 0.2, 40).part("regressed") == 1.0
    assert paired(PAIR_MACHINES[0], 5.0, log_time_of_drop(10.0), 60).part("regressed") == 1.0
    assert gated(QUIET, {"gemv": 1.2}, 10).part("regressed") == 1.0
    assert bricks(0.015, 20, slower=1.3).part("regressed") >= 0.9


@pytest.mark.nightly
@pytest.mark.parametrize(
    "machine",
    [QUIET, MIXED, CONTENDED, MISPLACED, HEAVY, Machine(0.017, misplaced=0.2), Machine(0.001)],
    ids=str,
)
def test_unchanged_code_raises_few_alarms(machine: Machine) -> None:
    found = stored(machine, 0.0, 500)
    assert found.part("regressed") <= 0.01
    assert found.part("improved") <= 0.01
    least = {QUIET: 0.97, MIXED: 0.88, CONTENDED: 0.7, MISPLACED: 0.8, HEAVY: 0.8}
    assert found.part("pass") >= least.get(machine, 0.0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("machine", "slowdown", "least", "missed"),
    [
        (QUIET, 0.053, 0.93, 0.05),  # 5 % fewer tokens per second is 5.3 % more time
        (QUIET, 0.10, 0.99, 0.0),
        (MIXED, 0.053, 0.7, 0.05),
        (MIXED, 0.10, 0.99, 0.0),
        (CONTENDED, 0.053, 0.45, 0.05),
        (CONTENDED, 0.10, 0.95, 0.0),
        (MISPLACED, 0.10, 0.9, 0.001),
        (HEAVY, 0.10, 0.85, 0.005),
        (HEAVY, 0.20, 0.97, 0.0),
    ],
    ids=str,
)
def test_a_slowdown_is_found_and_hardly_ever_passed(
    machine: Machine, slowdown: float, least: float, missed: float
) -> None:
    found = stored(machine, slowdown, 500)
    assert found.part("regressed") >= least
    assert found.part("pass") + found.part("improved") <= missed


@pytest.mark.nightly
def test_speedups_small_drops_tight_thresholds_and_drift() -> None:
    assert stored(QUIET, -0.1, 500).part("improved") >= 0.99
    assert stored(Machine(0.004), 0.02, 500).part("pass") >= 0.97
    tight = stored(QUIET, 0.0, 500, drop_pct=1.0)
    assert tight.part("regressed") <= 0.015
    assert tight.part("inconclusive") >= 0.7
    assert stored(Machine(0.003), 0.0, 500).part("regressed") <= 0.002
    # The variance of the drift guards against batches that differ; these differ far more.
    assert stored(Machine(0.003, drift=0.02), 0.0, 500).part("regressed") >= 0.05


@pytest.mark.nightly
def test_error_rates_of_batches_on_a_drifting_machine() -> None:
    random, found = Random(11), Counter[float]()
    for _ in range(400):
        levels = [random.gauss(0.0, 0.012) for _ in range(MIN_BATCHES)]
        earlier = [Batch(f"n{i}", "", 5, level, level) for i, level in enumerate(levels)]
        drift = random.gauss(0.0, 0.012)
        unchanged = [drift + random.gauss(0.0, 0.01) for _ in range(5)]
        for slower in (0.0, 0.1):
            new = measurement([value + slower for value in unchanged])
            (estimate,) = estimate_from_batches(earlier, measurement([0.0]), new)
            found[slower] += decide(estimate, 0.05, ErrorRates()).decision == "regressed"
    assert found[0.0] / 400 <= 0.02
    assert found[0.1] / 400 >= 0.95


@pytest.mark.nightly
@pytest.mark.parametrize("machine", PAIR_MACHINES, ids=repr)
@pytest.mark.parametrize(("drop_pct", "missed"), [(5.0, 0.01), (2.0, 0.02)])
def test_pairs_err_as_rarely_as_promised(machine: Machine, drop_pct: float, missed: float) -> None:
    assert paired(machine, drop_pct, 0.0).part("regressed") <= 0.01
    assert paired(machine, drop_pct, log_time_of_drop(drop_pct)).part("pass") <= missed
    if drop_pct == 5.0 and machine.spread < 0.03:
        assert paired(machine, 5.0, 0.0).part("inconclusive") <= 0.02
        assert paired(machine, 5.0, log_time_of_drop(10.0)).part("regressed") >= 0.97


@pytest.mark.nightly
def test_pairs_with_memory_or_much_noise() -> None:
    # Pairs as dependent as this were never measured: each draws core, order and turns anew.
    dependent = Machine(0.015, memory=0.3)
    assert paired(dependent, 5.0, 0.0).part("regressed") <= 0.01
    assert paired(dependent, 2.0, 0.0).part("regressed") <= 0.04
    assert paired(dependent, 2.0, log_time_of_drop(2.0)).part("pass") <= 0.06
    assert paired(Machine(0.15), 2.0, log_time_of_drop(2.0)).part("inconclusive") >= 0.9


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("factors", "verdict", "least"),
    [
        ({}, "pass", 0.95),
        ({"gemv": 1.2}, "regressed", 0.99),
        ({"rms_norm": 2.0}, "regressed", 0.99),
        ({"gemv": 0.7}, "improved", 0.97),
        ({"gemv": 0.8, "attention": 1.44}, "regressed", 0.95),  # the whole stays as fast
    ],
    ids=str,
)
def test_the_whole_gate_finds_the_truth(
    factors: dict[str, float], verdict: str, least: float
) -> None:
    assert gated(QUIET, factors, 100).part(verdict) >= least
    if not factors:
        assert gated(MIXED, {}, 200, share_spread=0.12).part("regressed") <= 0.01


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("spread", "slower", "least"), [(0.03, 1.3, 0.95), (0.08, 1.5, 0.9), (0.17, 3.0, 0.95)]
)
def test_a_slower_brick_is_found_and_an_unchanged_one_is_not(
    spread: float, slower: float, least: float
) -> None:
    assert bricks(spread, 600).part("regressed") <= 0.01
    assert bricks(spread, 500, batch=0.0).part("regressed") <= 0.01
    found = bricks(spread, 200, slower=slower)
    assert found.part("regressed") >= least
    assert found["pass"] == 0


@pytest.mark.nightly
def test_a_call_at_its_budget_is_hardly_ever_over_it() -> None:
    assert bricks(0.08, 600, over=1.0).part("regressed") <= 0.01
    assert bricks(0.08, 200, over=1.5).part("regressed") >= 0.95
    assert bricks(0.08, 200, over=0.7).part("pass") >= 0.95

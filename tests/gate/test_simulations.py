"""The rules on machines of known truth: how often they err. Seeded, so figures are reproducible.

The bounds hold for these seeds, and leave room for what another machine's draws would give.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest

from pytest_flamegate.gate import FIRST_ANALYSES, ErrorRates
from pytest_flamegate.gate.bricks import judge_bricks
from pytest_flamegate.gate.pairs import interim_analyses, pair_rates
from pytest_flamegate.gate.rule import log_time_of_drop
from pytest_flamegate.gate.throughput import judge_throughput
from tests.gate.bricked import allowing, brick_runs, drawn
from tests.gate.factory import evidence, judge_stored, measurement, sampled

ANALYSES = (5, 8, 12)
"""Current processes at each analysis; the baseline has the eight that it was accepted with."""
BASELINE_PROCESSES = 8
SHARES = {"gemv": 0.55, "attention": 0.25, "rms_norm": 0.08, "rope": 0.04}
BRICKS = {"RmsNorm": 3.0, "QkvProjection": 20.0, "DownProjection": 40.0, "LmHead": 60.0}


@dataclass(frozen=True, slots=True)
class Machine:
    """Spread in log time, between processes or between pairs, and what comes on top of it.

    ``misplaced`` is the chance that a process is 8 to 35 % slow all its life; ``tail_df`` makes
    the spread Student's t.
    """

    spread: float
    misplaced: float = 0.0
    tail_df: int | None = None

    def noise(self, random: Random) -> float:
        noise = random.gauss(0.0, 1.0)
        if self.tail_df is not None:
            chi = sum(random.gauss(0.0, 1.0) ** 2 for _ in range(self.tail_df))
            noise /= math.sqrt(chi / self.tail_df)
        return self.spread * noise

    def batch(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Log times of a batch of fresh processes, drift included."""
        level = math.log1p(slowdown) + random.gauss(0.0, 0.0042)
        return [
            level
            + self.noise(random)
            + (random.uniform(0.08, 0.11) if random.random() < self.misplaced else 0.0)
            for _ in range(count)
        ]

    def pairs(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Consecutive pairs whose head is slower by ``slowdown`` in log time."""
        return [
            slowdown
            + self.noise(random)
            + sum(
                sign * random.uniform(0.1, 0.35)
                for sign in (1, -1)
                if random.random() < self.misplaced
            )
            for _ in range(count)
        ]


class Outcomes(Counter[str]):
    """Trials by decision; ``part`` is the part of them, 0 to 1."""

    def part(self, *decisions: str) -> float:
        return sum(self[decision] for decision in decisions) / self.total()


@cache  # the same trials answer several questions
def stored(machine: Machine, slowdown: float, trials: int) -> Outcomes:
    random, found = Random(1), Outcomes()
    rates = ErrorRates(analyses=len(ANALYSES))
    for _ in range(trials):
        old = measurement(machine.batch(random, BASELINE_PROCESSES, 0.0))
        new = machine.batch(random, ANALYSES[-1], slowdown)
        for count in ANALYSES:
            signal, _rate = judge_throughput(old, measurement(new[:count]), 5.0, rates)
            if signal.decision != "inconclusive":
                break
        found[signal.decision] += 1
    return found


@cache
def paired(machine: Machine, slowdown: float, trials: int) -> Outcomes:
    random, found = Random(3), Outcomes()
    threshold, rates = log_time_of_drop(5.0), pair_rates(FIRST_ANALYSES)
    for _ in range(trials):
        values = machine.pairs(random, FIRST_ANALYSES[-1], slowdown)
        taken = interim_analyses(values, threshold, rates, FIRST_ANALYSES, ended=True)
        found[taken[-1].verdict.decision] += 1
    return found


def gated(machine: Machine, factors: Mapping[str, float], trials: int) -> Outcomes:
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
            profile.append([sampled(random, of, samples, 0.06) for _ in range(count)])
        old = evidence(times[0], profile[0], nonce="baseline", samples=samples)
        for count in ANALYSES:
            new = evidence(times[1][:count], profile[1][:count], first_pid=300, samples=samples)
            verdict = judge_stored(old, new, analyses=len(ANALYSES))
            if not verdict.more_processes:
                break
        found[verdict.verdict] += 1
    return found


def bricks(spread: float, trials: int, *, slower: float = 1.0, batch: float = 0.02) -> Outcomes:
    """Any of four bricks judged each way, first regressed, then open; one is ``slower``."""
    random, found = Random(7), Outcomes()
    now = {**BRICKS, "RmsNorm": slower * BRICKS["RmsNorm"]}
    for _ in range(trials):
        old, new = (
            evidence(
                bricks=brick_runs(
                    costs,
                    drawn(random, spread, by=math.exp(random.gauss(0.0, batch))),
                    first_pid=pid,
                    durations={},
                )
            )
            for pid, costs in ((800, BRICKS), (700, now))
        )
        allowed = allowing(every=(None, 10.0))
        judged = judge_bricks(old, new, allowed, ErrorRates(analyses=2), drift_sd=batch)
        decisions = {signal.decision for signal in judged.signals}
        names = ("regressed", "inconclusive", "pass", "improved")
        found[next(name for name in names if name in decisions)] += 1
    return found


QUIET, CONTENDED = Machine(0.017), Machine(0.036)
MISPLACED, HEAVY = Machine(0.017, misplaced=0.1), Machine(0.017, tail_df=3)
PAIR_MACHINES = [Machine(0.012), Machine(0.015, tail_df=3), Machine(0.015, misplaced=0.06)]


def test_a_few_trials_of_each_rule() -> None:
    for found in (
        stored(QUIET, 0.0, 60),
        paired(PAIR_MACHINES[0], 0.0, 100),
        gated(QUIET, {}, 10),
        bricks(0.015, 20, batch=0.0),
    ):
        assert found["regressed"] <= 1
        assert found.part("pass") >= 0.8
    assert stored(QUIET, 0.2, 40).part("regressed") == 1.0
    assert paired(PAIR_MACHINES[0], log_time_of_drop(10.0), 60).part("regressed") == 1.0
    assert gated(QUIET, {"gemv": 1.2}, 10).part("regressed") == 1.0
    assert bricks(0.015, 20, slower=1.3).part("regressed") >= 0.9


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("machine", "passed", "found", "missed"),
    [
        (QUIET, 0.97, 0.93, 0.05),
        (CONTENDED, 0.7, 0.45, 0.05),
        (MISPLACED, 0.8, 0.5, 0.05),
        (HEAVY, 0.8, 0.5, 0.05),
    ],
    ids=str,
)
def test_a_stored_baseline_errs_rarely(
    machine: Machine, passed: float, found: float, missed: float
) -> None:
    unchanged = stored(machine, 0.0, 500)
    assert max(unchanged.part("regressed"), unchanged.part("improved")) <= 0.01
    assert unchanged.part("pass") >= passed
    # 5 % fewer tokens per second is 5.3 % more time.
    assert stored(machine, 0.053, 500).part("regressed") >= found
    assert stored(machine, 0.053, 500).part("pass", "improved") <= missed
    assert stored(machine, 0.20, 500).part("regressed") >= 0.97
    assert stored(machine, 0.20, 500).part("pass", "improved") == 0.0


@pytest.mark.nightly
@pytest.mark.parametrize("machine", PAIR_MACHINES, ids=repr)
def test_pairs_err_as_rarely_as_promised(machine: Machine) -> None:
    assert paired(machine, 0.0, 2000).part("regressed") <= 0.01
    assert paired(machine, 0.0, 2000).part("inconclusive") <= 0.02
    assert paired(machine, log_time_of_drop(5.0), 2000).part("pass") <= 0.01
    assert paired(machine, log_time_of_drop(10.0), 2000).part("regressed") >= 0.97


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("factors", "verdict", "least"),
    [
        ({}, "pass", 0.95),
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


@pytest.mark.nightly
def test_a_slower_brick_is_found_and_an_unchanged_one_is_not() -> None:
    assert bricks(0.08, 600).part("regressed") <= 0.01
    assert bricks(0.08, 500, batch=0.0).part("regressed") <= 0.01
    found = bricks(0.08, 200, slower=1.5)
    assert found.part("regressed") >= 0.9
    assert found["pass"] == 0

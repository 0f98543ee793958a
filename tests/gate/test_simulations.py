"""The rules on machines of known truth: how often they err. Seeded, so figures are reproducible.

The bounds hold for these seeds, and leave room for what another machine's draws would give.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import pytest

from pytest_flamegate.gate.bricks import judge_bricks
from pytest_flamegate.gate.hotspots import ShareDrift
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.throughput import judge_throughput
from tests.gate.bricked import allowing, brick_runs, drawn
from tests.gate.factory import evidence, judge_stored, measurement

ANALYSES = (5, 8, 12)
"""Current processes at each analysis; the baseline has the eight that it was accepted with."""
BASELINE = 8
SHARES = {"gemv": 0.55, "attention": 0.25, "rms_norm": 0.08, "rope": 0.04}
BRICKS = {"RmsNorm": 3.0, "QkvProjection": 20.0, "DownProjection": 40.0, "LmHead": 60.0}


@dataclass(frozen=True, slots=True)
class Machine:
    """Spread in log time between processes, and what comes on top of it.

    ``misplaced`` is the chance that a process is 8 to 15 % slow all its life; ``tail_df`` makes
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
        if random.random() < self.misplaced:
            noise += random.uniform(0.08, 0.15) / self.spread
        return self.spread * noise

    def batch(self, random: Random, count: int, slowdown: float) -> list[float]:
        """Log times of a batch of fresh processes, drift included."""
        level = math.log1p(slowdown) + random.gauss(0.0, 0.0042)
        return [level + self.noise(random) for _ in range(count)]


def part(found: Counter[str], *decisions: str) -> float:
    return sum(found[decision] for decision in decisions) / found.total()


def sampled(random: Random, shares: Mapping[str, float], samples: int) -> dict[str, int]:
    """One process's counts: shares vary (6 % of log-odds) on top of the sampling."""
    counts = {}
    for frame, share in shares.items():
        odds = math.log(share / (1.0 - share)) + random.gauss(0.0, 0.06)
        actual = 1.0 / (1.0 + math.exp(-odds))
        noise = random.gauss(0.0, math.sqrt(samples * actual * (1.0 - actual)))
        counts[frame] = max(0, round(samples * actual + noise))
    counts[next(iter(shares))] -= max(0, sum(counts.values()) - samples)
    return counts


def stored(machine: Machine, slowdown: float) -> Counter[str]:
    random, found = Random(1), Counter[str]()
    rates = ErrorRates(analyses=len(ANALYSES))
    for _ in range(500):
        old = measurement(machine.batch(random, BASELINE, 0.0))
        new = machine.batch(random, ANALYSES[-1], slowdown)
        for count in ANALYSES:
            signal, _rate = judge_throughput(old, measurement(new[:count]), 5.0, rates)
            if signal.decision != "inconclusive":
                break
        found[signal.decision] += 1
    return found


def gated(
    machine: Machine, factors: Mapping[str, float], share_drift: ShareDrift = "cost"
) -> Counter[str]:
    """The whole gate, profiles included; ``factors`` multiply the cost of functions."""
    random, found, samples = Random(2), Counter[str](), 1500
    whole = 1.0 + sum(SHARES[name] * (factor - 1.0) for name, factor in factors.items())
    shares = {name: share * factors.get(name, 1.0) / whole for name, share in SHARES.items()}
    for _ in range(100):
        times, profile = [], []
        for count, slowdown, of in ((BASELINE, 0.0, SHARES), (ANALYSES[-1], whole - 1.0, shares)):
            times.append([1e3 * math.exp(x) for x in machine.batch(random, count, slowdown)])
            profile.append([sampled(random, of, samples) for _ in range(count)])
        old = evidence(times[0], profile[0], nonce="baseline", samples=samples)
        for count in ANALYSES:
            new = evidence(times[1][:count], profile[1][:count], first_pid=300, samples=samples)
            verdict = judge_stored(old, new, analyses=len(ANALYSES), share_drift=share_drift)
            if not verdict.wanted_processes:
                break
        found[verdict.verdict] += 1
    return found


def bricks(trials: int, *, slower: float = 1.0, batch: float = 0.02) -> Counter[str]:
    """Any of four bricks judged each way, first regressed, then open; one is ``slower``."""
    random, found = Random(7), Counter[str]()
    now = {**BRICKS, "RmsNorm": slower * BRICKS["RmsNorm"]}
    for _ in range(trials):
        old, new = (
            evidence(
                bricks=brick_runs(
                    costs,
                    drawn(random, 0.08, by=math.exp(random.gauss(0.0, batch))),
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


QUIET = Machine(0.017)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("machine", "passed", "found"),
    [
        (QUIET, 0.97, 0.93),
        (Machine(0.036), 0.7, 0.45),
        (Machine(0.017, misplaced=0.1), 0.8, 0.5),
        (Machine(0.017, tail_df=3), 0.8, 0.5),
    ],
    ids=str,
)
def test_a_stored_baseline_errs_rarely(machine: Machine, passed: float, found: float) -> None:
    # 5 % fewer tokens per second is 5.3 % more time.
    same, slower, slow = (stored(machine, slowdown) for slowdown in (0.0, 0.053, 0.2))
    assert max(part(same, "regressed"), part(same, "improved")) <= 0.01
    assert part(same, "pass") >= passed
    assert part(slower, "regressed") >= found
    assert part(slower, "pass", "improved") <= 0.05
    assert part(slow, "regressed") >= 0.97
    assert part(slow, "pass", "improved") == 0.0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("factors", "drift", "verdict", "least"),
    [
        ({}, "cost", "pass", 0.95),
        ({"rms_norm": 2.0}, "cost", "regressed", 0.99),
        ({"gemv": 0.7}, "cost", "improved", 0.97),
        # The whole stays as fast: what one function costs more, another one makes up for.
        ({"gemv": 0.8, "attention": 1.44}, "cost", "pass", 0.95),
        ({"gemv": 0.8, "attention": 1.44}, "strict", "regressed", 0.95),
    ],
    ids=str,
)
def test_the_whole_gate_finds_the_truth(
    factors: dict[str, float], drift: ShareDrift, verdict: str, least: float
) -> None:
    assert part(gated(QUIET, factors, drift), verdict) >= least


@pytest.mark.nightly
def test_a_slower_brick_is_found_and_an_unchanged_one_is_not() -> None:
    assert part(bricks(600), "regressed") <= 0.01
    assert part(bricks(500, batch=0.0), "regressed") <= 0.01
    found = bricks(200, slower=1.5)
    assert part(found, "regressed") >= 0.9
    assert found["pass"] == 0

from __future__ import annotations

import math
from random import Random

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.gate import ErrorRates, decide
from pytest_flamegate.gate.throughput import MIN_BATCHES, estimate_from_batches
from pytest_flamegate.receipt.types import Batch, Evidence
from pytest_flamegate.run.publish import batch_of
from tests.gate.factory import QUIET, baseline, evidence, judge_stored, measurement, scaled


def batches(levels: list[float]) -> tuple[Batch, ...]:
    return tuple(Batch(f"n{i}", "", 5, level, level) for i, level in enumerate(levels))


def test_the_error_is_that_of_predicting_one_batch() -> None:
    (estimate,) = estimate_from_batches(
        batches([0.0, 0.02, -0.02, 0.01, -0.01, 0.0]), measurement([0.0]), measurement([0.05, 0.07])
    )
    assert estimate.mean_diff == pytest.approx(0.06)
    spread = math.sqrt((2 * 0.02**2 + 2 * 0.01**2) / 5)
    assert estimate.standard_error == pytest.approx(spread * math.sqrt(1 + 1 / 6))
    assert estimate.df == 5


def judged(current: Evidence, levels: list[float]) -> str:
    verdict = judge_stored(baseline(), current, Thresholds(), batches=batches(levels))
    return verdict.verdict


def test_from_six_on_the_batches_own_spread_decides() -> None:
    # The level of the factory's baseline over its reference kernel of 5 ms.
    level = batch_of(baseline()).log_time_ratio
    steady = [level + shift for shift in (0.001, -0.001, 0.002, -0.002, 0.0, 0.001)]
    wandering = [level + 20 * shift for shift in (0.001, -0.001, 0.002, -0.002, 0.0, 0.001)]
    slower = evidence(scaled(QUIET, 1.08))
    assert judged(slower, steady) == "regressed"
    assert judged(slower, wandering) == "inconclusive"
    # One batch fewer: the assumed drift is used, which knows nothing of the wandering.
    assert judged(slower, wandering[: MIN_BATCHES - 1]) == "regressed"


def test_error_rates_of_batches_on_a_drifting_machine() -> None:
    random = Random(11)
    alarms = found = 0
    trials = 400
    for _ in range(trials):
        earlier = batches([random.gauss(0.0, 0.012) for _ in range(MIN_BATCHES)])
        drift = random.gauss(0.0, 0.012)
        unchanged = [drift + random.gauss(0.0, 0.01) for _ in range(5)]
        old = measurement([0.0])
        for slower in (0.0, 0.1):
            new = measurement([value + slower for value in unchanged])
            (estimate,) = estimate_from_batches(earlier, old, new)
            regressed = decide(estimate, 0.05, ErrorRates()).decision == "regressed"
            alarms += regressed and not slower
            found += regressed and bool(slower)
    assert alarms / trials <= 0.02
    assert found / trials >= 0.95

from __future__ import annotations

import math
from random import Random

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.gate import judge
from pytest_flamegate.gate.rule import MIN_BATCHES, estimate_from_batches
from pytest_flamegate.gate.signals import ErrorRates
from pytest_flamegate.receipt.types import Batch, Evidence
from pytest_flamegate.run.publish import batch_of
from tests.gate.factory import QUIET, baseline, evidence, scaled


def batches(levels: list[float]) -> tuple[Batch, ...]:
    return tuple(Batch(f"n{i}", "", 5, level, level) for i, level in enumerate(levels))


def test_the_error_is_that_of_predicting_one_batch() -> None:
    estimate = estimate_from_batches([0.0, 0.02, -0.02, 0.01, -0.01, 0.0], [0.05, 0.07])
    assert estimate.mean_diff == pytest.approx(0.06)
    spread = math.sqrt((2 * 0.02**2 + 2 * 0.01**2) / 5)
    assert estimate.standard_error == pytest.approx(spread * math.sqrt(1 + 1 / 6))
    assert estimate.df == 5


def judged(current: Evidence, levels: list[float]) -> str:
    verdict = judge(baseline(), current, Thresholds(), grade="X", batches=batches(levels))
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
    rates = ErrorRates(looks=1)
    from pytest_flamegate.gate.rule import decide

    for _ in range(trials):
        earlier = [random.gauss(0.0, 0.012) for _ in range(MIN_BATCHES)]
        drift = random.gauss(0.0, 0.012)
        unchanged = [drift + random.gauss(0.0, 0.01) for _ in range(5)]
        alarms += (
            decide(estimate_from_batches(earlier, unchanged), 0.05, rates).decision == "regressed"
        )
        slower = [value + 0.1 for value in unchanged]
        found += decide(estimate_from_batches(earlier, slower), 0.05, rates).decision == "regressed"
    assert alarms / trials <= 0.02
    assert found / trials >= 0.95

from __future__ import annotations

import math

import pytest

from pytest_flamegate.gate import ErrorRates, decide
from pytest_flamegate.gate.rule import detectable_change
from pytest_flamegate.gate.signals import (
    describe_rate_change,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import Estimate

Z99, Z95 = 2.3263478740, 1.6448536270
TAU = log_time_of_drop(5.0)


@pytest.mark.parametrize(
    ("centre", "se", "decision"),
    [
        # Tight: the decision is the estimate's.
        (0.0, 0.001, "pass"),
        (0.9 * TAU, 0.001, "pass"),  # certainly slower, certainly by less than allowed
        (0.6 * TAU, 0.15 * TAU, "pass"),  # lower > 0, above half, upper below the threshold
        (0.6 * TAU, 0.2 * TAU, "regressed"),  # below it only by the bound of misses
        (1.1 * TAU, 0.001, "regressed"),
        (-0.51 * TAU, 0.0001, "pass"),  # certainly faster, certainly by less than the threshold
        (-0.6 * TAU, 0.2 * TAU, "improved"),
        (-1.1 * TAU, 0.001, "improved"),
        (-0.49 * TAU, 0.001, "pass"),  # certainly faster, not by enough to call it so
        # Around zero.
        (0.0, TAU / 1.645, "pass"),
        (0.0, TAU / 1.644, "inconclusive"),
        # Certainly slower, above half the threshold, not proven to be below it.
        (0.8 * TAU, 0.3 * TAU, "regressed"),
        (2.33 * 0.4 * TAU, 0.4 * TAU, "regressed"),
        (2.32 * 0.4 * TAU, 0.4 * TAU, "inconclusive"),
        # Certainly slower by less than half: never an alarm.
        (0.45 * TAU, 0.15 * TAU, "pass"),
        (0.49 * TAU, 0.2 * TAU, "pass"),
        (0.51 * TAU, 0.2 * TAU, "pass"),
        (0.71 * TAU, 0.3 * TAU, "regressed"),
        (0.49 * TAU, 0.32 * TAU, "inconclusive"),
        # A wide interval decides nothing, however far its centre.
        (3.0 * TAU, 2.0 * TAU, "inconclusive"),
        (-3.0 * TAU, 2.0 * TAU, "pass"),
        (-3.0 * TAU, 4.0 * TAU, "inconclusive"),
        (-5.0 * TAU, 2.0 * TAU, "improved"),
    ],
)
def test_the_table(centre: float, se: float, decision: str) -> None:
    verdict = decide(Estimate(centre, se, math.inf), TAU, ErrorRates())
    assert verdict.decision == decision


def test_slower_and_faster_need_the_strict_bound() -> None:
    rates = ErrorRates()
    assert decide(Estimate(Z99 + 0.01, 1.0, math.inf), 9.0, rates).slower
    assert not decide(Estimate(Z99 - 0.01, 1.0, math.inf), 9.0, rates).slower
    assert decide(Estimate(-Z99 - 0.01, 1.0, math.inf), 9.0, rates).faster
    assert not decide(Estimate(-Z99 + 0.01, 1.0, math.inf), 9.0, rates).faster


def test_the_interval_shown_is_the_one_decided_by() -> None:
    rates = ErrorRates()
    slow = decide(Estimate(4.0, 1.0, math.inf), 1.0, rates)
    assert (slow.low, slow.high) == pytest.approx((4.0 - Z99, 4.0 + Z99))
    fast = decide(Estimate(-4.0, 1.0, math.inf), 1.0, rates)
    flat = decide(Estimate(0.0, 0.1, math.inf), 1.0, rates)
    assert (flat.low, flat.high) == pytest.approx((-0.1 * Z99, 0.1 * Z95))
    assert (fast.low, fast.high) == pytest.approx((-4.0 - Z99, -4.0 + Z99))


def test_a_regression_mirrors_an_improvement() -> None:
    slow = decide(Estimate(4.0, 1.0, 9.0), 1.0, ErrorRates())
    fast = decide(Estimate(-4.0, 1.0, 9.0), 1.0, ErrorRates())
    assert (slow.decision, fast.decision) == ("regressed", "improved")
    assert (slow.low, slow.high) == (-fast.high, -fast.low)


def test_more_looks_ask_for_more_evidence() -> None:
    estimate = Estimate(2.5, 1.0, math.inf)
    assert decide(estimate, 1.0, ErrorRates(analyses=1)).decision == "regressed"
    assert decide(estimate, 1.0, ErrorRates(analyses=6)).decision == "inconclusive"
    assert ErrorRates(analyses=6).alpha == pytest.approx(0.01 / 6)
    assert ErrorRates(analyses=6).beta == pytest.approx(0.05 / 6)


def test_the_smallest_detectable_change_is_found_with_95_percent() -> None:
    change = detectable_change(Estimate(0.3, 2.0, math.inf), 0.01)
    assert change == pytest.approx(2.0 * (Z99 + Z95))
    # At that truth the estimate falls above the bound in 95 of 100 cases.
    assert change - Z95 * 2.0 == pytest.approx(Z99 * 2.0)


@pytest.mark.parametrize("drop", [0.5, 5.0, 50.0, 99.0])
def test_drop_and_log_time_are_inverse(drop: float) -> None:
    assert rate_change_pct(log_time_of_drop(drop)) == pytest.approx(-drop)


def test_an_absurd_change_stays_a_finite_number() -> None:
    assert math.isfinite(rate_change_pct(-1e6))
    assert rate_change_pct(1e6) == -100.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (-6.24, "6.2 % slower"),
        (1.0, "1.0 % faster"),
        (0.04, "unchanged"),
        (-0.04, "unchanged"),
        (-0.06, "0.1 % slower"),
    ],
)
def test_words(change: float, words: str) -> None:
    assert describe_rate_change(change) == words

"""The decision rule as a table, and the error rates that verdicts report."""

import math

import pytest

from pytest_flamegate.gate import rule
from pytest_flamegate.gate.analyses import FIRST_ANALYSES, pair_rates
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.statistics import Estimate

Z99, Z95 = 2.3263478740, 1.6448536270
TAU = rule.log_time_of_drop(5.0)


@pytest.mark.parametrize(
    ("centre", "se", "decision"),
    [
        # Tight: the decision is the estimate's.
        (0.0, 0.001, "pass"),
        (0.9 * TAU, 0.001, "pass"),  # certainly slower, certainly by less than allowed
        (1.1 * TAU, 0.001, "regressed"),
        (-0.51 * TAU, 0.0001, "pass"),  # certainly faster, certainly by less than the threshold
        (-1.1 * TAU, 0.001, "improved"),
        # Certain that it changed; the other bound decides.
        (0.6 * TAU, 0.15 * TAU, "pass"),
        (0.6 * TAU, 0.2 * TAU, "regressed"),  # below it only by the bound of misses
        (-0.6 * TAU, 0.15 * TAU, "pass"),
        (-0.6 * TAU, 0.2 * TAU, "improved"),
        # Around zero.
        (0.0, TAU / 1.645, "pass"),
        (0.0, TAU / 1.644, "inconclusive"),
        (2.33 * 0.4 * TAU, 0.4 * TAU, "regressed"),
        (2.32 * 0.4 * TAU, 0.4 * TAU, "inconclusive"),
        # A wide interval decides nothing, however far its centre.
        (3.0 * TAU, 2.0 * TAU, "inconclusive"),
        (-3.0 * TAU, 2.0 * TAU, "pass"),
        (-3.0 * TAU, 4.0 * TAU, "inconclusive"),
        (-5.0 * TAU, 2.0 * TAU, "improved"),
    ],
)
def test_the_table(centre: float, se: float, decision: str) -> None:
    verdict = rule.decide(Estimate(centre, se, math.inf), TAU, ErrorRates())
    assert verdict.decision == decision
    assert verdict.is_certain is (verdict.slower or verdict.faster)


def test_a_bound_at_zero_or_at_the_threshold_is_not_beyond_it() -> None:
    exact = Estimate(0.0, 0.0, math.inf)
    assert not rule.decide(exact, 1.0, ErrorRates()).is_certain
    assert rule.decide(exact, 0.0, ErrorRates()).decision == "inconclusive"
    assert rule.decide(Estimate(1.0, 0.0, math.inf), 1.0, ErrorRates()).decision == "regressed"
    assert rule.decide(Estimate(-1.0, 0.0, math.inf), 1.0, ErrorRates()).decision == "improved"


def test_the_interval_shown_is_the_one_decided_by() -> None:
    slow, flat, fast = (
        rule.decide(Estimate(centre, se, math.inf), 1.0, ErrorRates())
        for centre, se in ((4.0, 1.0), (0.0, 0.1), (-4.0, 1.0))
    )
    assert (slow.low, slow.high) == pytest.approx((4.0 - Z99, 4.0 + Z99))
    assert (flat.low, flat.high) == pytest.approx((-0.1 * Z99, 0.1 * Z95))
    assert (fast.low, fast.high) == pytest.approx((-4.0 - Z99, -4.0 + Z99))
    assert (slow.slower, slow.faster, fast.slower, fast.faster) == (True, False, False, True)
    assert (slow.low, slow.high) == pytest.approx((-fast.high, -fast.low))


def test_more_analyses_ask_for_more_evidence() -> None:
    estimate = Estimate(2.5, 1.0, math.inf)
    assert rule.decide(estimate, 1.0, ErrorRates(analyses=1)).decision == "regressed"
    assert rule.decide(estimate, 1.0, ErrorRates(analyses=6)).decision == "inconclusive"
    assert ErrorRates(analyses=6).alpha == pytest.approx(0.01 / 6)
    assert ErrorRates(analyses=6).beta == pytest.approx(0.05 / 6)
    assert pair_rates(FIRST_ANALYSES) == ErrorRates(0.01, 0.015, 7)


def test_the_smallest_detectable_change_is_found_with_95_percent() -> None:
    change = rule.detectable_change(Estimate(0.3, 2.0, math.inf), 0.01)
    assert change == pytest.approx(2.0 * (Z99 + Z95))
    assert rule.decide(Estimate(0.3, 2.0, math.inf), 1.0, ErrorRates()).detectable == change


# --- reported rates ------------------------------------------------------------------------


def test_rates_of_a_stored_baseline_are_not_known() -> None:
    once, thrice = (rule.nominal_rates(ErrorRates(analyses=count)) for count in (1, 3))
    assert (once.false_alarm, once.miss) == (None, None)
    assert once.basis == (
        "not calibrated. The rule allows 1 % false alarms for tokens per second, as many for all "
        "shares together, and 5 % misses"
    )
    assert thrice.basis == f"{once.basis}, spent over 3 analyses"

"""Shares of functions: which are judged, and how far they moved."""

from __future__ import annotations

import math

import pytest

from pytest_flamegate.gate.shares import (
    OTHER,
    ShareChange,
    observed_frames,
    share_changes,
)
from pytest_flamegate.gate.statistics import log_odds, student_t_upper, welch
from tests.gate.factory import PROFILE, Counts, moved, profiles

ALPHA = 0.01


def changes(old: Counts, new: Counts, *declared: str) -> dict[str, ShareChange]:
    found = share_changes(profiles(old), profiles(new), declared, ALPHA)
    return {change.name: change for change in found}


def spread_by(*offsets: int) -> Counts:
    return tuple({"a": 500 + i, "b": 500 - i} for i in offsets)


def test_hotspots_are_judged_hottest_first_and_the_rest_last() -> None:
    found = changes(PROFILE, PROFILE)
    assert list(found) == ["gemv", "attention", "rms_norm", OTHER]
    assert sum(change.baseline_share for change in found.values()) == pytest.approx(1.0)
    for change in found.values():
        assert (change.shift_pp, change.p_adjusted, change.presence) == (0.0, 1.0, "both")
        assert change.ci_low_pp < 0.0 < change.ci_high_pp
    assert list(changes(spread_by(0, 3, -2), spread_by(0, 3, -2))) == ["a", "b"]  # no rest


def test_one_percent_on_either_side_or_a_declaration_makes_a_hotspot() -> None:
    few, enough = ({"a": 900, "small": count} for count in (9, 10))
    assert "small" not in changes((few,) * 3, (few,) * 3)
    assert "small" in changes((few,) * 3, (enough,) * 3)
    assert "small" in changes((enough,) * 3, (few,) * 3)
    found = changes((few,) * 3, (few,) * 3, "small", "absent")
    assert "small" in found
    assert "absent" not in found


def test_a_drift_is_found_with_its_size_and_interval() -> None:
    found = changes(PROFILE, moved(PROFILE, "rms_norm", 80, "gemv"))
    norm = found["rms_norm"]
    assert norm.shift_pp == pytest.approx(8.0)
    assert norm.p_adjusted < ALPHA
    assert 0.0 < norm.ci_low_pp < 8.0 < norm.ci_high_pp
    assert found["gemv"].shift_pp == pytest.approx(-8.0)
    assert found["attention"].p_adjusted > 0.5


def test_interval_variance_and_detectable_shift_by_hand() -> None:
    old, new = spread_by(0, 100, -100, 60), tuple({"a": 800 + i, "b": 200 - i} for i in (0, 90, 30))
    change = changes(old, new)["a"]
    odds = [[log_odds(each["a"], 1000) for each in side] for side in (old, new)]
    estimate = welch(odds[0], odds[1])
    before = 2060.5 / 4001
    start = math.log(before / (1 - before))
    ends = [
        100 * (1 / (1 + math.exp(-start - bound)) - before)
        for bound in (estimate.lower(ALPHA / 2), estimate.upper(ALPHA / 2))
    ]
    assert (change.ci_low_pp, change.ci_high_pp) == pytest.approx(ends)
    slope = before * (1 - before)  # the larger of both
    t_sum = student_t_upper(ALPHA / 2 / 2, estimate.df) + student_t_upper(0.05, estimate.df)
    assert change.detectable_pp == pytest.approx(100 * slope * t_sum * estimate.standard_error)
    variance, df = change.baseline_variance
    assert df == 3.0
    centre = sum(odds[0]) / 4
    of_mean = sum((each - centre) ** 2 for each in odds[0]) / 3 / 4
    assert variance == pytest.approx(slope**2 * of_mean)


@pytest.mark.parametrize("presence", ["new", "vanished"])
def test_new_and_vanished_functions(presence: str) -> None:
    both = PROFILE, moved(PROFILE, "copy", 90, "gemv")
    change = changes(*(both if presence == "new" else both[::-1]))["copy"]
    assert change.presence == presence
    assert abs(change.shift_pp) == pytest.approx(9.0)
    assert change.p_adjusted < ALPHA
    assert math.isfinite(change.ci_low_pp)
    assert math.isfinite(change.ci_high_pp)
    whole = changes(({"a": 1000},) * 3, spread_by(0, 10, -10))
    assert whole["a"].shift_pp == pytest.approx(-50.0)


def test_processes_that_agree_by_luck_still_have_the_spread_of_sampling() -> None:
    # Without a floor any difference of constants would be certain.
    change = changes(spread_by(0, 0, 0, 0), spread_by(10, 10, 10, 10))["a"]
    assert change.p_adjusted > 0.1
    assert change.baseline_variance[0] == pytest.approx(0.25**2 * (2 / 500.5) / 4)


def test_the_process_is_the_unit_not_the_sample() -> None:
    # 3 pp of 60,000 samples is 15 binomial deviations, and nothing next to this spread.
    old = tuple({"a": a, "b": 10_000 - a} for a in (4000, 5000, 6000))
    new = tuple({"a": a, "b": 10_000 - a} for a in (4300, 5300, 6300))
    found = share_changes(profiles(old, 10_000), profiles(new, 10_000), (), ALPHA)
    assert found[0].p_adjusted > 0.5
    assert found[0].detectable_pp > 20.0


def test_a_larger_family_asks_for_more() -> None:
    two = spread_by(0, 30, -30)
    four = tuple({"a": each["a"], "b": 300, "c": 100, "d": 600 - each["a"]} for each in two)
    few, many, spent = (
        share_changes(profiles(each), profiles(each), (), alpha)[0].detectable_pp
        for each, alpha in ((two, 0.01), (four, 0.01), (four, 0.02))
    )
    assert many > few
    assert spent == pytest.approx(few)


def test_observed_functions_are_those_of_either_side_the_hottest_of_both_first() -> None:
    found = observed_frames(profiles(PROFILE), profiles([{"zero": 0, "copy": 70, "rms_norm": 9}]))
    assert found == ("gemv", "attention", "rms_norm", "copy", "tiny")
    assert observed_frames(profiles([{"b": 1, "a": 1}]), ()) == ("a", "b")
    assert observed_frames((), profiles([{"b": 2, "a": 1}])) == ("b", "a")
    assert observed_frames((), ()) == ()

from __future__ import annotations

import math

import pytest

from pytest_flamegate.gate.shares import OTHER, ShareChange, observed_frames, share_changes
from tests.gate.factory import PROFILE, moved, profiles

ALPHA = 0.01


def changes(
    old: tuple[dict[str, int], ...], new: tuple[dict[str, int], ...], *declared: str
) -> dict[str, ShareChange]:
    found = share_changes(profiles(old), profiles(new), declared, ALPHA)
    return {change.name: change for change in found}


def test_hotspots_are_judged_hottest_first_and_the_rest_last() -> None:
    found = share_changes(profiles(PROFILE), profiles(PROFILE), (), ALPHA)
    assert [change.name for change in found] == ["gemv", "attention", "rms_norm", OTHER]
    assert sum(change.baseline_share for change in found) == pytest.approx(1.0)


def test_a_declared_frame_is_judged_however_small() -> None:
    assert "tiny" in changes(PROFILE, PROFILE, "tiny", "absent")
    assert "absent" not in changes(PROFILE, PROFILE, "tiny", "absent")


def test_a_frame_hot_on_either_side_is_judged() -> None:
    found = changes(PROFILE, moved(PROFILE, "tiny", 30, "gemv"))
    assert found["tiny"].presence == "both"


def test_without_a_rest_there_is_no_bucket() -> None:
    whole = tuple({"a": 600 + i, "b": 400 - i} for i in (0, 3, -2))
    assert list(changes(whole, whole)) == ["a", "b"]


def test_equal_profiles_show_nothing() -> None:
    for change in changes(PROFILE, PROFILE).values():
        assert change.shift_pp == 0.0
        assert change.p_adjusted == 1.0
        assert change.ci_low_pp < 0.0 < change.ci_high_pp


def test_a_drift_is_found_with_its_size_and_interval() -> None:
    found = changes(PROFILE, moved(PROFILE, "rms_norm", 80, "gemv"))
    norm = found["rms_norm"]
    assert norm.shift_pp == pytest.approx(8.0)
    assert norm.p_adjusted < ALPHA
    assert 0.0 < norm.ci_low_pp < 8.0 < norm.ci_high_pp
    assert found["gemv"].shift_pp == pytest.approx(-8.0)
    assert found["attention"].p_adjusted > 0.5


@pytest.mark.parametrize(
    ("old", "new", "presence"),
    [
        (PROFILE, moved(PROFILE, "debug_copy", 90, "gemv"), "new"),
        (moved(PROFILE, "debug_copy", 90, "gemv"), PROFILE, "vanished"),
    ],
)
def test_new_and_vanished_frames(
    old: tuple[dict[str, int], ...], new: tuple[dict[str, int], ...], presence: str
) -> None:
    change = changes(old, new)["debug_copy"]
    assert change.presence == presence
    assert abs(change.shift_pp) == pytest.approx(9.0)
    assert change.p_adjusted < ALPHA
    assert math.isfinite(change.ci_low_pp)
    assert math.isfinite(change.ci_high_pp)


def test_processes_that_agree_by_luck_still_have_the_spread_of_sampling() -> None:
    same = ({"a": 500, "b": 500},) * 4
    near = ({"a": 510, "b": 490},) * 4
    # Without a floor any difference of constants would be certain.
    assert changes(same, near)["a"].p_adjusted > 0.1


def test_the_process_is_the_unit_not_the_sample() -> None:
    # 3 pp of 60,000 samples is 15 binomial deviations, and nothing beside this spread.
    old = tuple({"a": a, "b": 10_000 - a} for a in (4000, 5000, 6000))
    new = tuple({"a": a, "b": 10_000 - a} for a in (4300, 5300, 6300))
    found = share_changes(profiles(old, 10_000), profiles(new, 10_000), (), ALPHA)
    assert found[0].p_adjusted > 0.5
    assert found[0].detectable_pp > 20.0


def test_a_larger_family_asks_for_more() -> None:
    two = tuple({"a": 500 + i, "b": 500 - i} for i in (0, 30, -30))
    four = tuple({"a": 500 + i, "b": 300, "c": 100, "d": 100 - i} for i in (0, 30, -30))
    few = share_changes(profiles(two), profiles(two), (), 0.01)
    many = share_changes(profiles(four), profiles(four), (), 0.01)
    spent = share_changes(profiles(four), profiles(four), (), 0.02)
    assert many[0].detectable_pp > few[0].detectable_pp
    assert spent[0].detectable_pp == pytest.approx(few[0].detectable_pp)


def test_a_frame_that_is_everything() -> None:
    whole = ({"a": 1000},) * 3
    half = tuple({"a": 500 + i, "b": 500 - i} for i in (0, 10, -10))
    found = changes(whole, half)
    assert found["a"].shift_pp == pytest.approx(-50.0)
    assert found["b"].presence == "new"


def test_frames_seen_name_the_hottest_first() -> None:
    assert observed_frames(profiles(PROFILE), profiles([{"zero": 0}])) == (
        "gemv",
        "attention",
        "rms_norm",
        "tiny",
    )

"""The cost of functions per token, and of all CPU time, with their certainty."""

import math
from typing import Any

import pytest

from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.costs import (
    OTHER,
    WAITING,
    CostChange,
    ShareChange,
    cost_changes,
    cpu_change,
    estimate_cpu_cost,
    explaining_functions,
    observed_frames,
    share_changes,
)
from pytest_flamegate.gate.measurement import Measurement, read_measurement
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.statistics import (
    Estimate,
    log_odds,
    student_t_upper,
    trimmed_mean,
    welch,
)
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import (
    PROFILE,
    QUIET,
    WORKLOAD,
    Counts,
    baseline,
    changed,
    evidence,
    moved,
    profiles,
    scaled,
    shifted,
    sides,
)

RATES = ErrorRates()


def costs(
    new: Evidence, old: Evidence | None = None, *, whole_changed: bool = True, **options: Any
) -> dict[str, CostChange]:
    before, after = read_measurement(old or baseline(profile=PROFILE)), read_measurement(new)
    shares = share_changes(before.profiled, after.profiled, (), RATES.alpha)
    found = cost_changes(shares, before, after, RATES, whole_changed=whole_changed, **options)
    return {cost.name: cost for cost in found}


def grown(frame: str, factor: float) -> Evidence:
    whole, counts = changed(**{frame: factor})
    return evidence(scaled(QUIET, whole), counts)


def test_the_function_that_grew_explains_the_change_and_the_others_do_not() -> None:
    found = costs(grown("rms_norm", 3.0))
    norm, gemv = found["rms_norm"], found["gemv"]
    assert norm.baseline_us == pytest.approx(60.5, abs=0.5)
    assert norm.change_us == pytest.approx(120.0, abs=3.0)
    assert norm.current_us == pytest.approx(norm.baseline_us + norm.change_us)
    assert 0.0 < norm.ci_low_us < norm.change_us < norm.no_more_than_us < norm.ci_high_us
    assert (norm.is_certain, norm.excludes_zero) == (True, True)
    assert norm.ci_high_us - norm.change_us == pytest.approx(norm.change_us - norm.ci_low_us)
    assert norm.ci_high_us - norm.ci_low_us == pytest.approx(43.8, rel=0.01)
    assert norm.explains == pytest.approx(1.0, abs=0.03)
    assert gemv.change_us == pytest.approx(0.0, abs=3.0)
    assert gemv.p_adjusted > 0.5
    assert (gemv.is_certain, gemv.excludes_zero) == (False, False)
    # Rows add up to the whole, and the largest change is first.
    assert math.fsum(c.explains or 0.0 for c in found.values()) == pytest.approx(1.0)
    assert sum(c.current_us for c in found.values()) == pytest.approx(1120.25, rel=1e-3)
    assert sum(c.baseline_us for c in found.values()) == pytest.approx(1000.0, rel=1e-3)
    sizes = [abs(cost.change_us) for cost in found.values()]
    assert sizes == sorted(sizes, reverse=True)
    unchanged = costs(evidence(profile=PROFILE), whole_changed=False)
    assert {(cost.explains, cost.explains_pct) for cost in unchanged.values()} == {(None, None)}


def test_waiting_has_a_row_of_its_own_from_one_percent_on() -> None:
    waiting = evidence(scaled(QUIET, 1.2), PROFILE, process={"waiting_us": 200.0})
    found = costs(waiting)
    assert found[WAITING].baseline_us == 0.0
    assert found[WAITING].change_us == pytest.approx(200.0)
    assert found[WAITING].explains == pytest.approx(1.0, abs=0.02)
    assert abs(found["gemv"].change_us) < 3.0
    gone = costs(baseline(profile=PROFILE), waiting)[WAITING]
    assert (gone.baseline_us, gone.current_us) == pytest.approx((200.0, 0.0))
    for waiting_us, shown in ((9.0, False), (11.0, True)):
        little = evidence(profile=PROFILE, process={"waiting_us": waiting_us})
        assert (WAITING in costs(little)) is shown


def test_certainty_is_the_change_in_half_widths_of_its_interval() -> None:
    change = replace(cost("f", 1.0), change_us=6.0, ci_low_us=4.0)
    assert change.certainty == 3.0
    assert replace(change, ci_low_us=6.0).certainty == math.inf


def cost(name: str, explains: float | None, *, certain: bool = True) -> CostChange:
    low = 0.1 if certain else -1.0
    return CostChange(name, 1.0, 2.0, 1.0, low, 0.9, 0.5, explains, no_more_than_us=2.0)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([cost("a", 0.5), cost("b", 0.3), cost("c", 0.2)], ("a", "b")),
        ([cost("b", 0.45), cost("a", 0.45), cost("c", 0.1)], ("a", "b")),
        ([cost("a", 0.79)], ()),
        ([cost("a", 0.8)], ("a",)),
        ([cost("a", 1.4), cost("b", -0.4)], ("a",)),
        ([cost("a", 0.6), cost("b", 0.4, certain=False)], ()),
        ([cost("a", None)], ()),
        ([], ()),
    ],
)
def test_the_fewest_functions_that_explain_four_fifths(
    rows: list[CostChange], names: tuple[str, ...]
) -> None:
    assert explaining_functions(rows) == names


def test_no_function_explains_more_than_all() -> None:
    assert (cost("a", 1.4).explains_pct, cost("a", 0.25).explains_pct) == (100.0, 25.0)
    assert replace(cost("a", 1.0), ci_low_us=-3.0, ci_high_us=-1.0).excludes_zero
    assert not replace(cost("a", 1.0), ci_low_us=0.0).excludes_zero
    assert not replace(cost("a", 1.0), ci_low_us=-3.0, ci_high_us=0.0).excludes_zero
    assert replace(cost("a", 1.0), p_adjusted=0.01).is_certain
    assert not replace(cost("a", 1.0), p_adjusted=0.0101).is_certain


def test_a_cost_and_its_error_by_hand() -> None:
    """The error of a cost is that of the function's share on both sides and of all CPU time."""
    new, cpu = grown("rms_norm", 3.0), Estimate(math.log(1.2), 0.02, 5.0)
    before, after = read_measurement(baseline(profile=PROFILE)), read_measurement(new)
    shares = share_changes(before.profiled, after.profiled, (), RATES.alpha)
    (share,) = [each for each in shares if each.name == "rms_norm"]
    cpu_us = before.cpu_s_per_token * 1e6
    old_us, new_us = share.baseline_share * cpu_us, share.current_share * 1.2 * cpu_us
    parts = (
        (cpu_us**2 * share.baseline_variance[0], share.baseline_variance[1]),
        ((1.2 * cpu_us) ** 2 * share.current_variance[0], share.current_variance[1]),
        ((0.02 * new_us) ** 2, 5.0),
    )
    total = sum(part for part, _ in parts)
    df = total**2 / sum(part**2 / each for part, each in parts)  # Welch and Satterthwaite
    error = math.sqrt(total) * student_t_upper(RATES.alpha / 2, df)
    found = costs(new, cpu=cpu)["rms_norm"]
    assert (found.baseline_us, found.change_us) == pytest.approx((old_us, new_us - old_us))
    assert (found.ci_low_us, found.ci_high_us) == pytest.approx(
        (found.change_us - error, found.change_us + error)
    )


# --- all CPU time --------------------------------------------------------------------------


def test_views_that_disagree_widen_the_change_of_cpu_time() -> None:
    def side(*times: float, reference_us: float) -> Measurement:
        process = {"reference_us": reference_us}
        made = evidence(times, process=process, workload={**WORKLOAD, "engine": "command"})
        return read_measurement(made)

    old = side(*QUIET, reference_us=5000.0)
    same, moved_us = (side(*QUIET, reference_us=us) for us in (5000.0, 5500.0))
    near, far = cpu_change(old, same), cpu_change(old, moved_us)
    assert near.mean_diff == pytest.approx(0.0, abs=1e-9)
    # One view shows no change, the other 9.5 % less: the middle, and half the distance as error.
    half = math.log(1.1) / 2
    assert far.mean_diff == pytest.approx(-half, abs=1e-6)
    assert far.standard_error == pytest.approx(math.hypot(near.standard_error, half))
    # The error is that of the view that spreads more.
    ratios = (0.1, -0.1, 0.1, -0.1, 0.1, -0.1)
    timed = zip(old.timed, ratios, strict=True)
    loose = replace(old, timed=tuple(replace(run, log_cpu_ratio=by) for run, by in timed))
    error = welch(ratios, ratios).standard_error
    assert cpu_change(loose, loose).standard_error == pytest.approx(error, rel=0.01)


def test_pairs_show_the_change_of_cpu_time_and_its_error() -> None:
    found, few = (estimate_cpu_cost(*sides(shifted(0.05, n)), paired=True) for n in (10, 3))
    assert found is not None
    assert math.log(found.head_s / found.base_s) == pytest.approx(0.05, abs=0.002)
    assert found.base_s == pytest.approx(1.045e-3, rel=0.01)
    # Yuen's error of the eight pairs in the middle, times Student's over the normal quantile.
    yuen = trimmed_mean(shifted(0.05)).standard_error
    wider = student_t_upper(0.0025, 7.0) / student_t_upper(0.0025, math.inf)
    assert found.error == pytest.approx(wider * yuen, rel=1e-3)
    assert few is not None
    assert few.error > 3 * found.error
    # Three noisy pairs still show that a whole got 40 % slower, with room for three functions.
    noisy = estimate_cpu_cost(*sides([0.47, 0.51, 0.55]), paired=True)
    assert noisy is not None
    assert (1.0 - noisy.base_s / noisy.head_s) / noisy.error > 3.0
    one, other = (evidence((1000.0,), first_pid=pid) for pid in (100, 200))
    assert estimate_cpu_cost(one, other) is None
    base, head = evidence(first_pid=100), evidence(first_pid=300)
    assert estimate_cpu_cost(base, head, paired=True) is None
    assert estimate_cpu_cost(base, head) is not None


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
    # Without a floor for processes that agree by luck any difference would be certain.
    luck = changes(spread_by(0, 0, 0, 0), spread_by(10, 10, 10, 10))["a"]
    assert luck.p_adjusted > 0.1
    usual = (4.0 * 3.0 + 3.0 * 0.0) / (4.0 + 3.0)
    assert luck.baseline_variance[0] == pytest.approx(0.25**2 * usual * (2 / 500.5) / 4)
    assert luck.baseline_variance[1] == 7.0
    # Samples of perf vary less than those of a profiler that waits for a CPU.
    same = profiles(spread_by(0, 0, 0, 0))
    by_perf = share_changes(same, same, (), ALPHA, "perf")[0]
    assert by_perf.baseline_variance[0] == pytest.approx(0.25**2 * (2 / 500.5) / 4)
    assert list(changes(spread_by(0, 3, -2), spread_by(0, 3, -2))) == ["a", "b"]  # no rest
    assert list(changes(({"a": 1000},) * 3, ({"a": 1000}, {"a": 1000}, {"a": 999}))) == ["a", OTHER]


def test_the_interval_of_a_new_function_holds_its_shift() -> None:
    """Half a sample more in each of few small processes pulls the corrected share away."""
    old, new = (profiles(({"a": 30 - count, "new": count},) * 40, 30) for count in (0, 3))
    (found,) = [each for each in share_changes(old, new, (), ALPHA) if each.name == "new"]
    assert found.ci_low_pp <= found.shift_pp <= found.ci_high_pp


def test_one_percent_on_either_side_or_a_declaration_makes_a_hotspot() -> None:
    few, enough = ({"a": 900, "small": count} for count in (9, 10))
    assert "small" not in changes((few,) * 3, (few,) * 3)
    assert "small" in changes((few,) * 3, (enough,) * 3)
    assert "small" in changes((enough,) * 3, (few,) * 3)
    found = changes((few,) * 3, (few,) * 3, "small", "absent")
    assert "small" in found
    assert "absent" not in found
    rare = profiles(({"a": 97, "rare": 2}, {"a": 99}, {"a": 99}), 100)
    assert [each.name for each in share_changes(rare, rare, (), ALPHA)] == ["a", OTHER]


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
    far = ({"a": 1, "b": 999}, {"a": 999, "b": 1}) * 2
    assert changes(far, far)["a"].detectable_pp == 100.0
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
    assert abs(change.ci_low_pp) < 100.0
    assert abs(change.ci_high_pp) < 100.0
    whole = changes(({"a": 1000},) * 3, spread_by(0, 10, -10))
    assert whole["a"].shift_pp == pytest.approx(-50.0)


def test_observed_functions_are_those_of_either_side_the_hottest_of_both_first() -> None:
    found = observed_frames(profiles(PROFILE), profiles([{"zero": 0, "copy": 70, "rms_norm": 9}]))
    assert found == ("gemv", "attention", "rms_norm", "copy", "tiny")
    assert observed_frames(profiles([{"b": 1, "a": 1}]), ()) == ("a", "b")
    assert observed_frames((), profiles([{"b": 2, "a": 1}])) == ("b", "a")
    assert observed_frames((), ()) == ()

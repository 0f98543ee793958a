"""Judged shares: a drift fails if its function certainly costs more."""

import re
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.costs import OTHER, CostChange
from pytest_flamegate.gate.hotspots import (
    HotspotChange,
    JudgedShares,
    ShareDrift,
    Whole,
    decide_drift,
    judge_shares,
    leave_shares_open,
)
from pytest_flamegate.gate.measurement import MORE_TIME, Measurement, read_measurement
from pytest_flamegate.gate.rule import ErrorRates, RateVerdict, Reason
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.gate.throughput import judge_throughput
from tests.gate.factory import (
    PROFILE,
    QUIET,
    Counts,
    baseline,
    changed,
    check_reasons,
    evidence,
    measurement,
    moved,
    profiles,
    scaled,
)

RATES = ErrorRates()
STEADY, FASTER_TIMES = (0.0, 0.01, -0.01), (-0.5, -0.51, -0.49)


def judge(
    old: Measurement,
    new: Measurement,
    thresholds: Thresholds | None = None,
    drift: ShareDrift = "cost",
    rates: ErrorRates = RATES,
    **options: Any,
) -> JudgedShares:
    asked = thresholds or Thresholds()
    _, rate = judge_throughput(old, new, asked.tokens_per_second_pct, rates)
    shares = judge_shares(old, new, asked, rate, rates, drift, **options)
    check_reasons((*shares.reasons, *(each.reason for each in shares.hotspots if each.reason)))
    return shares


def judged(factor: float, counts: Counts, *, before: Counts = PROFILE, **options: Any) -> Any:
    old = read_measurement(baseline(profile=before))
    return judge(old, read_measurement(evidence(scaled(QUIET, factor), counts)), **options)


def drawn(
    before: Counts, by: int, now: tuple[float, ...] = STEADY, **options: Any
) -> HotspotChange:
    """Judge ``a`` with ``by`` more samples of every process."""
    old = measurement(STEADY, profiles(before))
    new = measurement(now, profiles(moved(before, "a", by, "b"), first_pid=300))
    return named(judge(old, new, **options), "a")


def named(shares: JudgedShares, name: str) -> HotspotChange:
    return next(hotspot for hotspot in shares.hotspots if hotspot.name == name)


def allowing(**pp: float) -> Thresholds:
    return Thresholds(hotspots_pp=MappingProxyType({"*": 5.0, **pp}))


def spread_by(*offsets: int, centre: int = 300) -> Counts:
    return tuple({"a": centre + i, "b": 1000 - centre - i} for i in offsets)


@pytest.mark.parametrize(
    ("factors", "drift", "frame", "finding", "decision"),
    [
        # A function that costs more in a slower whole.
        ({"rms_norm": 3.0}, "cost", "rms_norm", "costs_more", "regressed"),
        # One got cheaper, the whole faster: the others only weigh more.
        ({"gemv": 0.5}, "cost", "attention", "share_moved", "improved"),
        ({"gemv": 0.5}, "cost", "gemv", "costs_less", "improved"),
        # The same, and drift is not to be excused.
        ({"gemv": 0.5}, "strict", "attention", "share_moved", "regressed"),
        ({"gemv": 0.5}, "strict", "gemv", "costs_less", "regressed"),
        # A faster whole passes, and names the function that got slower.
        ({"gemv": 0.5, "rms_norm": 3.0}, "cost", "rms_norm", "costs_more", "pass"),
        ({"gemv": 0.5, "rms_norm": 3.0}, "strict", "rms_norm", "costs_more", "regressed"),
        # Work that moves from one function to another costs the whole nothing.
        ({"gemv": 0.8, "attention": 1.7}, "cost", "attention", "costs_more", "pass"),
        ({"gemv": 0.8, "attention": 1.7}, "strict", "attention", "costs_more", "regressed"),
        ({"gemv": 0.8, "attention": 1.7}, "cost", "gemv", "costs_less", "pass"),
        # A slower whole pushes the share of what did not change down.
        ({"rms_norm": 9.0}, "cost", "attention", "share_moved", "pass"),
    ],
)
def test_cost_decides_about_a_drift(
    factors: dict[str, float], drift: ShareDrift, frame: str, finding: str, decision: str
) -> None:
    hotspot = named(judged(*changed(**factors), drift=drift), frame)
    assert (hotspot.finding, hotspot.decision) == (finding, decision)
    (reason,) = hotspot.signal.reasons
    assert reason.code == ("E_SHARE_DRIFT" if decision == "regressed" else "I_SHARE_MOVED")
    assert reason.message.startswith(frame)
    excused = reason.message.endswith(
        "functions that are gone or cost less may save as much."
        if finding == "costs_more"
        else "fails only if its function certainly costs more per token."
    )
    assert excused == (decision != "regressed")
    assert hotspot.signal.change_pct == hotspot.share.shift_pp
    assert hotspot.signal.baseline == 100.0 * hotspot.share.baseline_share
    assert hotspot.signal.current == 100.0 * hotspot.share.current_share


def test_a_declared_function_has_its_own_threshold() -> None:
    hotspot = named(judged(*changed(rms_norm=1.6)), "rms_norm")
    assert 0.0 < hotspot.share.shift_pp < 5.0
    assert (hotspot.finding, hotspot.decision, hotspot.reason) == ("costs_more", "pass", None)
    tight = judged(*changed(rms_norm=1.6), thresholds=allowing(rms_norm=1.0))
    assert named(tight, "rms_norm").decision == "regressed"
    exact = judged(*changed(rms_norm=1.6), thresholds=allowing(rms_norm=hotspot.share.shift_pp))
    assert named(exact, "rms_norm").decision == "pass"
    loose = judged(*changed(rms_norm=3.0), thresholds=allowing(rms_norm=50.0))
    assert named(loose, "rms_norm").decision == "pass"
    # Nothing makes up for it, even in a whole that may be slower by as much.
    slow = replace(allowing(), tokens_per_second_pct=50.0)
    for factors in ({"rms_norm": 3.0}, {"rms_norm": 4.0, "gemv": 0.9}):
        assert named(judged(*changed(**factors), thresholds=slow), "rms_norm").decision == (
            "regressed"
        )
    # Only a certain change of the whole has parts.
    parts = [shares.costs[0].explains for shares in (loose, judged(1.0, PROFILE))]
    assert parts == [pytest.approx(1.0, abs=0.03), None]


RENAMED = tuple({**each, "gemv2": each["gemv"], "gemv": 0} for each in PROFILE)
BESIDE = moved(RENAMED, "rms_norm", 90, "gemv2")
SPLIT = tuple({**each, "gemv2": each["gemv"] // 2, "gemv": each["gemv"] // 2} for each in PROFILE)
COPY = moved(PROFILE, "copy", 90, "gemv")


@pytest.mark.parametrize(
    ("before", "after", "factor", "frame", "finding", "decision", "words"),
    [
        # It costs 9 % of a whole that takes as long: the other functions saved as much.
        (PROFILE, COPY, 1.0, "copy", "new", "pass", "may not cost more"),
        # It costs 9 % of a whole that takes 9 % longer: nothing makes up for it.
        (PROFILE, COPY, 1.1, "copy", "new", "regressed", "it is new"),
        # It costs 94 µs more and gemv 59 less, each with its error: together 35 ± 34.7 µs, or
        # 32 ± 34.6 if the whole takes half a percent less.
        (PROFILE, COPY, 1.05, "copy", "new", "regressed", "it is new"),
        (PROFILE, COPY, 1.045, "copy", "new", "inconclusive", "it is new"),
        (COPY, PROFILE, 1.0, "copy", "vanished", "pass", "it is gone"),
        (PROFILE, RENAMED, 1.0, "gemv2", "new", "pass", "may not cost more"),
        (PROFILE, RENAMED, 1.0, "gemv", "vanished", "pass", "it is gone"),
        (PROFILE, SPLIT, 1.0, "gemv2", "new", "pass", "may not cost more"),
        (PROFILE, SPLIT, 1.0, "gemv", "costs_less", "pass", "it costs less"),
        # Renamed, while a function that stays costs more: that one fails.
        (PROFILE, BESIDE, 1.1, "gemv2", "new", "inconclusive", "new (0 → 670 µs). Give it more"),
        (PROFILE, BESIDE, 1.1, "rms_norm", "costs_more", "regressed", "it costs more"),
        # Renamed, and slower by a fifth as well.
        (PROFILE, RENAMED, 1.2, "gemv2", "new", "regressed", "it is new"),
    ],
)
def test_a_new_function_costs_what_gone_and_cheaper_ones_do_not_save(
    before: Counts,
    after: Counts,
    factor: float,
    frame: str,
    finding: str,
    decision: str,
    words: str,
) -> None:
    hotspot = named(judged(factor, after, before=before), frame)
    assert (hotspot.finding, hotspot.decision) == (finding, decision)
    assert hotspot.reason is not None
    assert words in hotspot.reason.message


SAMPLED = moved(PROFILE, "caller", 20, "gemv")
INLINED = tuple(
    {**each, "caller": 20 + each["attention"], "gemv": each["gemv"] - 20, "attention": 0}
    for each in PROFILE
)


@pytest.mark.parametrize(
    ("before", "after", "factor", "frame", "decision"),
    [
        # Two functions are merged into one; the whole takes as long, then 20 % longer.
        (SPLIT, RENAMED, 1.0, "gemv2", "pass"),
        (SPLIT, RENAMED, 0.993, "gemv2", "pass"),
        (SPLIT, RENAMED, 1.2, "gemv2", "regressed"),
        # A function is inlined into its caller, which the base had samples of, or had not.
        (SAMPLED, INLINED, 1.0, "caller", "pass"),
        (PROFILE, INLINED, 1.0, "caller", "pass"),
        (SAMPLED, INLINED, 1.1, "caller", "regressed"),
    ],
)
def test_work_that_moves_into_an_existing_function_is_no_regression(
    before: Counts, after: Counts, factor: float, frame: str, decision: str
) -> None:
    hotspot = named(judged(factor, after, before=before), frame)
    assert hotspot.decision == decision
    assert hotspot.reason is not None
    assert hotspot.reason.code == ("E_SHARE_DRIFT" if decision == "regressed" else "I_SHARE_MOVED")


def test_the_rest_of_the_profile_is_judged_too() -> None:
    small = {f"small{number}": 5 for number in range(16)}
    many = tuple({**each, "gemv": each["gemv"] - 80, **small} for each in PROFILE)
    assert named(judged(1.0, many), OTHER).decision == "pass"
    hotspot = named(judged(1.08, many), OTHER)
    assert hotspot.decision == "regressed"
    assert hotspot.reason is not None
    assert hotspot.reason.message.startswith("The rest of the profile went from 3.9 % to 11.9 %")


# --- drifts that are not certain -----------------------------------------------------------


def test_a_drift_has_to_be_certain_at_one_percent_not_at_two() -> None:
    hotspot = drawn(spread_by(0, 40, -40, 20, -20, centre=400), 75, drift="strict")
    assert 0.01 < hotspot.share.p_adjusted < 0.02
    assert (hotspot.decision, hotspot.more_processes) == ("inconclusive", ("profiled",))
    assert hotspot.reason is not None
    assert hotspot.reason.code == "E_SHARE_UNSETTLED"
    assert hotspot.reason.message.endswith(f"chance with so few samples. {MORE_TIME}")


@pytest.mark.parametrize(
    ("now", "cpu", "drift", "excused"),
    [
        # The cost did not rise, in a faster whole.
        (FASTER_TIMES, None, "cost", True),
        (FASTER_TIMES, None, "strict", False),
        # It did not rise, and the whole is as fast as before.
        (STEADY, Estimate(-0.7, 0.01, 9.0), "cost", True),
        # The whole is faster, and the cost may have risen.
        (FASTER_TIMES, Estimate(0.4, 0.01, 9.0), "cost", True),
    ],
)
def test_a_drift_that_passes_need_not_be_certain(
    now: tuple[float, ...], cpu: Estimate | None, drift: ShareDrift, *, excused: bool
) -> None:
    hotspot = drawn(spread_by(0, 60, -60, 30, -30), 60, now, drift=drift, cpu=cpu)
    assert hotspot.share.p_adjusted > 0.01
    assert hotspot.reason is not None
    assert (hotspot.decision, hotspot.reason.code) == (
        ("pass", "I_SHARE_MOVED") if excused else ("inconclusive", "E_SHARE_UNSETTLED")
    )


def test_a_drift_and_a_cost_are_certain_up_to_the_allowed_error() -> None:
    counts = spread_by(0, 40, -40, 20, -20, centre=400)
    allowed = ErrorRates(drawn(counts, 75).share.p_adjusted)
    assert drawn(counts, 75, drift="strict", rates=allowed).decision == "regressed"
    old, new = read_measurement(baseline(profile=PROFILE)), read_measurement(evidence(profile=COPY))
    p = next(cost.p_adjusted for cost in judge(old, new).costs if cost.name == "gemv")
    for rate, finding in ((p, "costs_less"), (0.999 * p, "unchanged")):
        assert named(judge(old, new, rates=ErrorRates(rate)), "gemv").finding == finding


def test_costs_below_a_microsecond_are_judged_alike() -> None:
    old = read_measurement(baseline(scaled(QUIET, 1e-3, 0.0), PROFILE))
    shares = judge(old, read_measurement(evidence(scaled(QUIET, 1.1e-3, 0.0), BESIDE)))
    new, grown = named(shares, "gemv2"), named(shares, "rms_norm")
    assert (new.finding, new.decision) == ("new", "inconclusive")
    assert (grown.finding, grown.decision) == ("costs_more", "regressed")


@pytest.mark.parametrize(("part", "finding"), [(0.95, "unsettled"), (1.05, "share_moved")])
def test_a_cost_may_rise_by_the_allowed_part_of_the_time_per_token(
    part: float, finding: str
) -> None:
    counts = spread_by(0, 60, -60, 30, -30)
    old = measurement(STEADY, profiles(counts))
    new = measurement((-0.3, -0.31, -0.29), profiles(moved(counts, "a", 150, "b"), first_pid=300))
    cost = next(each for each in judge(old, new).costs if each.name == "a")
    allowed_pct = part * 100.0 * cost.no_more_than_us / 1e6  # of a second per token
    shares = judge(old, new, replace(allowing(), tokens_per_second_pct=allowed_pct))
    assert named(shares, "a").finding == finding


@pytest.mark.parametrize(
    ("by", "now", "cpu", "seconds"),
    [
        # 11.6 points would be certain, and it drifted by 7.5.
        (75, STEADY, None, "4.81"),
        # The interval of the cost reaches 536,273 µs around the 150,000 that it rose by.
        (150, (-0.3, 0.0, 0.3), Estimate(0.0, 0.3, 9.0), "25.6"),
    ],
)
def test_an_open_drift_says_how_long_to_sample(
    by: int, now: tuple[float, ...], cpu: Estimate | None, seconds: str
) -> None:
    before = spread_by(0, 40, -40, 20, -20, centre=400)
    old = replace(measurement(STEADY, profiles(before)), sampled_s=2.0)
    new = measurement(now, profiles(moved(before, "a", by, "b"), first_pid=300))
    drift: ShareDrift = "cost" if cpu else "strict"
    hotspot = named(judge(old, replace(new, sampled_s=2.0), drift=drift, cpu=cpu), "a")
    assert hotspot.reason is not None
    assert f"takes about {seconds} s of samples on each side" in hotspot.reason.message


def test_a_cost_that_is_not_settled_is_reported_and_passes_with_the_whole() -> None:
    hotspot = drawn(spread_by(0, 60, -60, 30, -30), 150, (-0.3, -0.31, -0.29))
    assert (hotspot.finding, hotspot.decision) == ("unsettled", "improved")
    assert hotspot.reason is not None
    assert hotspot.reason.code == "I_SHARE_MOVED"
    assert "whether its cost rose is not settled" in hotspot.reason.message


def test_without_times_a_drift_waits_for_them() -> None:
    _, counts = changed(rms_norm=3.0)
    old = read_measurement(baseline(profile=PROFILE))
    for count, more_processes in ((2, ("timed",)), (3, ("profiled",))):
        few = measurement(STEADY[:count], profiles(counts))
        hotspot = named(judge(old, few), "rms_norm")
        assert hotspot.more_processes == more_processes
        assert (judge(old, few).costs == ()) == (count == 2)


FASTER = RateVerdict("improved", -0.2, -0.1, slower=False, faster=True, detectable=0.02)
SAME = replace(FASTER, decision="pass", faster=False)
OPEN = RateVerdict("inconclusive", -0.2, 0.1, slower=False, faster=False, detectable=0.2)
CHEAPER = CostChange("a", 100.0, 90.0, -10.0, -15.0, -5.0, 0.001, None, no_more_than_us=2.0)
DEARER = replace(CHEAPER, change_us=1.0, p_adjusted=RATES.alpha)
WHOLE = Whole(
    FASTER, 2.0, RATES, "cost", sampled_s=0.0, new_functions_cost=False, functions_cost=False
)
COST = replace(WHOLE, functions_cost=True)


@pytest.mark.parametrize(
    ("cost", "whole", "decision", "more_processes"),
    [
        (CHEAPER, WHOLE, "improved", ()),
        # It may cost exactly the tolerance more, then more than that.
        (CHEAPER, replace(WHOLE, rate=OPEN), "pass", ()),
        (CHEAPER, replace(WHOLE, rate=OPEN, tolerance_us=1.999), "inconclusive", ("profiled",)),
        (CHEAPER, replace(WHOLE, rate=SAME, tolerance_us=1.999), "pass", ()),
        (None, WHOLE, "inconclusive", ("timed",)),
        (CHEAPER, replace(WHOLE, rate=None), "inconclusive", ("timed",)),
        (None, replace(WHOLE, drift="strict"), "regressed", ()),
        # Other functions save as much, or the whole is faster.
        (DEARER, WHOLE, "pass", ()),
        (DEARER, COST, "pass", ()),
        (DEARER, replace(WHOLE, rate=SAME), "pass", ()),
        (DEARER, replace(COST, rate=SAME), "regressed", ()),
        (DEARER, replace(WHOLE, rate=OPEN), "regressed", ()),
        (DEARER, replace(WHOLE, drift="strict"), "regressed", ()),
        (replace(DEARER, p_adjusted=RATES.alpha * 1.001), WHOLE, "improved", ()),
        (replace(DEARER, change_us=0.0), WHOLE, "improved", ()),
    ],
)
def test_a_certain_drift_is_decided_by_the_cost_and_the_whole(
    cost: CostChange | None, whole: Whole, decision: str, more_processes: tuple[str, ...]
) -> None:
    (share,) = (each.share for each in judged(1.0, PROFILE).hotspots if each.name == "gemv")
    assert decide_drift(share, cost, whole) == (decision, more_processes)


# --- shares that were not judged -----------------------------------------------------------


def test_a_threshold_too_fine_for_the_samples_is_reported_for_what_passed() -> None:
    old = measurement(STEADY, profiles(spread_by(0, 60, -60)))
    (reason,) = judge(old, old).reasons
    assert reason.code == "I_SHARES_COARSE"
    assert re.search(
        r"from: b [\d.]+ pp \(5 allowed\), a [\d.]+ pp \(5 allowed\)\. Give", reason.message
    )
    timed = [replace(old, sampled_s=seconds) for seconds in (2.0, 3.0)]
    for one, other in (timed, timed[::-1]):
        (reason,) = judge(one, other).reasons
        assert re.search(
            r"about [\d.]+ s of samples on each side, and there are 2.00 s", reason.message
        )
    # The threshold that most samples miss decides; one that they just reach is not named.
    pp = named(judge(old, old), "a").share.detectable_pp
    for a, b, names, needed in (
        (1.0, 2.0, "b", "8.00"),
        (1.2, 2.0, "ba", "8.00"),
        (1.2, 1.0, "a", "2.88"),
    ):
        (reason,) = judge(timed[0], timed[1], allowing(a=pp / a, b=pp / b)).reasons
        named_there = re.findall(r"(\w) [\d.]+ pp \(", reason.message)
        assert ("".join(named_there), f"about {needed} s of" in reason.message) == (names, True)
    # More than a few minutes of samples are no remedy.
    for sampled_s, advice in (
        (208.0, "Give it more time"),
        (209.0, "Sampling cannot settle it here: "),
    ):
        one = replace(old, sampled_s=sampled_s)
        (reason,) = judge(one, one, allowing(a=pp / 1.2, b=pp)).reasons
        assert f" s. {advice}" in reason.message
    # Of a drift that is open the reason says so already.
    new = measurement(STEADY, profiles(moved(spread_by(0, 60, -60), "a", 60, "b")))
    assert judge(old, new, drift="strict").reasons == ()


@pytest.mark.parametrize(
    ("old", "new", "helped"),
    [(6, 2, ("profiled",)), (3, 2, ("profiled",)), (2, 6, ()), (6, 0, ("profiled",))],
)
def test_few_profiles_judge_nothing(old: int, new: int, helped: tuple[str, ...]) -> None:
    before = measurement(STEADY, profiles(PROFILE[:old]))
    shares = judge(before, measurement(STEADY, profiles(PROFILE[:new])))
    (few,) = shares.reasons
    assert (few.code, shares.hotspots, shares.more_processes) == ("E_FEW_PROCESSES", (), helped)
    assert few.message.endswith(" sets the seconds), or accept a new baseline.")
    # Without any profile only a declared share is missed.
    none = measurement(STEADY)
    absent = Reason("I_NO_PROFILE", "No profile was taken; no share was judged.")
    assert judge(none, none).reasons == (absent,)
    (missed,) = judge(none, none, allowing(gemv=3.0)).reasons
    assert missed.code == "E_FUNCTION_UNKNOWN"
    assert missed.message.startswith("A share is declared for gemv, and nothing was profiled. Ch")


def test_a_declared_function_that_no_profile_shows_is_named_with_those_it_shows() -> None:
    shares = judged(1.0, PROFILE, thresholds=allowing(matmul=3.0, gemv=9.0))
    assert [reason.code for reason in shares.reasons] == ["E_FUNCTION_UNKNOWN"]
    assert shares.reasons[0].message == (
        "matmul is declared with a share and is in neither profile. Functions there: "
        "gemv, attention, rms_norm, tiny. Correct the name in hotspots or counts "
        "(as the tables show it, such as Engine.step), or choose a profiler."
    )


def test_too_few_samples_miss_the_shares_that_are_required() -> None:
    few = "A profile has too few samples, so no share was judged"
    drift = "flamegate_share_drift = strict"
    required = allowing(gemv=3.0, attention=2.0)
    absent = Reason("I_NO_PROFILE", f"{few}.")
    assert leave_shares_open(allowing(), "cost", "E_FEW_SAMPLES") == JudgedShares(reasons=(absent,))
    for shares, names in (
        (leave_shares_open(required, "cost", "E_FEW_SAMPLES"), "attention, gemv"),
        (leave_shares_open(required, "strict", "E_FEW_SAMPLES"), f"attention, gemv, {drift}"),
    ):
        assert shares.reasons == (Reason("E_FEW_SAMPLES", f"{few}, and {names} asks for it."),)
    (cut,) = leave_shares_open(required, "cost", "E_STACKS_CUT").reasons
    assert cut.code == "E_STACKS_CUT"
    assert cut.message.startswith("Most stacks of a profile do not begin in the workload, so no")

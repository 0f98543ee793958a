from __future__ import annotations

from types import MappingProxyType

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.gate import (
    ErrorRates,
    HotspotChange,
    Measurement,
    ShareDrift,
    read_measurement,
)
from pytest_flamegate.gate.hotspots import JudgedShares, judge_shares
from pytest_flamegate.gate.shares import OTHER
from pytest_flamegate.gate.throughput import judge_throughput
from tests.gate.factory import (
    PROFILE,
    QUIET,
    baseline,
    evidence,
    measurement,
    moved,
    profiles,
    scaled,
)

RATES = ErrorRates()
BEFORE = {"gemv": 700.0, "attention": 200.0, "rms_norm": 60.0, "tiny": 2.0}
"""Cost of each frame in µs of the 1000 per token; 38 are the profile's own rest."""
Counts = tuple[dict[str, int], ...]
WIDE = tuple({"a": 400 + i, "b": 600 - i} for i in (0, 180, -180))


def changed(**factors: float) -> tuple[float, Counts]:
    """The factor of the whole and the profiles when each frame costs ``factors`` as much."""
    extra = sum(BEFORE[name] * (factor - 1.0) for name, factor in factors.items())
    whole = 1.0 + extra / 1000.0
    counts = tuple(
        {name: round(n * factors.get(name, 1.0) / whole) for name, n in each.items()}
        for each in PROFILE
    )
    return whole, counts


def judged(
    factor: float,
    counts: Counts,
    *,
    drift: ShareDrift = "cost",
    thresholds: Thresholds | None = None,
    before: Counts = PROFILE,
    current: Measurement | None = None,
) -> JudgedShares:
    old = read_measurement(baseline(profile=before))
    new = current or read_measurement(evidence(scaled(QUIET, factor), counts))
    asked = thresholds or Thresholds()
    _, rate = judge_throughput(old, new, asked.tokens_per_second_pct, RATES)
    return judge_shares(old, new, asked, rate, RATES, drift)


def named(shares: JudgedShares, name: str) -> HotspotChange:
    return next(hotspot for hotspot in shares.hotspots if hotspot.name == name)


def allowing(**pp: float) -> Thresholds:
    return Thresholds(hotspots_pp=MappingProxyType({"*": 5.0, **pp}))


def test_equal_profiles_pass() -> None:
    shares = judged(1.0, PROFILE)
    assert {hotspot.decision for hotspot in shares.hotspots} == {"pass"}
    assert {hotspot.finding for hotspot in shares.hotspots} == {"unchanged"}
    assert shares.reasons == ()


@pytest.mark.parametrize(
    ("factors", "drift", "frame", "finding", "decision", "code"),
    [
        # A function that costs more in a slower whole.
        ({"rms_norm": 3.0}, "cost", "rms_norm", "costs_more", "regressed", "E_SHARE_DRIFT"),
        # One got cheaper, the whole faster: the others only weigh more.
        ({"gemv": 0.5}, "cost", "attention", "share_moved", "improved", "I_SHARE_MOVED"),
        ({"gemv": 0.5}, "cost", "gemv", "costs_less", "improved", "I_SHARE_MOVED"),
        # The same, and drift is not to be excused.
        ({"gemv": 0.5}, "strict", "attention", "share_moved", "regressed", "E_SHARE_DRIFT"),
        ({"gemv": 0.5}, "strict", "gemv", "costs_less", "regressed", "E_SHARE_DRIFT"),
        # A faster whole does not hide a function that got slower.
        (
            {"gemv": 0.5, "rms_norm": 3.0},
            "cost",
            "rms_norm",
            "costs_more",
            "regressed",
            "E_SHARE_DRIFT",
        ),
        # One function's gain is another's loss: nothing excuses the drift.
        (
            {"gemv": 0.8, "attention": 1.7},
            "cost",
            "attention",
            "costs_more",
            "regressed",
            "E_SHARE_DRIFT",
        ),
        (
            {"gemv": 0.8, "attention": 1.7},
            "cost",
            "gemv",
            "costs_less",
            "regressed",
            "E_SHARE_DRIFT",
        ),
        # A slower whole pushes the share of what did not change down.
        ({"rms_norm": 9.0}, "cost", "attention", "share_moved", "regressed", "E_SHARE_DRIFT"),
    ],
)
def test_drift_is_told_apart_by_cost(
    factors: dict[str, float],
    drift: ShareDrift,
    frame: str,
    finding: str,
    decision: str,
    code: str,
) -> None:
    hotspot = named(judged(*changed(**factors), drift=drift), frame)
    assert (hotspot.finding, hotspot.decision) == (finding, decision)
    assert hotspot.reason is not None
    assert hotspot.reason.code == code
    assert frame in hotspot.reason.message


def test_a_drift_below_the_threshold_passes_and_is_still_found() -> None:
    hotspot = named(judged(*changed(rms_norm=1.6)), "rms_norm")
    assert hotspot.share.shift_pp < 5.0
    assert (hotspot.finding, hotspot.decision, hotspot.reason) == ("costs_more", "pass", None)


def test_a_declared_frame_has_its_own_threshold() -> None:
    tight = judged(*changed(rms_norm=1.6), thresholds=allowing(rms_norm=1.0))
    assert named(tight, "rms_norm").decision == "regressed"
    loose = judged(*changed(rms_norm=3.0), thresholds=allowing(rms_norm=50.0))
    assert named(loose, "rms_norm").decision == "pass"


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        (PROFILE, moved(PROFILE, "copy", 90, "gemv"), "new"),
        (moved(PROFILE, "copy", 90, "gemv"), PROFILE, "vanished"),
    ],
)
def test_new_and_vanished_frames_are_named(before: Counts, after: Counts, finding: str) -> None:
    hotspot = named(judged(1.0, after, before=before), "copy")
    assert (hotspot.finding, hotspot.decision) == (finding, "regressed")
    assert hotspot.reason is not None
    assert {"new": "it is new", "vanished": "it is gone"}[finding] in hotspot.reason.message


def test_the_rest_of_the_profile_is_judged_too() -> None:
    many = tuple(
        {**each, "gemv": each["gemv"] - 80, **{f"small{i}": 5 for i in range(16)}}
        for each in PROFILE
    )
    hotspot = named(judged(1.0, many), OTHER)
    assert hotspot.decision == "regressed"
    assert hotspot.reason is not None
    assert hotspot.reason.message.startswith("The rest of the profile went from 3.9 % to 11.9 %")


def test_a_shift_that_chance_could_make_is_inconclusive() -> None:
    old = measurement([0.0, 0.01, -0.01], profiles(WIDE))
    new = measurement([0.0, 0.01, -0.01], profiles(moved(WIDE, "a", 80, "b"), first_pid=300))
    _, rate = judge_throughput(old, new, 5.0, RATES)
    hotspot = named(judge_shares(old, new, Thresholds(), rate, RATES, "cost"), "a")
    assert (hotspot.decision, hotspot.helped_by) == ("inconclusive", ("profiled",))
    assert hotspot.reason is not None
    assert hotspot.reason.code == "E_SHARE_UNSETTLED"


def test_a_drift_has_to_be_certain_at_one_percent_not_at_five() -> None:
    wide = tuple({"a": 400 + i, "b": 600 - i} for i in (0, 40, -40, 20, -20))
    old = measurement([0.0, 0.01, -0.01], profiles(wide))
    new = measurement([0.0, 0.01, -0.01], profiles(moved(wide, "a", 65, "b")))
    _, rate = judge_throughput(old, new, 5.0, RATES)
    hotspot = named(judge_shares(old, new, Thresholds(), rate, RATES, "cost"), "a")
    assert 0.01 < hotspot.share.p_adjusted < 0.05
    assert hotspot.decision == "inconclusive"


def test_an_excuse_waits_for_a_whole_that_may_be_faster() -> None:
    _, counts = changed(gemv=0.5)
    base = measurement([-0.01, 0.0, 0.01], profiles(PROFILE))
    noisy = measurement((-0.5, 0.3, -0.9, 0.1), profiles(counts))
    _, rate = judge_throughput(base, noisy, 5.0, RATES)
    hotspot = named(judge_shares(base, noisy, Thresholds(), rate, RATES, "cost"), "attention")
    assert (hotspot.decision, hotspot.helped_by) == ("inconclusive", ("timed",))


def test_an_excuse_does_not_wait_for_a_whole_that_looks_slower() -> None:
    _, counts = changed(gemv=0.5)
    base = measurement([-0.01, 0.0, 0.01], profiles(PROFILE))
    noisy = measurement((0.5, -0.3, 0.9, 0.1), profiles(counts))
    _, rate = judge_throughput(base, noisy, 5.0, RATES)
    assert rate is not None
    assert rate.decision == "inconclusive"
    shares = judge_shares(base, noisy, Thresholds(), rate, RATES, "cost")
    assert named(shares, "attention").decision == "regressed"


def test_an_excuse_waits_for_a_cost_that_is_not_settled() -> None:
    wide = tuple({"a": 300 + i, "b": 700 - i} for i in (0, 60, -60, 30, -30))
    raised = moved(wide, "a", 150, "b")
    old = measurement([0.0, 0.01, -0.01], profiles(wide))
    new = measurement([-0.3, -0.31, -0.29], profiles(raised))
    _, rate = judge_throughput(old, new, 5.0, RATES)
    hotspot = named(judge_shares(old, new, Thresholds(), rate, RATES, "cost"), "a")
    assert hotspot.finding == "unsettled"
    assert (hotspot.decision, hotspot.helped_by) == ("inconclusive", ("profiled",))
    assert hotspot.reason is not None
    assert hotspot.reason.code == "E_SHARE_UNSETTLED"


@pytest.mark.parametrize(
    ("drift", "decision", "code"),
    [("cost", "pass", "I_SHARE_MOVED"), ("strict", "inconclusive", "E_SHARE_UNSETTLED")],
)
def test_a_drift_that_would_be_excused_need_not_be_certain(
    drift: ShareDrift, decision: str, code: str
) -> None:
    wide = tuple({"a": 300 + i, "b": 700 - i} for i in (0, 60, -60, 30, -30))
    old = measurement([0.0, 0.01, -0.01], profiles(wide))
    new = measurement([-0.5, -0.51, -0.49], profiles(moved(wide, "a", 60, "b")))
    _, rate = judge_throughput(old, new, 5.0, RATES)
    hotspot = named(judge_shares(old, new, Thresholds(), rate, RATES, drift), "a")
    assert hotspot.decision == decision
    assert hotspot.reason is not None
    assert hotspot.reason.code == code


def test_without_times_a_drift_waits_for_them() -> None:
    _, counts = changed(rms_norm=3.0)
    one = measurement([0.0], profiles(counts))
    hotspot = named(judged(1.0, counts, current=one), "rms_norm")
    assert hotspot.cost is None
    assert (hotspot.decision, hotspot.helped_by) == ("inconclusive", ("timed",))


@pytest.mark.parametrize(
    ("old", "new", "helped"), [(6, 2, ("profiled",)), (2, 6, ()), (6, 0, ("profiled",))]
)
def test_few_profiles_judge_nothing(old: int, new: int, helped: tuple[str, ...]) -> None:
    before = measurement([0.0, 0.1, 0.2], profiles(PROFILE[:old]))
    after = measurement([0.0, 0.1, 0.2], profiles(PROFILE[:new]))
    shares = judge_shares(before, after, Thresholds(), None, RATES, "cost")
    assert [reason.code for reason in shares.reasons] == ["E_FEW_PROCESSES"]
    assert (shares.hotspots, shares.helped_by) == ((), helped)


@pytest.mark.parametrize(
    ("thresholds", "code"),
    [(Thresholds(), "I_NO_PROFILE"), (allowing(gemv=3.0), "E_HOTSPOT_UNKNOWN")],
)
def test_without_profiles_only_a_declared_share_is_missed(
    thresholds: Thresholds, code: str
) -> None:
    bare = measurement([0.0, 0.1, 0.2])
    shares = judge_shares(bare, bare, thresholds, None, RATES, "cost")
    assert [reason.code for reason in shares.reasons] == [code]


def test_a_declared_frame_that_nobody_saw_is_named_with_those_seen() -> None:
    shares = judged(1.0, PROFILE, thresholds=allowing(matmul=3.0, gemv=9.0))
    assert [reason.code for reason in shares.reasons] == ["E_HOTSPOT_UNKNOWN"]
    assert shares.reasons[0].message == (
        "matmul is declared with a share and is in neither profile. Functions there: "
        "gemv, attention, rms_norm, tiny. Correct the name in hotspots."
    )

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.gate import Verdict
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import (
    AGAIN,
    PROFILE,
    QUIET,
    baseline,
    evidence,
    judge_stored,
    moved,
    run,
    scaled,
)

NOISY = (1001.5, 1200.0, 900.0, 1100.0, 950.0, 1050.0)
SAME = AGAIN
SLOW = scaled(QUIET, 1.2)
FAST = scaled(QUIET, 0.7)
DRIFTED = moved(PROFILE, "rms_norm", 90, "gemv")
Counts = tuple[dict[str, int], ...]
WIDE = tuple({"gemv": 700 + i, "attention": 300 - i} for i in (0, 150, -150, 80, -80, 100))
WIDER = moved(WIDE, "attention", 70, "gemv")


def judged(
    old: Evidence | None, new: Evidence, thresholds: Thresholds | None = None, **options: Any
) -> Verdict:
    return judge_stored(old, new, thresholds or Thresholds(), **options)


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("times", "before", "after", "verdict", "first"),
    [
        (SAME, None, None, "pass", "I_WITHIN_THRESHOLD"),
        (SAME, PROFILE, PROFILE, "pass", "I_WITHIN_THRESHOLD"),
        (SLOW, None, None, "regressed", "E_SLOWER"),
        (FAST, None, None, "improved", "I_FASTER"),
        (NOISY, None, None, "inconclusive", "E_NOISE"),
        # Certain harm outweighs anything else.
        (SAME, PROFILE, DRIFTED, "regressed", "E_SHARE_DRIFT"),
        (SLOW, PROFILE, DRIFTED, "regressed", "E_SLOWER"),
        (FAST, PROFILE, DRIFTED, "regressed", "E_SHARE_DRIFT"),
        (SLOW, WIDE, WIDER, "regressed", "E_SLOWER"),
        # An open question outweighs an improvement and a pass.
        (FAST, WIDE, WIDER, "inconclusive", "E_SHARE_UNSETTLED"),
        (SAME, WIDE, WIDER, "inconclusive", "E_SHARE_UNSETTLED"),
        (SAME, PROFILE, PROFILE[:2], "inconclusive", "E_FEW_PROCESSES"),
        (FAST, PROFILE, PROFILE[:2], "inconclusive", "E_FEW_PROCESSES"),
        (SLOW, PROFILE, PROFILE[:2], "regressed", "E_SLOWER"),
        (FAST, PROFILE, PROFILE, "improved", "I_FASTER"),
    ],
)
def test_what_outweighs_what(
    times: tuple[float, ...],
    before: Counts | None,
    after: Counts | None,
    verdict: str,
    first: str,
) -> None:
    found = judged(baseline(profile=before), evidence(times, after))
    assert (found.verdict, codes(found)[0]) == (verdict, first)


def test_a_noisy_rate_beside_a_certain_drift_is_a_regression() -> None:
    noisy_slower = tuple(time * 1.1 for time in NOISY)
    found = judged(baseline(profile=PROFILE), evidence(noisy_slower, DRIFTED))
    assert found.verdict == "regressed"
    assert codes(found)[0] == "E_SHARE_DRIFT"
    assert "E_NOISE" in codes(found)


def test_a_drift_in_a_faster_whole_improves_unless_strict() -> None:
    halved = tuple(
        {name: round(n * (0.5 if name == "gemv" else 1.0) / 0.65) for name, n in each.items()}
        for each in PROFILE
    )
    new = evidence(scaled(QUIET, 0.65), halved)
    assert judged(baseline(profile=PROFILE), new).verdict == "improved"
    strict = judged(baseline(profile=PROFILE), new, share_drift="strict")
    assert strict.verdict == "regressed"
    assert codes(strict)[0] == "E_SHARE_DRIFT"


def test_an_unknown_hotspot_keeps_the_verdict_open_and_more_does_not_help() -> None:
    thresholds = Thresholds(hotspots_pp=MappingProxyType({"matmul": 3.0}))
    found = judged(baseline(profile=PROFILE), evidence(SAME, PROFILE), thresholds)
    assert (found.verdict, codes(found)[0]) == ("inconclusive", "E_HOTSPOT_UNKNOWN")
    assert not found.more_processes


def test_a_verdict_holds_everything_it_was_reached_by() -> None:
    found = judged(baseline(profile=PROFILE), evidence(SLOW, PROFILE), analyses=3)
    assert [signal.name for signal in found.signals] == [
        "tokens_per_second",
        "tokens_per_second_wall",
        "share:gemv",
        "share:attention",
        "share:rms_norm",
        "share:(other)",
    ]
    assert found.grade == "OBSERVED"
    assert found.comparability.comparable
    assert (found.baseline_processes, found.current_processes) == (6, 6)
    assert found.false_alarm_rate is None
    assert found.error_rate_basis == (
        "not calibrated. The rule allows 1 % false alarms for tokens per second, as many for all "
        "shares together, and 5 % misses, spent over 3 analyses"
    )
    assert found.smallest_detectable_pct == found.signals[0].smallest_detectable_pct
    assert found.attribution[0].name == "gemv"
    share = found.signal("share:gemv")
    assert share is not None
    assert (share.unit, share.threshold_pct) == ("share_pct", 5.0)
    assert share.baseline == pytest.approx(69.9, abs=0.1)


@pytest.mark.parametrize(
    "old",
    [
        evidence(),
        evidence(nonce="edited"),  # the same times under another name
        baseline(AGAIN[:3] + scaled(QUIET[3:], 1.1)),  # three processes copied
        evidence(SLOW, nonce="current", first_pid=300),  # other times, the same run's nonce
    ],
)
def test_a_copied_baseline_is_dishonest(old: Evidence) -> None:
    found = judged(old, evidence())
    assert (found.verdict, codes(found)) == ("dishonest", ["E_COPIED_BASELINE"])


def test_copying_outweighs_being_incomparable() -> None:
    found = judged(evidence(model_sha256=None), evidence())
    assert found.verdict == "dishonest"


@pytest.mark.parametrize("times", [SAME, SLOW, FAST])
def test_what_differs_neither_passes_nor_fails(times: tuple[float, ...]) -> None:
    found = judged(baseline(), evidence(times, model_sha256="b" * 64, clock_scope="process"))
    assert found.verdict == "not_comparable"
    assert codes(found) == ["E_MODEL_DIFFERS", "E_CLOCK_DIFFERS"]
    assert not found.comparability.comparable
    assert not found.more_processes


def test_another_state_of_the_machine_is_not_comparable_and_may_pass_by() -> None:
    found = judged(baseline(), evidence(SLOW, process={"pressure": 90.0}))
    assert (found.verdict, codes(found)) == ("not_comparable", ["E_MACHINE_STATE"])
    assert {signal.decision for signal in found.signals} == {"not_comparable", "not_gated"}
    assert found.signals[0].change_pct is None
    more = found.more_processes
    assert (more.timed, more.profiled) == (True, False)


ZERO = Interval(0, 0, 0)
NAN = Interval(math.nan, 1, 0)  # type: ignore[arg-type]


def spoiled(interval: Interval, made: Evidence) -> Evidence:
    first = made.runs[0]
    block = replace(first.blocks[0], interval=interval)
    return replace(made, runs=(replace(first, blocks=(block,)), *made.runs[1:]))


CONSTANT = tuple(replace(run(i, 1000.0), blocks=run(1, 1000.5).blocks) for i in range(5))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (baseline(), spoiled(ZERO, evidence(SAME)), "E_IMPOSSIBLE_FIGURE"),
        (baseline(), spoiled(NAN, evidence(SAME)), "E_IMPOSSIBLE_FIGURE"),
        (spoiled(ZERO, baseline()), evidence(SAME), "E_IMPOSSIBLE_FIGURE"),
        (spoiled(NAN, baseline()), evidence(SAME), "E_IMPOSSIBLE_FIGURE"),
        (baseline(), replace(evidence(), runs=CONSTANT), "E_REPEATED_SAMPLES"),
        (baseline(QUIET[:2]), evidence(SAME), "E_FEW_PROCESSES"),
        (baseline(), evidence(SAME[:2]), "E_FEW_PROCESSES"),
        (
            baseline(profile=PROFILE),
            evidence(SAME, [{}, {}, {"gemv": 2000}]),
            "E_IMPOSSIBLE_FIGURE",
        ),
        (None, spoiled(ZERO, evidence()), "E_IMPOSSIBLE_FIGURE"),
    ],
)
def test_bad_numbers_are_a_named_refusal(old: Evidence | None, new: Evidence, code: str) -> None:
    found = judged(old, new)
    assert (found.verdict, codes(found)[0]) == ("inconclusive", code)


def test_an_empty_side_is_never_a_pass() -> None:
    for old, new in ((baseline(()), evidence()), (baseline(), evidence(()))):
        assert judged(old, new).verdict in {"inconclusive", "not_comparable"}
    assert judged(None, evidence(())).verdict == "inconclusive"


def test_without_a_baseline_the_rates_are_shown() -> None:
    found = judged(None, evidence())
    assert (found.verdict, codes(found)) == ("no_baseline", ["E_NO_BASELINE"])
    assert found.signals[0].current == pytest.approx(1000.0, rel=1e-3)
    assert found.signals[0].baseline is None
    assert found.signals[0].decision == "no_baseline"


def test_a_run_too_short_to_be_a_baseline_is_told_so() -> None:
    assert codes(judged(None, evidence(QUIET[:2]))) == ["E_NO_BASELINE", "E_FEW_PROCESSES"]

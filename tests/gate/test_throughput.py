"""Tokens per second against a stored baseline: decisions, views, batches and their limits."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from pytest_flamegate.gate import rule, throughput
from pytest_flamegate.gate.measurement import Measurement, read_measurement
from pytest_flamegate.gate.rule import ErrorRates, Signal
from tests.gate.factory import (
    QUIET,
    WORKLOAD,
    baseline,
    evidence,
    measurement,
    scaled,
)

ONCE = ErrorRates()
NOISY = (0.0, 0.05, -0.05, 0.03, -0.03, 0.02)


def noisy(factor: float, centre: float = 0.0) -> Measurement:
    return measurement([centre + factor * value for value in NOISY])


def judged(factor: float, drop_pct: float = 5.0, **process: float) -> Signal:
    old = read_measurement(baseline())
    new = read_measurement(evidence(scaled(QUIET, factor), process=process))
    return throughput.judge_throughput(old, new, drop_pct, ONCE)[0]


def codes(signal: Signal) -> list[str]:
    return [reason.code for reason in signal.reasons]


def test_the_change_is_one_of_tokens_per_second() -> None:
    signal = judged(1.25)
    low, change, high = (
        value or 0.0 for value in (signal.ci_low_pct, signal.change_pct, signal.ci_high_pct)
    )
    assert change == pytest.approx(-20.0, abs=0.05)
    assert low < change < high < 0.0
    assert signal.baseline == pytest.approx(1000.0, rel=1e-3)
    assert signal.current == pytest.approx(800.0, rel=1e-3)
    assert (signal.threshold_pct, signal.unit) == (5.0, "tokens/s")
    assert signal.reasons[0].message == (
        f"Tokens per second: 20.0 % slower ({-high:.1f} … {-low:.1f} %); a drop of 5 % is allowed."
    )
    certain, noise = judged(1.035).reasons[0].message, judged(1.0, 0.1).reasons[0].message
    assert "certainly slower, and certainly by less than the 5 %" in certain
    assert noise.endswith(", so neither a drop of 0.1 % nor its absence is shown.")
    # A slower machine is no slower engine.
    slow = judged(1.06, reference_us=5300.0)
    assert slow.decision == "pass"
    assert slow.change_pct == pytest.approx(0.0, abs=0.1)
    assert slow.current == pytest.approx(1000.0 / 1.06, rel=1e-3)
    assert (slow.reasons[1].code, slow.reasons[1].message) == (
        "I_MACHINE_SPEED",
        "The reference kernel ran 5.7 % slower than at the baseline. "
        "The change is corrected for it.",
    )
    assert "I_MACHINE_SPEED" not in codes(judged(1.0, reference_us=5045.0))


def test_drift_is_larger_without_a_reference_and_with_one_that_moved() -> None:
    bare, same, far = (
        read_measurement(evidence(process={"reference_us": us})) for us in (None, 5000.0, 6000.0)
    )
    plain = 2 * throughput.BATCH_DRIFT_SD**2
    without = 2 * throughput.BATCH_DRIFT_SD_WITHOUT_REFERENCE**2
    moved = plain + (throughput.REFERENCE_LEAK * math.log(1.2)) ** 2
    for old, new, variance, shift in (
        (same, bare, without, None),
        (bare, same, without, None),
        (same, same, plain, 0.0),
        (same, far, moved, math.log(1.2)),
        (far, same, moved, -math.log(1.2)),
    ):
        (view,) = throughput.compare_log_times(old, new)
        assert view.drift_variance == pytest.approx(variance)
        assert throughput.reference_shift(old, new) == (
            shift if shift is None else pytest.approx(shift)
        )
    # It is not known which clock holds still, unless both engines follow the reference.
    for old, new in ((same, replace(far, reference_follows=False)), (bare, same)):
        assert len(throughput.compare_log_times(old, new)) == (2 if old is same else 1)


SAME = (0.1,) * 5


@pytest.mark.parametrize(
    ("old", "new", "code", "helped"),
    [
        (NOISY, NOISY[:2], "E_FEW_PROCESSES", ("timed",)),
        (NOISY[:3], NOISY[:2], "E_FEW_PROCESSES", ("timed",)),
        (NOISY[:2], NOISY, "E_FEW_PROCESSES", ()),
        (NOISY[:1], NOISY[:1], "E_FEW_PROCESSES", ()),
        (SAME, NOISY, "E_REPEATED_SAMPLES", ()),
        (NOISY, SAME, "E_REPEATED_SAMPLES", ()),
    ],
)
def test_few_or_constant_processes_decide_nothing(
    old: tuple[float, ...], new: tuple[float, ...], code: str, helped: tuple[str, ...]
) -> None:
    signal, rate = throughput.judge_throughput(measurement(old), measurement(new), 5.0, ONCE)
    assert (rate, signal.decision, signal.change_pct) == (None, "inconclusive", None)
    assert (codes(signal), signal.more_processes, signal.threshold_pct) == ([code], helped, 5.0)
    words = r"The baseline side has \d .* needs 3\. Accept a new baseline \(--"
    if helped:
        words = r"The current side has 2 .* needs 3\. Give it more time \(--"
    assert re.match(words, signal.reasons[0].message) or code == "E_REPEATED_SAMPLES"


@pytest.mark.parametrize(
    ("old", "new", "helped"),
    [
        (noisy(1 / 20), noisy(2), True),
        (noisy(3), noisy(1 / 20), False),
        # With the baseline's spread alone 0.4 of the threshold is not decided, zero is.
        (noisy(1.2), noisy(3, 0.018), True),
        # A large change may be settled although none at zero could be.
        (noisy(3), noisy(12, 0.25), True),
        (noisy(3), noisy(12), False),
        # Only the drift between batches keeps this open.
        (measurement([value / 1e3 for value in NOISY]), noisy(9, 0.05), True),
    ],
)
def test_more_processes_help_if_the_baseline_allows_a_decision(
    old: Measurement, new: Measurement, *, helped: bool
) -> None:
    signal, _ = throughput.judge_throughput(old, new, 5.0, ONCE)
    assert signal.decision == "inconclusive"
    assert signal.more_processes == (("timed",) if helped else ())
    assert ("E_BASELINE_TOO_WIDE" in codes(signal)) is not helped


def test_waiting_is_mentioned_from_a_fifth_of_the_time_on() -> None:
    assert "I_WAITING" not in codes(judged(1.0, waiting_us=190.0))
    signal = judged(1.0, waiting_us=210.0)
    assert codes(signal)[-1] == "I_WAITING"
    assert signal.reasons[-1].message.startswith("21 % of the scheduler-adjusted time")


# --- engines that do not follow the reference ----------------------------------------------


def view(decision: Any, *, certain: bool = False, at: float = 0.0) -> rule.RateVerdict:
    return rule.RateVerdict(decision, at - 1.0, at + 1.0, certain, certain, 2.0 + at)


@pytest.mark.parametrize(
    ("one", "other", "decision"),
    [
        ("pass", "pass", "pass"),
        ("regressed", "regressed", "regressed"),
        ("improved", "improved", "improved"),
        ("pass", "improved", "pass"),
        ("pass", "regressed", "inconclusive"),
        ("improved", "regressed", "inconclusive"),
        ("pass", "inconclusive", "inconclusive"),
    ],
)
def test_only_a_decision_of_all_views_counts(one: str, other: str, decision: str) -> None:
    assert throughput.combine_views([view(one), view(other)]).decision == decision
    assert throughput.combine_views([view(other), view(one)]).decision == decision


def test_views_are_combined_to_the_wider_bounds() -> None:
    found = throughput.combine_views([view("pass", certain=True), view("pass", at=0.5)])
    assert (found.low, found.high, found.detectable) == (-1.0, 1.5, 2.5)
    assert (found.slower, found.faster) == (False, False)
    both = throughput.combine_views([view("pass", certain=True)] * 2)
    assert (both.slower, both.faster) == (True, True)


@pytest.mark.parametrize(
    ("time", "reference", "decision"),
    [
        (1.0, 1.0, "pass"),
        (1.0, 0.85, "inconclusive"),  # a faster machine, an engine that did not notice
        (1.15, 1.15, "inconclusive"),
        (1.15, 0.97, "regressed"),
        (0.85, 1.0, "improved"),
    ],
)
def test_an_engine_that_may_not_follow_the_reference(
    time: float, reference: float, decision: str
) -> None:
    command = {**WORKLOAD, "engine": "command"}
    process = {"reference_us": 5000.0 * reference}
    old = read_measurement(baseline(workload=command))
    new = read_measurement(evidence(scaled(QUIET, time), workload=command, process=process))
    signal, rate = throughput.judge_throughput(old, new, 5.0, ONCE)
    assert signal.decision == decision
    assert rate is not None
    assert rate.low <= math.log(time) <= rate.high
    told = [each.message for each in signal.reasons if each.code == "I_MACHINE_SPEED"]
    assert len(told) == (reference != 1.0)
    assert all("judged with this correction and without" in message for message in told)


# --- words ---------------------------------------------------------------------------------


def test_words() -> None:
    changes = (-6.24, 1.0, 0.04, -0.04, 0.05, -0.06)
    assert [rule.describe_rate_change(change) for change in changes] == [
        *("6.2 % slower", "1.0 % faster", "unchanged", "unchanged", "0.1 % faster"),
        "0.1 % slower",
    ]
    assert rule.describe_interval(-7.4, -5.1) == rule.describe_interval(5.1, 7.4) == "5.1 … 7.4 %"
    assert rule.describe_interval(0.0, 2.0) == "unchanged … 2.0 % faster"
    assert rule.describe_interval(-1.0, 2.0) == "1.0 % slower … 2.0 % faster"
    assert rule.describe_us(2890.0) == "2,890 µs"
    names = (rule.list_names("abcdef"[:count]) for count in (0, 5, 6))
    assert [*names] == ["none", "a, b, c, d, e", "a, b, c, d, e, …"]
    for drop in (0.5, 99.0):
        assert rule.rate_change_pct(rule.log_time_of_drop(drop)) == pytest.approx(-drop)
    assert math.isfinite(rule.rate_change_pct(-1e6))
    assert rule.rate_change_pct(1e6) == -100.0

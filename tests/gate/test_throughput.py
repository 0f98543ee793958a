from __future__ import annotations

import math

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate import ErrorRates, Signal, read_measurement
from pytest_flamegate.gate.throughput import (
    BATCH_DRIFT_SD,
    BATCH_DRIFT_SD_WITHOUT_REFERENCE,
    compare_log_times,
    judge_throughput,
)
from pytest_flamegate.gate.ungated import wall_signal
from tests.gate.factory import QUIET, WORKLOAD, baseline, evidence, measurement, pair, scaled

ONCE = ErrorRates()
NOISY = (0.0, 0.05, -0.05, 0.03, -0.03, 0.02)


def judged(factor: float, drop_pct: float = 5.0) -> Signal:
    old, new = map(read_measurement, pair(factor))
    return judge_throughput(old, new, drop_pct, ONCE)[0]


@pytest.mark.parametrize(
    ("factor", "drop_pct", "decision", "code"),
    [
        (1.0, 5.0, "pass", "I_WITHIN_THRESHOLD"),
        (1.03, 5.0, "pass", "I_WITHIN_THRESHOLD"),
        (1.035, 5.0, "pass", "I_WITHIN_THRESHOLD"),
        (1.048, 5.0, "regressed", "E_SLOWER"),
        (1.2, 5.0, "regressed", "E_SLOWER"),
        (0.95, 5.0, "improved", "I_FASTER"),
        (0.985, 5.0, "pass", "I_WITHIN_THRESHOLD"),
        (1.03, 2.0, "regressed", "E_SLOWER"),
        (1.2, 50.0, "pass", "I_WITHIN_THRESHOLD"),
        (1.0, 0.1, "inconclusive", "E_NOISE"),
    ],
)
def test_decisions(factor: float, drop_pct: float, decision: str, code: str) -> None:
    signal = judged(factor, drop_pct)
    assert (signal.decision, signal.reasons[0].code) == (decision, code)


def test_the_change_is_one_of_tokens_per_second() -> None:
    signal = judged(1.25)
    assert signal.change_pct is not None
    assert signal.change_pct == pytest.approx(-20.0, abs=0.05)
    assert signal.ci_low_pct is not None
    assert signal.ci_high_pct is not None
    assert signal.ci_low_pct < signal.change_pct < signal.ci_high_pct < 0.0
    assert signal.baseline == pytest.approx(1000.0, rel=1e-3)
    assert signal.current == pytest.approx(800.0, rel=1e-3)
    assert signal.threshold_pct == 5.0
    assert (signal.unit, signal.direction) == ("tokens/s", "higher_is_better")


def test_the_smallest_detectable_drop_follows_the_spread() -> None:
    quiet = judged(1.0).smallest_detectable_pct
    noisy = judge_throughput(measurement(NOISY), measurement(NOISY), 5.0, ONCE)[0]
    assert quiet is not None
    assert noisy.smallest_detectable_pct is not None
    assert 1.0 < quiet < 4.0 < noisy.smallest_detectable_pct < 20.0


def test_the_drift_between_batches_bounds_what_can_be_seen() -> None:
    # Endless, noiseless processes still differ by the drift of two batches.
    tight = measurement([i * 1e-7 for i in range(40)])
    estimate = compare_log_times(tight, tight)[0].estimate
    assert estimate.standard_error == pytest.approx(BATCH_DRIFT_SD * math.sqrt(2), rel=1e-3)


def test_drift_is_larger_without_a_reference() -> None:
    bare = read_measurement(evidence(process={"reference_us": None}))
    referenced = read_measurement(evidence())
    for old, new, sd in (
        (bare, bare, BATCH_DRIFT_SD_WITHOUT_REFERENCE),
        (referenced, bare, BATCH_DRIFT_SD_WITHOUT_REFERENCE),
        (referenced, referenced, BATCH_DRIFT_SD),
    ):
        variance = compare_log_times(old, new)[0].drift_variance
        assert variance == pytest.approx(2 * sd**2)


@pytest.mark.parametrize(
    ("old", "new", "helped"), [(6, 2, True), (3, 2, True), (2, 6, False), (1, 1, False)]
)
def test_few_processes_decide_nothing(old: int, new: int, *, helped: bool) -> None:
    before = read_measurement(baseline(QUIET[:old]))
    after = read_measurement(evidence(scaled(QUIET, 3.0)[:new]))
    signal, rate = judge_throughput(before, after, 5.0, ONCE)
    assert rate is None
    assert signal.decision == "inconclusive"
    assert signal.reasons[0].code == "E_FEW_PROCESSES"
    assert signal.change_pct is None
    assert bool(signal.helped_by) is helped


@pytest.mark.parametrize(("old", "new"), [((0.1,) * 5, NOISY), (NOISY, (0.1,) * 5)])
def test_constant_processes_are_refused(old: tuple[float, ...], new: tuple[float, ...]) -> None:
    with pytest.raises(UndecidedError) as refusal:
        compare_log_times(measurement(old), measurement(new))
    assert refusal.value.code == "E_REPEATED_SAMPLES"
    signal, rate = judge_throughput(measurement(old), measurement(new), 5.0, ONCE)
    assert (signal.decision, signal.helped_by, rate) == ("inconclusive", (), None)


def test_noise_on_the_current_side_is_helped_by_more_processes() -> None:
    calm = measurement([x / 20 for x in NOISY])
    signal, _ = judge_throughput(calm, measurement([2 * x for x in NOISY]), 5.0, ONCE)
    assert (signal.decision, signal.helped_by) == ("inconclusive", ("timed",))


def test_noise_on_the_baseline_is_not() -> None:
    calm = measurement([x / 20 for x in NOISY])
    signal, _ = judge_throughput(measurement([3 * x for x in NOISY]), calm, 5.0, ONCE)
    assert (signal.decision, signal.helped_by) == ("inconclusive", ())
    assert "E_BASELINE_TOO_WIDE" in [reason.code for reason in signal.reasons]


def test_more_processes_may_move_the_estimate_to_where_it_decides() -> None:
    # With the baseline's spread alone 0.4 of the threshold could not be decided, zero could.
    old = measurement([1.2 * x for x in NOISY])
    new = measurement([0.018 + 3 * x for x in NOISY])
    signal, _ = judge_throughput(old, new, 5.0, ONCE)
    assert (signal.decision, signal.helped_by) == ("inconclusive", ("timed",))


def test_a_large_change_may_be_settled_where_none_could_be() -> None:
    old = measurement([3 * x for x in NOISY])
    new = measurement([0.25 + 12 * x for x in NOISY])
    signal, _ = judge_throughput(old, new, 5.0, ONCE)
    assert (signal.decision, signal.helped_by) == ("inconclusive", ("timed",))
    unmoved, _ = judge_throughput(old, measurement([12 * x for x in NOISY]), 5.0, ONCE)
    assert (unmoved.decision, unmoved.helped_by) == ("inconclusive", ())


# How the time per token and the reference moved, and what an engine of which it is not
# known whether it follows the reference may be told.
MOVED = [
    (1.0, 1.0, "pass"),
    (1.0, 0.85, "inconclusive"),  # a faster machine, an engine that did not notice: no slowdown
    (1.0, 1.15, "pass"),
    (1.15, 1.15, "inconclusive"),
    (1.15, 1.0, "regressed"),
    (1.15, 0.97, "regressed"),
    (1.15, 1.05, "regressed"),
    (0.85, 1.0, "improved"),
    (0.98, 1.02, "pass"),
]


@pytest.mark.parametrize(("time", "reference", "decision"), MOVED)
def test_an_engine_that_may_not_follow_the_reference(
    time: float, reference: float, decision: str
) -> None:
    command = {**WORKLOAD, "engine": "command"}
    old = read_measurement(baseline(workload=command))
    new = read_measurement(
        evidence(
            scaled(QUIET, time), workload=command, process={"reference_us": 5000.0 * reference}
        )
    )
    signal, rate = judge_throughput(old, new, 5.0, ONCE)
    assert signal.decision == decision
    assert rate is not None
    assert rate.low <= math.log(time) <= rate.high
    moved = [reason for reason in signal.reasons if reason.code == "I_MACHINE_MOVED"]
    assert bool(moved) is (reference != 1.0)


def test_a_slower_machine_is_no_slower_engine() -> None:
    old = read_measurement(baseline())
    new = read_measurement(evidence(scaled(QUIET, 1.06), process={"reference_us": 5300.0}))
    signal, _ = judge_throughput(old, new, 5.0, ONCE)
    assert signal.decision == "pass"
    assert signal.change_pct == pytest.approx(0.0, abs=0.1)
    assert signal.current == pytest.approx(1000.0 / 1.06, rel=1e-3)
    machine = [r.message for r in signal.reasons if r.code == "I_MACHINE_SPEED"]
    assert machine == [
        "The reference kernel ran 5.7 % slower than at the baseline. "
        "The change is corrected for it."
    ]


def test_wall_is_shown_and_never_gated() -> None:
    old, new = map(read_measurement, pair(2.0))
    signal = wall_signal(old, new)
    assert signal.decision == "not_gated"
    assert signal.change_pct == pytest.approx(-50.0, abs=0.1)
    assert wall_signal(None, new).change_pct is None

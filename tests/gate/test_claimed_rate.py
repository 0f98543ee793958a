"""Whether a claimed rate was obtained again: figures of both sides in, one answer out."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_flamegate.gate import read_measurement
from pytest_flamegate.gate.claimed_rate import compare_claimed_rate
from pytest_flamegate.gate.pairs import trimmed_mean
from pytest_flamegate.gate.statistics import Estimate, combine
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import MACHINE, QUIET, WORKLOAD, baseline, evidence, run, scaled

CLAIM = 1000.0


def slower(factor: float, **options: Any) -> Evidence:
    """What is found here, ``factor`` times as slow as what was claimed."""
    return evidence(scaled(QUIET, factor), **options)


@pytest.mark.parametrize(
    ("factor", "answer"),
    [
        (1.0, "inside"),
        (1.01, "inside"),
        (0.99, "inside"),
        (1.3, "claim_faster"),
        (1.5, "claim_faster"),
        (10.0, "claim_faster"),
        (1 / 1.3, "claim_slower"),
        (0.1, "claim_slower"),
    ],
)
@pytest.mark.parametrize("engine", ["embedded", "python", "command"])
def test_a_rate_is_compared_with_the_one_measured_here(
    factor: float, answer: str, engine: str
) -> None:
    reference = None if engine == "command" else 5000.0
    process = {"reference_us": reference}
    workload = {**WORKLOAD, "engine": engine}
    claimed = baseline(process=process, workload=workload)
    found = compare_claimed_rate(claimed, slower(factor, process=process, workload=workload), CLAIM)
    assert found.answer == answer
    assert found.here is not None
    assert found.low is not None
    assert found.high is not None
    assert found.here == pytest.approx(CLAIM / factor, rel=0.01)
    assert found.low < found.here < found.high
    assert (found.low <= CLAIM <= found.high) is (answer == "inside")
    assert found.claimed == CLAIM


@pytest.mark.parametrize(("factor", "answer"), [(1.3, "unknown"), (1.5, "claim_faster")])
def test_a_claim_that_scales_its_reference_too_is_not_obtained_again(
    factor: float, answer: str
) -> None:
    # Up to a limit it might have been the machine, so it is not called dishonest.
    here = slower(factor, process={"reference_us": 5000.0 * factor})
    found = compare_claimed_rate(baseline(), here, CLAIM)
    assert found.answer == answer
    if answer == "unknown":
        assert "at another speed" in found.why


def test_token_times_scaled_apart_from_their_clocks_do_not_hide_a_rate() -> None:
    claimed = baseline()
    runs = tuple(
        replace(
            each,
            blocks=tuple(
                replace(
                    block,
                    sequences_ns=tuple(
                        tuple(round(gap / 1.5) for gap in gaps) for gaps in block.sequences_ns
                    ),
                )
                for block in each.blocks
            ),
        )
        for each in claimed.runs
    )
    found = compare_claimed_rate(replace(claimed, runs=runs), evidence(), 1.5 * CLAIM)
    assert found.answer == "claim_faster"
    assert found.here == pytest.approx(CLAIM, rel=0.01)


def test_another_class_of_machine_is_not_compared() -> None:
    other = {**MACHINE, "cpu_model": "Intel Xeon"}
    found = compare_claimed_rate(baseline(machine=other), slower(3.0), CLAIM)
    assert found.answer == "other_machine"
    assert found.here is None
    assert found.wall is not None


@pytest.mark.parametrize(
    "changes", [{"machine": {**MACHINE, "kernel": "6.2.0"}}, {"process": {"pressure": 90.0}}]
)
def test_another_kernel_or_contention_excuses_a_rate(changes: dict[str, Any]) -> None:
    claimed = baseline(**changes)
    found = compare_claimed_rate(claimed, slower(2.0), CLAIM)
    assert found.answer == "unknown"
    assert "kernel was 6.2.0" in found.why or "CPU pressure was 90 %" in found.why
    assert compare_claimed_rate(claimed, slower(1.0), CLAIM).answer == "inside"


def decode_apart(side: Evidence) -> Evidence:
    runs = tuple(
        replace(each, blocks=tuple(replace(b, decode=b.interval) for b in each.blocks))
        for each in side.runs
    )
    return replace(side, runs=runs)


UNDELAYED = tuple(run(600 + i, time, delay_ns=None) for i, time in enumerate(QUIET))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda side: replace(side, runs=side.runs[:2]), "2 timed processes"),
        (lambda side: replace(side, runs=()), "at the same instant"),
        (lambda side: replace(side, clock_scope="process"), "whole processes"),
        (lambda side: replace(side, runs=UNDELAYED), "waiting for a CPU"),
        (lambda side: replace(side, runs=(*side.runs, side.runs[0])), "more than once"),
        (decode_apart, "was separated"),
    ],
)
@pytest.mark.parametrize("on_the_claim", [True, False])
def test_sides_that_cannot_be_compared_are_never_inside(
    change: Any, why: str, on_the_claim: bool
) -> None:
    claimed, here = baseline(), evidence()
    first, second = (change(claimed), here) if on_the_claim else (claimed, change(here))
    found = compare_claimed_rate(first, second, CLAIM)
    assert found.answer == "unknown"
    assert why in found.why
    assert found.low is None


# --- bounds by hand ------------------------------------------------------------------------

COMMAND: dict[str, Any] = {
    "workload": {**WORKLOAD, "engine": "command"},
    "process": {"reference_us": None},
}
SPREAD = (0.1, -0.1, 0.05, -0.05, 0.08, -0.08)


def noisy(spread: float, factor: float = 1.0) -> tuple[Evidence, Evidence]:
    """A claim and runs here, ``factor`` times as slow, both with that much noise."""
    times = [1000.0 * math.exp(spread * value) for value in SPREAD]
    return baseline(times, **COMMAND), evidence(scaled(times, factor, 0.001), **COMMAND)


def difference(claimed: Evidence, here: Evidence, drift: float) -> Estimate:
    then, now = (
        trimmed_mean([process.log_time for process in read_measurement(side).timed])
        for side in (claimed, here)
    )
    variance, df = combine(
        [(then.standard_error**2, then.df), (now.standard_error**2, now.df), (drift, math.inf)]
    )
    return Estimate(now.mean_diff - then.mean_diff, math.sqrt(variance), df)


def noise_drift(claimed: Evidence, here: Evidence) -> float:
    """The drift that noise explains: three quarters of the spread of processes, squared."""
    variance = 0.0
    for side in (claimed, here):
        estimate = trimmed_mean([process.log_time for process in read_measurement(side).timed])
        variance += estimate.standard_error**2 * (estimate.df + 1)
    return max(2 * 0.02**2, 0.75**2 * variance)


def test_the_interval_is_that_of_99_percent() -> None:
    claimed, here = noisy(0.1, 1.02)
    found = compare_claimed_rate(claimed, here, CLAIM)
    estimate = difference(claimed, here, 2 * 0.02**2)
    assert found.low == pytest.approx(CLAIM * math.exp(-estimate.upper(0.005)), rel=1e-4)
    assert found.high == pytest.approx(CLAIM * math.exp(-estimate.lower(0.005)), rel=1e-4)


@pytest.mark.parametrize("spread", [0.01, 0.5])
def test_a_claim_is_contradicted_beyond_all_noise_at_one_in_a_thousand(spread: float) -> None:
    sides = noisy(spread)
    limit = difference(*sides, noise_drift(*sides)).upper(0.001)
    for part, answers in ((0.97, {"unknown"}), (1.03, {"claim_faster", "claim_slower"})):
        for sign in (1, -1):
            found = compare_claimed_rate(*noisy(spread, math.exp(sign * part * limit)), CLAIM)
            assert found.answer in answers
            if part < 1.0:
                assert "no more than noise explains" in found.why
            else:
                assert found.answer == ("claim_faster" if sign > 0 else "claim_slower")


def test_an_interval_wider_than_a_quarter_shows_no_rate() -> None:
    widths = {}
    for spread in (1.0, 1.5, 2.0, 2.5, 3.0):
        sides = noisy(spread)
        estimate = difference(*sides, 2 * 0.02**2)
        half = estimate.upper(0.005) - estimate.mean_diff
        widths[half > math.log(1.25)] = True
        found = compare_claimed_rate(*sides, CLAIM)
        assert ("to show any rate" in found.why) is (half > math.log(1.25))
        assert (found.answer == "inside") is (half <= math.log(1.25))
    assert len(widths) == 2


@pytest.mark.parametrize(("pressure", "answer"), [(10.0, "claim_faster"), (10.1, "unknown")])
def test_contention_of_either_side_excuses(pressure: float, answer: str) -> None:
    busy: dict[str, Any] = {"process": {"pressure": pressure}}
    assert compare_claimed_rate(baseline(**busy), slower(2.0), CLAIM).answer == answer
    assert compare_claimed_rate(baseline(), slower(2.0, **busy), CLAIM).answer == answer

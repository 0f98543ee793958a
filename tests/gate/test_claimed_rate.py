"""Whether a claimed rate was obtained again: figures of both sides in, one answer out."""

import math
from typing import Any

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.claimed_rate import compare_claimed_rate
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.statistics import Estimate, trimmed_mean
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import (
    MACHINE,
    QUIET,
    WORKLOAD,
    baseline,
    evidence,
    run,
    scaled,
    with_blocks,
)

CLAIM = 1000.0


def slower(factor: float, **options: Any) -> Evidence:
    """What is found here, ``factor`` times as slow as what was claimed."""
    return evidence(scaled(QUIET, factor), **options)


@pytest.mark.parametrize(
    ("factor", "answer"),
    [(1.01, "inside"), (0.99, "inside"), (1.3, "claim_faster"), (1 / 1.3, "claim_slower")],
)
@pytest.mark.parametrize("engine", ["embedded", "python", "command"])
def test_a_rate_is_compared_with_the_one_measured_here(
    factor: float, answer: str, engine: str
) -> None:
    process = {"reference_us": None if engine == "command" else 5000.0}
    workload = {**WORKLOAD, "engine": engine}
    claimed = baseline(process=process, workload=workload)
    found = compare_claimed_rate(claimed, slower(factor, process=process, workload=workload), CLAIM)
    assert (found.answer, found.claimed) == (answer, CLAIM)
    low, here, high = (value or 0.0 for value in (found.low, found.here, found.high))
    assert low < here < high
    assert here == pytest.approx(CLAIM / factor, rel=0.01)
    assert (low <= CLAIM <= high) is (answer == "inside")


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


def decode_apart(side: Evidence) -> Evidence:
    return with_blocks(side, lambda block: replace(block, decode=block.interval))


def test_token_times_scaled_apart_from_their_clocks_do_not_hide_a_rate() -> None:
    def scale(block: Block) -> Block:
        gaps_ns = (tuple(round(gap / 1.5) for gap in gaps) for gaps in block.sequences_ns)
        return replace(block, sequences_ns=tuple(gaps_ns))

    found = compare_claimed_rate(with_blocks(baseline(), scale), evidence(), 1.5 * CLAIM)
    assert found.answer == "claim_faster"
    assert found.here == pytest.approx(CLAIM, rel=0.01)


def test_another_class_of_machine_is_not_compared() -> None:
    other = {**MACHINE, "cpu_model": "Intel Xeon"}
    found = compare_claimed_rate(baseline(machine=other), slower(3.0), CLAIM)
    assert (found.answer, found.here) == ("other_machine", None)
    assert found.wall is not None


def test_another_kernel_excuses_a_rate() -> None:
    claimed = baseline(machine={**MACHINE, "kernel": "6.2.0"})
    found = compare_claimed_rate(claimed, slower(2.0), CLAIM)
    assert found.answer == "unknown"
    assert "kernel was 6.2.0" in found.why
    assert compare_claimed_rate(claimed, slower(1.0), CLAIM).answer == "inside"


def without_cpu_time(side: Evidence) -> Evidence:
    return with_blocks(side, lambda block: replace(block, interval=NO_CPU))


NO_CPU = Interval(10**9, 0, 0)
UNDELAYED = tuple(run(600 + i, time, delay_ns=None) for i, time in enumerate(QUIET))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda side: replace(side, runs=side.runs[:2]), "2 timed processes"),
        (lambda side: replace(side, runs=()), "at the same instant"),
        (lambda side: replace(side, clock_scope="process"), "whole processes"),
        (lambda side: replace(side, runs=UNDELAYED), "waiting for a CPU"),
        (decode_apart, "was separated"),
        (without_cpu_time, "The CPU time of a block of process"),
    ],
)
@pytest.mark.parametrize("on_the_claim", [True, False])
def test_sides_that_cannot_be_compared_are_never_inside(
    change: Any, why: str, on_the_claim: bool
) -> None:
    claimed, here = baseline(), evidence()
    first, second = (change(claimed), here) if on_the_claim else (claimed, change(here))
    found = compare_claimed_rate(first, second, CLAIM)
    assert (found.answer, found.low) == ("unknown", None)
    assert why in found.why


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


def difference(claimed: Evidence, here: Evidence, drift: float | None = None) -> Estimate:
    """By default with the drift that noise explains: three quarters of the processes' spread."""
    then, now = (
        trimmed_mean([process.log_time for process in read_measurement(side).timed])
        for side in (claimed, here)
    )
    if drift is None:
        spread = sum(each.standard_error**2 * (each.df + 1) for each in (then, now))
        drift = max(2 * 0.02**2, 0.75**2 * spread)
    return now.minus(then).widen(drift)


def test_the_interval_is_that_of_99_percent() -> None:
    claimed, here = noisy(0.1, 1.02)
    found = compare_claimed_rate(claimed, here, CLAIM)
    estimate = difference(claimed, here, 2 * 0.02**2)
    assert found.low == pytest.approx(CLAIM * math.exp(-estimate.upper(0.005)), rel=1e-4)
    assert found.high == pytest.approx(CLAIM * math.exp(-estimate.lower(0.005)), rel=1e-4)


@pytest.mark.parametrize("spread", [0.01, 0.5])
def test_a_claim_is_contradicted_beyond_all_noise_at_one_in_a_thousand(spread: float) -> None:
    limit = difference(*noisy(spread)).upper(0.001)
    for part, answer in (
        *((0.97, "unknown"), (1.03, "claim_faster"), (-0.97, "unknown"), (-1.03, "claim_slower")),
    ):
        found = compare_claimed_rate(*noisy(spread, math.exp(part * limit)), CLAIM)
        assert found.answer == answer
        assert ("no more than noise explains" in found.why) is (answer == "unknown")


def test_an_interval_wider_than_a_quarter_shows_no_rate() -> None:
    widths = set()
    for spread in (1.0, 1.5, 2.0, 2.5, 3.0):
        estimate = difference(*noisy(spread), 2 * 0.02**2)
        wide = estimate.upper(0.005) - estimate.mean_diff > math.log(1.25)
        found = compare_claimed_rate(*noisy(spread), CLAIM)
        assert (found.answer == "inside", "to show any rate" in found.why) == (not wide, wide)
        widths.add(wide)
    assert widths == {True, False}


@pytest.mark.parametrize(("pressure", "answer"), [(10.0, "claim_faster"), (10.1, "unknown")])
def test_contention_of_either_side_excuses(pressure: float, answer: str) -> None:
    busy: dict[str, Any] = {"process": {"pressure": pressure}}
    assert compare_claimed_rate(baseline(**busy), slower(2.0), CLAIM).answer == answer
    assert compare_claimed_rate(baseline(), slower(2.0, **busy), CLAIM).answer == answer

"""Whether a claimed rate was obtained again: figures of both sides in, one answer out."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.gate.claimed_rate import compare_claimed_rate
from tests.gate.factory import MACHINE, QUIET, WORKLOAD, baseline, evidence, run, scaled

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence


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


def test_an_engine_that_follows_the_reference_is_seen_closer() -> None:
    claimed = baseline()
    widths = []
    for engine in ("embedded", "command"):
        process = {"reference_us": 5000.0 if engine == "embedded" else None}
        claimed = baseline(process=process, workload={**WORKLOAD, "engine": engine})
        here = slower(1.0, process=process, workload={**WORKLOAD, "engine": engine})
        found = compare_claimed_rate(claimed, here, CLAIM)
        assert found.high is not None
        assert found.low is not None
        widths.append(found.high - found.low)
    assert widths[0] < widths[1] / 3


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


def test_token_times_scaled_apart_from_their_clocks_are_seen() -> None:
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


def test_noise_widens_what_is_called_dishonest() -> None:
    source = random.Random(1)

    def noisy(factor: float) -> list[float]:
        return [1000.0 * factor * math.exp(source.gauss(0.0, 0.2)) for _ in range(8)]

    answers = []
    for _ in range(40):
        claimed, here = baseline(noisy(1.0)), evidence(noisy(1.3))
        answers.append(compare_claimed_rate(claimed, here, CLAIM).answer)
    assert answers.count("claim_faster") <= 4
    found = compare_claimed_rate(baseline(noisy(1.0)), evidence(noisy(1.0)), CLAIM)
    assert found.answer == "unknown"
    assert "to show any rate" in found.why
    assert compare_claimed_rate(baseline(noisy(1.0)), evidence(noisy(20.0)), CLAIM).answer == (
        "claim_faster"
    )


def test_noise_hides_no_claim_that_scales_its_reference_too() -> None:
    source = random.Random(2)
    answers = set()
    for _ in range(40):
        now, then = ([1000.0 * math.exp(source.gauss(0.0, 0.05)) for _ in range(5)] for _ in "ab")
        here = evidence([1.4 * each for each in now], process={"reference_us": 5000.0 * 1.34})
        answers.add(compare_claimed_rate(baseline(then), here, CLAIM).answer)
    assert answers <= {"unknown", "claim_faster"}


def test_another_class_of_machine_is_not_compared() -> None:
    other = {**MACHINE, "cpu_model": "Intel Xeon"}
    found = compare_claimed_rate(baseline(machine=other), slower(3.0), CLAIM)
    assert found.answer == "other_machine"
    assert found.here is None
    assert found.wall is not None


@pytest.mark.parametrize(
    "changes", [{"machine": {**MACHINE, "kernel": "6.2.0"}}, {"process": {"pressure": 90.0}}]
)
def test_what_may_explain_a_rate_is_no_dishonesty(changes: dict[str, Any]) -> None:
    claimed = baseline(**changes)
    found = compare_claimed_rate(claimed, slower(2.0), CLAIM)
    assert found.answer == "unknown"
    assert "kernel was 6.2.0" in found.why or "CPU pressure was 90 %" in found.why
    assert compare_claimed_rate(claimed, slower(1.0), CLAIM).answer == "inside"


def too_few(side: Evidence) -> Evidence:
    return replace(side, runs=side.runs[:2])


def none(side: Evidence) -> Evidence:
    return replace(side, runs=())


def of_a_program(side: Evidence) -> Evidence:
    return replace(side, clock_scope="process")


def without_delay(side: Evidence) -> Evidence:
    return replace(side, runs=tuple(run(600 + i, t, delay_ns=None) for i, t in enumerate(QUIET)))


def copied(side: Evidence) -> Evidence:
    return replace(side, runs=(*side.runs, side.runs[0]))


def decode_apart(side: Evidence) -> Evidence:
    runs = tuple(
        replace(each, blocks=tuple(replace(b, decode=b.interval) for b in each.blocks))
        for each in side.runs
    )
    return replace(side, runs=runs)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (too_few, "2 timed processes"),
        (none, "at the same instant"),
        (of_a_program, "whole processes"),
        (without_delay, "waiting for a CPU"),
        (copied, "more than once"),
        (decode_apart, "was separated"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("on_the_claim", [True, False])
def test_what_cannot_be_compared_is_said_and_never_inside(
    change: Any, why: str, on_the_claim: bool
) -> None:
    claimed, here = baseline(), evidence()
    if on_the_claim:
        claimed = change(claimed)
    else:
        here = change(here)
    found = compare_claimed_rate(claimed, here, CLAIM)
    assert found.answer == "unknown"
    assert why in found.why
    assert found.low is None

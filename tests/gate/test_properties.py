"""What must hold for any numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.gate import ErrorRates, Signal, verdict_document
from pytest_flamegate.gate.throughput import compare_log_times, judge_throughput
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import PROFILE, baseline, codes, evidence, judge_stored, measurement

log_times = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=8, unique=True)
rates = st.builds(ErrorRates, analyses=st.integers(1, 8))
drops = st.floats(0.1, 90.0)
times_us = st.lists(st.floats(10.0, 1e5), min_size=3, max_size=6, unique_by=lambda t: round(t, 1))
counts = st.fixed_dictionaries(
    {"gemv": st.integers(0, 600), "attention": st.integers(0, 300)},
    optional={"rope": st.integers(0, 100)},
)
profile_lists = st.none() | st.lists(counts, min_size=1, max_size=5)


def rate(old: list[float], new: list[float], drop: float, error: ErrorRates) -> Signal:
    return judge_throughput(measurement(old), measurement(new), drop, error)[0]


@given(log_times, log_times, st.floats(-5.0, 5.0))
def test_the_unit_of_time_changes_nothing(old: list[float], new: list[float], unit: float) -> None:
    moved_old, moved_new = [x + unit for x in old], [x + unit for x in new]
    assume(len(set(moved_old)) > 1 and len(set(moved_new)) > 1)
    plain = compare_log_times(measurement(old), measurement(new))[0].estimate
    moved = compare_log_times(measurement(moved_old), measurement(moved_new))[0].estimate
    assert math.isclose(plain.mean_diff, moved.mean_diff, abs_tol=1e-9)
    assert math.isclose(plain.standard_error, moved.standard_error, abs_tol=1e-9)


@settings(max_examples=50)
@given(log_times, log_times, drops, rates, st.randoms(use_true_random=False))
def test_neither_order_of_processes_nor_of_sides_decides(
    old: list[float], new: list[float], drop: float, error: ErrorRates, random: Random
) -> None:
    forth, back = rate(old, new, drop, error), rate(new, old, drop, error)
    if forth.decision == "regressed":
        assert back.decision == "improved"
    if forth.decision == "improved":
        # A gain can be called one that is proven to be small; such a loss is allowed.
        assert back.decision in {"regressed", "pass"}
    shuffled = list(new)
    random.shuffle(shuffled)
    assert rate(old, shuffled, drop, error) == forth


@settings(max_examples=50)
@given(times_us, times_us, profile_lists, profile_lists)
def test_any_evidence_gets_a_verdict_with_reasons(
    old: list[float],
    new: list[float],
    before: list[dict[str, int]] | None,
    after: list[dict[str, int]] | None,
) -> None:
    verdict = judge_stored(baseline(old, before), evidence(new, after))
    assert verdict.reasons
    assert all(reason.code and reason.message for reason in verdict.reasons)
    assert "\n" not in verdict_document(verdict).headline


@settings(max_examples=50)
@given(
    st.sampled_from(["wall_ns", "cpu_ns", "run_delay_ns"]),
    st.sampled_from([math.nan, math.inf, -math.inf, 0, -1]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_no_impossible_number_passes(
    field: str, value: float, reference: bool, spoil_baseline: bool, index: int
) -> None:
    assume(not (field == "run_delay_ns" and value == 0))

    def spoiled(side: Evidence) -> Evidence:
        run = side.runs[index]
        block = run.blocks[0]
        name = "reference" if reference else "interval"
        target: Interval = getattr(block, name)
        broken = replace(target, **{field: value})  # type: ignore[arg-type]
        blocks = (replace(block, **{name: broken}), *run.blocks[1:])  # type: ignore[arg-type]
        runs = list(side.runs)
        runs[index] = replace(run, blocks=blocks)
        return replace(side, runs=tuple(runs))

    old, new = baseline(profile=PROFILE), evidence(profile=PROFILE)
    if spoil_baseline:
        old = spoiled(old)
    else:
        new = spoiled(new)
    verdict = judge_stored(old, new)
    assert (verdict.verdict, codes(verdict)[0]) == ("inconclusive", "E_IMPOSSIBLE_FIGURE")

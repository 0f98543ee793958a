"""What must hold for any numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.gate import ErrorRates, Signal, decide, verdict_document
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.gate.throughput import compare_log_times, judge_throughput
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import PROFILE, baseline, evidence, judge_stored, measurement

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


@settings(deadline=None)
@given(log_times, log_times, st.floats(-5.0, 5.0), drops, rates)
def test_the_unit_of_time_changes_nothing(
    old: list[float], new: list[float], scale: float, drop: float, error: ErrorRates
) -> None:
    plain = compare_log_times(measurement(old), measurement(new))[0].estimate
    moved_old, moved_new = [x + scale for x in old], [x + scale for x in new]
    assume(len(set(moved_old)) > 1 and len(set(moved_new)) > 1)
    moved = compare_log_times(measurement(moved_old), measurement(moved_new))[0].estimate
    assert math.isclose(plain.mean_diff, moved.mean_diff, abs_tol=1e-9)
    assert math.isclose(plain.standard_error, moved.standard_error, abs_tol=1e-9)


@settings(deadline=None)
@given(log_times, log_times, drops, rates)
def test_swapping_the_sides_mirrors(
    old: list[float], new: list[float], drop: float, error: ErrorRates
) -> None:
    forth, back = rate(old, new, drop, error), rate(new, old, drop, error)
    there = compare_log_times(measurement(old), measurement(new))[0].estimate
    again = compare_log_times(measurement(new), measurement(old))[0].estimate
    assert math.isclose(there.mean_diff, -again.mean_diff, abs_tol=1e-12)
    assert math.isclose(there.standard_error, again.standard_error)
    if forth.decision == "regressed":
        assert back.decision == "improved"
    if forth.decision == "improved":
        # A gain can be called one that is proven to be small; such a loss is allowed.
        assert back.decision in {"regressed", "pass"}


@settings(deadline=None)
@given(log_times, log_times, drops, rates, st.randoms(use_true_random=False))
def test_the_order_of_processes_does_not_matter(
    old: list[float], new: list[float], drop: float, error: ErrorRates, random: Random
) -> None:
    shuffled = list(new)
    random.shuffle(shuffled)
    assert rate(old, new, drop, error) == rate(old, shuffled, drop, error)


@settings(deadline=None)
@given(st.floats(-1, 1), st.floats(1e-6, 1), st.floats(2, 50), st.floats(1e-3, 1), rates)
def test_decisions_never_contradict_their_bounds(
    centre: float, se: float, df: float, threshold: float, error: ErrorRates
) -> None:
    verdict = decide(Estimate(centre, se, df), threshold, error)
    assert verdict.low <= centre <= verdict.high
    if verdict.decision == "regressed":
        assert verdict.low > 0.0
        assert verdict.high >= threshold
    elif verdict.decision == "improved":
        assert verdict.high < 0.0
    elif verdict.decision == "pass":
        assert verdict.high < threshold
    else:
        assert verdict.high >= threshold
    assert not (verdict.slower and verdict.faster)


@settings(deadline=None)
@given(st.floats(-1, 1), st.floats(1e-6, 1), st.floats(2, 50), st.floats(1e-3, 1), rates)
def test_a_slower_estimate_is_never_judged_better(
    centre: float, se: float, df: float, threshold: float, error: ErrorRates
) -> None:
    order = ["improved", "pass", "inconclusive", "regressed"]
    ranks = [
        order.index(decide(Estimate(centre + shift, se, df), threshold, error).decision)
        for shift in (0.0, 0.01, 0.1, 1.0)
    ]
    assert ranks == sorted(ranks)


@settings(deadline=None)
@given(times_us, times_us, profile_lists, profile_lists)
def test_any_evidence_gets_a_verdict_that_says_why(
    old: list[float],
    new: list[float],
    before: list[dict[str, int]] | None,
    after: list[dict[str, int]] | None,
) -> None:
    verdict = judge_stored(baseline(old, before), evidence(new, after), Thresholds())
    assert verdict.reasons
    assert all(reason.code and reason.message for reason in verdict.reasons)
    assert "\n" not in verdict_document(verdict).headline


bad = st.sampled_from([math.nan, math.inf, -math.inf, 0, -1])


@settings(deadline=None)
@given(
    st.sampled_from(["wall_ns", "cpu_ns", "run_delay_ns"]),
    bad,
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_no_impossible_number_passes(
    field: str, value: float, reference: bool, spoil_baseline: bool, index: int
) -> None:
    assume(not (field == "run_delay_ns" and value == 0))

    def spoiled(made: Evidence) -> Evidence:
        run = made.runs[index]
        block = run.blocks[0]
        assert block.reference is not None
        target: Interval = block.reference if reference else block.interval
        changed = replace(target, **{field: value})  # type: ignore[arg-type]
        new_block = (
            replace(block, reference=changed) if reference else replace(block, interval=changed)
        )
        runs = list(made.runs)
        runs[index] = replace(run, blocks=(new_block, *run.blocks[1:]))
        return replace(made, runs=tuple(runs))

    old, new = baseline(profile=PROFILE), evidence(profile=PROFILE)
    if spoil_baseline:
        old = spoiled(old)
    else:
        new = spoiled(new)
    verdict = judge_stored(old, new, Thresholds())
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons[0].code in {"E_IMPOSSIBLE_FIGURE"}

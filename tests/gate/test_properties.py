"""What must hold for any numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.gate import verdict_document
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import PROFILE, baseline, codes, evidence, judge_stored

times_us = st.lists(st.floats(10.0, 1e5), min_size=3, max_size=6, unique_by=lambda t: round(t, 1))
counts = st.fixed_dictionaries(
    {"gemv": st.integers(0, 600), "attention": st.integers(0, 300)},
    optional={"rope": st.integers(0, 100)},
)
profile_lists = st.none() | st.lists(counts, min_size=1, max_size=5)


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

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.instructions import judge_instructions

COUNTS = st.floats(min_value=1e-3, max_value=1e15)


@pytest.mark.parametrize(
    ("baseline", "current", "change_pct", "words"),
    [
        (1000.0, 1000.0, 0.0, "unchanged to 0.01 %"),
        (1e6, 1e6 + 40.0, 0.004, "unchanged to 0.01 %"),
        (1e6, 1e6 + 123.0, 0.0123, "0.01 % more"),
        (4.895e6, 5.1397e6, 4.999, "5.00 % more"),
        (2.0, 1.0, -50.0, "50.00 % fewer"),
        (1.0, 3.0, 200.0, "200.00 % more"),
    ],
)
def test_the_change_is_shown_and_not_gated(
    baseline: float, current: float, change_pct: float, words: str
) -> None:
    signal = judge_instructions(baseline, current)
    assert (signal.baseline, signal.current) == (baseline, current)
    assert (signal.name, signal.unit) == ("instructions_per_token", "instructions")
    assert (signal.direction, signal.decision) == ("lower_is_better", "not_gated")
    assert signal.change_pct == pytest.approx(change_pct, abs=1e-3)
    (reason,) = signal.reasons
    assert reason.code == "I_INSTRUCTIONS"
    assert f"Instructions a token: {words}." in reason.message
    assert "counts work, not time: cache and memory are invisible to it" in reason.message


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0])
def test_a_count_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(UndecidedError, match="E_BAD_INSTRUCTIONS: The baseline side counts"):
        judge_instructions(bad, 1.0)
    with pytest.raises(UndecidedError, match="E_BAD_INSTRUCTIONS: The current side counts"):
        judge_instructions(1.0, bad)


def test_counts_out_of_all_proportion_are_refused() -> None:
    with pytest.raises(UndecidedError, match="E_BAD_INSTRUCTIONS: 1e-308 and 1e"):
        judge_instructions(1e-308, 1e308)


@given(COUNTS, COUNTS, st.floats(min_value=1e-3, max_value=1e3))
def test_scaling_both_sides_changes_nothing(one: float, other: float, times: float) -> None:
    plain = judge_instructions(one, other).change_pct
    scaled = judge_instructions(one * times, other * times).change_pct
    assert scaled == pytest.approx(plain, rel=1e-9, abs=1e-9)


@given(st.floats(min_value=1.0, max_value=1e3), st.floats(min_value=1.0, max_value=1e3))
def test_swapping_sides_mirrors_the_change(one: float, other: float) -> None:
    there = judge_instructions(one, other).change_pct
    back = judge_instructions(other, one).change_pct
    assert there is not None
    assert back is not None
    assert (1.0 + there / 100.0) * (1.0 + back / 100.0) == pytest.approx(1.0, rel=1e-6)

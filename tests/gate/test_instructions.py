from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate import Signal
from pytest_flamegate.gate.ungated import instruction_signals
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import evidence


def counting(per_token: float | None) -> Evidence:
    plain = evidence()
    if per_token is None:
        return plain
    count = replace(plain.metrics[0], name="instructions_per_token", value=per_token)
    return replace(plain, metrics=(*plain.metrics, count))


def compare(baseline: float | None, current: float | None) -> tuple[Signal, ...]:
    return instruction_signals(counting(baseline), counting(current))


COUNTS = st.floats(min_value=1.0, max_value=1e6)


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
    (signal,) = compare(baseline, current)
    assert (signal.baseline, signal.current) == (baseline, current)
    assert (signal.name, signal.unit) == ("instructions_per_token", "instructions")
    assert (signal.direction, signal.decision) == ("lower_is_better", "not_gated")
    assert signal.change_pct == pytest.approx(change_pct, abs=1e-3)
    (reason,) = signal.reasons
    assert reason.code == "I_INSTRUCTIONS"
    assert f"Instructions per token: {words}." in reason.message
    assert "counts work, not time: it is blind to cache and memory" in reason.message


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0])
def test_an_impossible_count_is_an_error(bad: float) -> None:
    for sides in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(UndecidedError, match="E_IMPOSSIBLE_FIGURE: The number of instr"):
            compare(*sides)


def test_counts_out_of_all_proportion_are_an_error() -> None:
    with pytest.raises(UndecidedError, match="E_IMPOSSIBLE_FIGURE: The change from 1e-308"):
        compare(1e-308, 1e308)


def test_a_count_of_one_side_is_shown_alone() -> None:
    assert compare(1000.0, None) == ()
    (signal,) = compare(None, 1000.0)
    assert (signal.baseline, signal.current, signal.change_pct) == (None, 1000.0, None)
    assert signal.reasons == ()


@given(COUNTS, COUNTS)
def test_swapping_sides_mirrors_the_change(one: float, other: float) -> None:
    (there,), (back,) = compare(one, other), compare(other, one)
    assert there.change_pct is not None
    assert back.change_pct is not None
    assert (1.0 + there.change_pct / 100.0) * (1.0 + back.change_pct / 100.0) == pytest.approx(
        1.0, rel=1e-6
    )

"""The profile of trueno: its sums are held against each other, its shares computed again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.graph.traces import read_trace
from tests.graph.traces import made
from tests.graph.traces.made import brick, named, trueno


def test_sums_are_read_and_known_names_found() -> None:
    found = named(read_trace(made.TRUENO))
    assert found["RmsNorm"].calls == 57
    assert (found["RmsNorm"].total_ns, found["RmsNorm"].category) == (1_234_567, "Norm")
    assert found["QkvProjection"].bytes == 1 << 20
    assert found["my kernel"].category == "Other"


def test_elements_are_not_taken_for_tokens_nor_a_sum_for_wall() -> None:
    found = read_trace(made.TRUENO)
    assert (found.tokens, found.wall_ns) == (None, None)
    assert any("4,096" in note and "no tokens" in note for note in found.notes)
    assert any("no wall time" in note for note in found.notes)
    assert read_trace(trueno(brick(), total_ns=2_000_000)).wall_ns == 2_000_000


def refused(data: bytes) -> str:
    with pytest.raises(ReceiptError) as caught:
        read_trace(data)
    return caught.value.code


def test_more_spent_than_passed_is_refused() -> None:
    assert refused(trueno(brick(pct=0.0), brick("b", pct=0.0), total_ns=1_900_000)) == (
        "E_SELF_EXCEEDS_WALL"
    )


def test_nested_shares_are_refused() -> None:
    """A root of 100 % with its parts beside it, as timers by name sum them."""
    root = brick("decode", 1, 1_000_000, pct=100.0)
    assert refused(trueno(root, brick(pct=60.0), total_ns=1_000_000)) == "E_PERCENT_NESTED"


def test_shares_are_computed_again() -> None:
    found = read_trace(trueno(brick(pct=20.0), brick("b", pct=20.0)))
    assert any(note.startswith("2 shares of the file are others") for note in found.notes)


@pytest.mark.parametrize(
    "more",
    [
        {"avg_us": 100.1},
        {"avg_us": 99.9},
        {"min_us": 100.1},
        {"max_us": 99.9},
        {"count": 0},
        {"count": 11},
    ],
    ids=str,
)
def test_figures_that_contradict_each_other_are_refused(more: dict[str, Any]) -> None:
    assert refused(trueno(brick(**more))) == "E_TRACE_CONTRADICTS"


def test_one_brick_stands_there_once() -> None:
    assert refused(trueno(brick("Qkv"), brick("QkvProjection"))) == "E_TRACE_CONTRADICTS"


@pytest.mark.parametrize(
    "data",
    [
        made.TRUENO[:-5],
        made.TRUENO.replace(b'"total_ns"', b'"total_ns": 1, "total_ns"', 1),
        made.TRUENO.replace(b'"pct": ', b'"pct": NaN, "x": ', 1),
        made.TRUENO.replace(b'"avg_us": ', b'"avg_us": 1e999, "x": ', 1),
        made.TRUENO.replace(b'"avg_us": ', b'"avg_us": -1, "x": ', 1),
        made.TRUENO.replace(b'"avg_us": ', b'"avg_us": null, "x": ', 1),
        made.TRUENO.replace(b'"count": ', b'"count": true, "x": ', 1),
        made.TRUENO.replace(b'"count": ', b'"count": 1.0, "x": ', 1),
        made.TRUENO.replace(b'"name": ', b'"name": 3, "x": ', 1),
        trueno(brick(), total_ns=-1),
        trueno(brick(), bricks={}),
        trueno(brick(), bricks=[3]),
        trueno(brick(), total_tokens="many"),
        trueno(brick(), total_ns=10**19),
        trueno(brick(), bricks=[brick(str(number)) for number in range(10_001)]),
    ],
)
def test_a_malformed_file_is_refused(data: bytes) -> None:
    assert refused(data) == "E_TRACE"


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=8), min_size=1, max_size=6))
def test_what_trueno_writes_of_any_calls_is_read(calls: list[list[int]]) -> None:
    """Its own rounding is no contradiction."""
    bricks = [
        {
            "name": f"b{number}",
            "count": len(each),
            "total_ns": sum(each),
            "avg_us": round(sum(each) / len(each) / 1000, 2),
            "min_us": round(min(each) / 1000, 2),
            "max_us": round(max(each) / 1000, 2),
        }
        for number, each in enumerate(calls)
    ]
    found = read_trace(trueno(*bricks))
    assert [each.total_ns for each in found.totals] == [sum(each) for each in calls]
    assert json.loads(trueno(*bricks))["bricks"]

"""Profiles of trueno: their sums are checked against each other."""

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


def test_sums_are_read() -> None:
    found = named(read_trace(made.TRUENO))
    assert found["RmsNorm"].calls == 57
    assert (found["RmsNorm"].total_ns, found["RmsNorm"].category) == (1_234_567, "Norm")
    assert found["QkvProjection"].bytes == 1 << 20
    assert found["my kernel"].category == "Other"


def test_elements_are_no_tokens_and_a_sum_is_no_wall_time() -> None:
    found = read_trace(made.TRUENO)
    assert (found.tokens, found.wall_ns) == (None, None)
    assert any("4,096" in note and "no tokens" in note for note in found.notes)
    assert any("no wall time" in note for note in found.notes)
    assert read_trace(trueno(brick(), total_ns=2_000_000)).wall_ns == 2_000_000


def code_of(data: bytes) -> str:
    with pytest.raises(ReceiptError) as error:
        read_trace(data)
    return error.value.code


def test_bricks_longer_than_the_whole_raise() -> None:
    assert code_of(trueno(brick(pct=0.0), brick("b", pct=0.0), total_ns=1_900_000)) == (
        "E_TRACE_CONTRADICTS"
    )


def test_shares_above_100_percent_raise() -> None:
    """Timers by name give a root of 100 % and its parts again."""
    root = brick("decode", 1, 1_000_000, pct=100.0)
    assert code_of(trueno(root, brick(pct=60.0), total_ns=1_000_000)) == "E_TRACE_CONTRADICTS"


def test_wrong_shares_are_noted() -> None:
    found = read_trace(trueno(brick(pct=20.0), brick("b", pct=20.0)))
    assert any(note.startswith("2 shares of the file differ") for note in found.notes)


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
def test_contradicting_figures_raise(more: dict[str, Any]) -> None:
    assert code_of(trueno(brick(**more))) == "E_TRACE_CONTRADICTS"


def test_brick_under_two_names_raises() -> None:
    assert code_of(trueno(brick("Qkv"), brick("QkvProjection"))) == "E_TRACE_CONTRADICTS"


@pytest.mark.parametrize(
    "data",
    [
        made.TRUENO.replace(b'"avg_us": ', b'"avg_us": -1, "x": ', 1),
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
def test_invalid_field_raises(data: bytes) -> None:
    assert code_of(data) == "E_TRACE"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b'"total_ns"', b'"total_ns": 1, "total_ns"', "E_JSON_DUPLICATE_KEY"),
        (b'"pct": ', b'"pct": NaN, "x": ', "E_JSON_NUMBER"),
        (b'"avg_us": ', b'"avg_us": 1e999, "x": ', "E_JSON_NUMBER"),
        (b"}]}", b"}]", "E_JSON_SYNTAX"),
    ],
)
def test_invalid_json_raises(old: bytes, new: bytes, code: str) -> None:
    assert code_of(made.TRUENO.replace(old, new, 1)) == code


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=8), min_size=1, max_size=6))
def test_rounding_is_no_contradiction(calls: list[list[int]]) -> None:
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

"""The report of a brick run comes back as it was; anything else is an error."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.bricks.record import (
    MAX_TOKEN_CALLS,
    BrickCall,
    BrickTotals,
    Recorded,
    ThreadTotals,
)
from pytest_flamegate.bricks.wire import BrickReport, decode_report, encode_report
from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable


RECORDED = Recorded(
    wall_ns=1000,
    sync="none",
    totals=(
        BrickTotals(
            *("RmsNorm", "Norm", 2, 300, 300, 100, 200),
            layer=3,
            phase="decode",
            elements=8,
            durations=MappingProxyType({"100": 1, "164": 1}),
        ),
        BrickTotals("LmHead", "Other", 1, 50, 50, 50, 50, durations=MappingProxyType({"50": 1})),
    ),
    lanes=(ThreadTotals("MainThread", 350, 3),),
    calls=(
        BrickCall("RmsNorm", 10, 110, 100, layer=3, phase="decode"),
        BrickCall("LmHead", 20, 70, 50, parent=0, kernel="gemv"),
    ),
    unended=1,
)


def test_report_survives_encoding() -> None:
    for report in (BrickReport(RECORDED), BrickReport(RECORDED, left_out=True)):
        assert decode_report(encode_report(report)) == report


def spoiled_text(spoil: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(encode_report(BrickReport(RECORDED)))
    spoil(document)
    return json.dumps(document)


SPOILED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a missing field": lambda it: it.pop("wall_ns"),
    "left_out is missing": lambda it: it.pop("left_out"),
    "below zero": lambda it: it.update(wall_ns=-1),
    "a fraction": lambda it: it["totals"][0].update(calls=1.0),
    "true for a number": lambda it: it["lanes"][0].update(calls=True),
    "beyond 63 bits": lambda it: it["totals"][0].update(total_ns=2**63),
    "an unknown sync mode": lambda it: it.update(sync="always"),
    "a list as a sync mode": lambda it: it.update(sync=["none"]),
    "an unknown phase": lambda it: it["totals"][0].update(phase="warm-up"),
    "an unknown category": lambda it: it["totals"][0].update(category="norm"),
    "an unknown provenance": lambda it: it["totals"][0].update(provenance="guessed"),
    "no name": lambda it: it["totals"][0].update(name=""),
    "a long name": lambda it: it["totals"][0].update(name="x" * 300),
    "a long kernel": lambda it: it["calls"][0].update(kernel="x" * 300),
    "a bucket below zero": lambda it: it["totals"][0].update(durations={"-1": 1}),
    "a bucket beyond the last": lambda it: it["totals"][0].update(durations={"4096": 1}),
    "a bucket of Arabic digits": lambda it: it["totals"][0].update(durations={"\u0661": 1}),
    "a bucket written twice": lambda it: it["totals"][0].update(durations={"01": 1, "1": 1}),
    "durations in a list": lambda it: it["totals"][0].update(durations=[1]),
    "two rows of one brick": lambda it: it["totals"].append(it["totals"][0]),
    "too many calls": lambda it: it.update(calls=it["calls"] * MAX_TOKEN_CALLS),
    "an object as totals": lambda it: it.update(totals={}),
    "a call within itself": lambda it: it["calls"][0].update(parent=0),
    "a parent that is missing": lambda it: it["calls"][0].update(parent=2),
    "an end before the start": lambda it: it["calls"][0].update(end_ns=9),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_invalid_report_raises(spoil: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ToolError) as error:
        decode_report(spoiled_text(spoil))
    assert error.value.code == "E_BAD_BRICKS"


def test_error_names_the_limit_of_names() -> None:
    with pytest.raises(ToolError) as error:
        decode_report(spoiled_text(SPOILED["a long kernel"]))
    assert "name bricks and kernels by at most 256 characters" in error.value.remedy


@pytest.mark.parametrize("text", ["", "[]", "1", "nan", "{", "[" * 100_000, "9" * 5000])
def test_text_that_is_no_object_raises(text: str) -> None:
    with pytest.raises(ToolError) as error:
        decode_report(text)
    assert error.value.code == "E_BAD_BRICKS"

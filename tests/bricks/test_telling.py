"""What a process tells of its bricks: read as it was told, or refused."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.bricks.record import BrickCall, BrickTotals, Recorded, ThreadTotals
from pytest_flamegate.bricks.wire import MAX_TOKEN_CALLS, BrickReport, decode_report, encode_report
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


def test_it_comes_back_as_it_was() -> None:
    for told in (BrickReport(RECORDED), BrickReport(RECORDED, left_out=True)):
        assert decode_report(encode_report(told)) == told


def change(spoil: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(encode_report(BrickReport(RECORDED)))
    spoil(document)
    return json.dumps(document)


SPOILED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a field less": lambda it: it.pop("wall_ns"),
    "a field more": lambda it: it.update(more=1),
    "not said what was left out": lambda it: it.pop("left_out"),
    "below zero": lambda it: it.update(wall_ns=-1),
    "a fraction": lambda it: it["totals"][0].update(calls=1.0),
    "true for a number": lambda it: it["lanes"][0].update(calls=True),
    "beyond 63 bits": lambda it: it["totals"][0].update(total_ns=2**63),
    "no sync of ours": lambda it: it.update(sync="always"),
    "a list for a word": lambda it: it.update(sync=["none"]),
    "no phase of ours": lambda it: it["totals"][0].update(phase="warm-up"),
    "no category of ours": lambda it: it["totals"][0].update(category="norm"),
    "no provenance of ours": lambda it: it["totals"][0].update(provenance="guessed"),
    "no name": lambda it: it["totals"][0].update(name=""),
    "a long name": lambda it: it["totals"][0].update(name="x" * 300),
    "a long kernel": lambda it: it["calls"][0].update(kernel="x" * 300),
    "a bucket below zero": lambda it: it["totals"][0].update(durations={"-1": 1}),
    "a bucket beyond all": lambda it: it["totals"][0].update(durations={"4096": 1}),
    "a bucket of Arabic digits": lambda it: it["totals"][0].update(durations={"\u0661": 1}),
    "a bucket written twice": lambda it: it["totals"][0].update(durations={"01": 1, "1": 1}),
    "durations in a list": lambda it: it["totals"][0].update(durations=[1]),
    "a brick twice": lambda it: it["totals"].append(it["totals"][0]),
    "too many calls": lambda it: it.update(calls=it["calls"] * MAX_TOKEN_CALLS),
    "totals that are no list": lambda it: it.update(totals={}),
    "a call within itself": lambda it: it["calls"][0].update(parent=0),
    "a call within none that is told": lambda it: it["calls"][0].update(parent=2),
    "a call that ends first": lambda it: it["calls"][0].update(end_ns=9),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_anything_else_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ToolError) as refused:
        decode_report(change(spoil))
    assert refused.value.code == "E_BAD_BRICKS"


def test_whoever_gave_a_name_that_is_too_long_is_told_how_long_it_may_be() -> None:
    with pytest.raises(ToolError) as refused:
        decode_report(change(SPOILED["a long kernel"]))
    assert "name bricks and kernels by at most 256 characters" in refused.value.remedy


@pytest.mark.parametrize("text", ["", "[]", "1", "nan", "{", "[" * 100_000, "9" * 5000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ToolError) as refused:
        decode_report(text)
    assert refused.value.code == "E_BAD_BRICKS"

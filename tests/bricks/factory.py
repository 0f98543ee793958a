"""Records of bricks as a brick run returns them, made by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_flamegate.bricks import record

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Phase


def make_totals(
    name: str,
    calls_ns: Sequence[int],
    *,
    layer: int | None = None,
    phase: Phase = "",
    elements: int = 0,
    bytes: int = 0,  # noqa: A002 - the field's name
) -> record.BrickTotals:
    """Return the totals of calls with these durations and no bricks within them."""
    return record.BrickTotals(
        name=name,
        category=record.find_category(name),
        calls=len(calls_ns),
        total_ns=sum(calls_ns),
        self_ns=sum(calls_ns),
        min_ns=min(calls_ns),
        max_ns=max(calls_ns),
        layer=layer,
        phase=phase,
        elements=elements,
        bytes=bytes,
        durations={
            str(number): count
            for number, count in Counter(map(record.find_bucket, calls_ns)).items()
        },
    )


def make_run(
    *totals: record.BrickTotals,
    wall_ns: int = 10_000,
    tokens: int = 1,
    decode_tokens: int = 0,
    pid: int = 7,
) -> record.BrickRun:
    """Return a brick run whose only thread ran these."""
    thread = record.ThreadTotals(
        "main", sum(each.self_ns for each in totals), sum(each.calls for each in totals)
    )
    return record.BrickRun(
        pid=pid,
        started_ticks=pid * 100,
        sequences=1,
        tokens=tokens,
        decode_tokens=decode_tokens,
        wall_ns=wall_ns,
        sync="none",
        totals=totals,
        lanes=(thread,),
    )

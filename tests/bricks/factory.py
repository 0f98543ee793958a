"""Bricks made by hand: what a clocked process would have handed back."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.record import (
    BrickRun,
    BrickTotals,
    ThreadTotals,
    find_bucket,
    find_category,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.record import Phase


def brick(
    name: str,
    calls_ns: Sequence[int],
    *,
    layer: int | None = None,
    phase: Phase = "",
    elements: int = 0,
    bytes: int = 0,  # noqa: A002 - the field's name
) -> BrickTotals:
    """The totals of calls that took so long, with nothing within them."""
    return BrickTotals(
        name=name,
        category=find_category(name),
        calls=len(calls_ns),
        total_ns=sum(calls_ns),
        self_ns=sum(calls_ns),
        min_ns=min(calls_ns),
        max_ns=max(calls_ns),
        layer=layer,
        phase=phase,
        elements=elements,
        bytes=bytes,
        durations=MappingProxyType(
            {str(number): count for number, count in Counter(map(find_bucket, calls_ns)).items()}
        ),
    )


def passed(
    *totals: BrickTotals,
    wall_ns: int = 10_000,
    tokens: int = 1,
    decode_tokens: int = 0,
    pid: int = 7,
) -> BrickRun:
    """One process whose only lane ran these."""
    lane = ThreadTotals(
        "main", sum(each.self_ns for each in totals), sum(each.calls for each in totals)
    )
    return BrickRun(
        pid=pid,
        started_ticks=pid * 100,
        sequences=1,
        tokens=tokens,
        decode_tokens=decode_tokens,
        wall_ns=wall_ns,
        sync="none",
        totals=totals,
        lanes=(lane,),
    )

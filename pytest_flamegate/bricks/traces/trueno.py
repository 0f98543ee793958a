"""The profile that trueno and realizar write as JSON: sums of bricks, without single calls.

Its ``total_tokens`` sums the elements of all bricks and its ``total_ns`` their times, so that
neither is taken for what it is called; its shares are computed again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_flamegate.bricks.names import category_of
from pytest_flamegate.bricks.record import BrickTotals
from pytest_flamegate.bricks.strict import Refused, loads
from pytest_flamegate.bricks.traces.ingested import (
    MAX_NAMES,
    SLACK,
    Ingested,
    contradicts,
    no_bricks,
    self_exceeds_wall,
)
from pytest_flamegate.bricks.traces.nesting import brick_name
from pytest_flamegate.errors import ReceiptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = "trueno"
MAX_BYTES = 16 << 20
_MARKS = (b'"bricks"', b'"total_ns"')
_LARGEST = 10**18
_NS = 1000
_HALF_STEP_NS = 6
"""Of a microsecond with two decimals, and a little for its own arithmetic."""
_HALF_SHARE_PP = 0.051

_refused = Refused("E_TRACE", "The trace")


class _Brick(NamedTuple):
    name: str
    calls: int
    total_ns: int
    average_us: float | None
    least_us: float | None
    most_us: float | None
    share_percent: float | None
    bytes: int


def is_trueno(data: bytes) -> bool:
    """Return whether ``data`` looks like a profile of trueno."""
    return data.lstrip()[:1] == b"{" and all(mark in data for mark in _MARKS)


def read_trueno(data: bytes) -> Ingested:
    """Return the sums of bricks.

    ``ReceiptError``: ``E_TRACE`` for what is malformed, ``E_TRACE_CONTRADICTS`` where figures of
    one brick do not fit each other, ``E_PERCENT_NESTED`` where shares sum to more than all,
    ``E_SELF_EXCEEDS_WALL`` where bricks took longer than there was. ``UndecidedError``
    ``E_NO_BRICKS`` for none.
    """
    document = loads(data, _refused, max_bytes=MAX_BYTES)
    if not isinstance(document, dict) or not isinstance(document.get("bricks"), list):
        raise _refused("it has no list of bricks")
    total_ns = _whole(document, "total_ns", "the file")
    found = [_brick(each) for each in document["bricks"][: MAX_NAMES + 1]]
    if len(found) > MAX_NAMES:
        raise _refused(f"it tells of more than {MAX_NAMES:,} bricks")
    if len({each.name for each in found}) < len(found):
        raise contradicts("one brick stands there twice")
    for each in found:
        _check(each)
    if not any(each.calls for each in found):
        raise no_bricks("The trace")
    spent_ns = sum(each.total_ns for each in found)
    notes = _shares(found, total_ns)
    if spent_ns > total_ns * (1 + SLACK):
        raise self_exceeds_wall(f"its bricks took {spent_ns:,} ns of {total_ns:,} ns")
    is_sum = spent_ns >= total_ns
    if is_sum:
        notes.append("total_ns is the sum of its bricks, and so no wall time")
    if "total_tokens" in document:
        elements = _whole(document, "total_tokens", "the file")
        notes.append(f"total_tokens ({elements:,}) sums elements of all bricks: it is no tokens")
    return Ingested(
        SOURCE, None if is_sum else total_ns, tuple(map(_totals, found)), notes=tuple(notes)
    )


def _brick(value: Any) -> _Brick:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _refused("a brick has no name")
    name = brick_name(value["name"])
    return _Brick(
        name,
        _whole(value, "count", name),
        _whole(value, "total_ns", name),
        _figure(value, "avg_us", name),
        _figure(value, "min_us", name),
        _figure(value, "max_us", name),
        _figure(value, "pct", name),
        _whole(value, "total_bytes", name) if "total_bytes" in value else 0,
    )


def _whole(fields: Mapping[str, Any], name: str, of: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise _refused(f"{of} has a {name} that is no whole number from 0")
    return value


def _figure(fields: Mapping[str, Any], name: str, of: str) -> float | None:
    if name not in fields:
        return None
    value = fields[name]
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST:
        raise _refused(f"{of} has a {name} that is no finite number from 0")
    return float(value)


def _check(brick: _Brick) -> None:
    """Refuse what cannot be true together, beyond what rounding makes of it."""
    calls, total_ns = brick.calls, brick.total_ns
    if not calls and total_ns:
        raise contradicts(f"{brick.name} took {total_ns:,} ns without a call")
    slack_ns = calls * _HALF_STEP_NS + total_ns * 1e-9
    average, least, most = (
        None if each is None else each * _NS * calls
        for each in (brick.average_us, brick.least_us, brick.most_us)
    )
    if average is not None and abs(average - total_ns) > slack_ns:
        raise contradicts(
            f"{calls:,} calls of {brick.name} at {brick.average_us:g} us are not {total_ns:,} ns"
        )
    if least is not None and least > total_ns + slack_ns:
        raise contradicts(f"{brick.name} took less than its shortest call, each time")
    if most is not None and most < total_ns - slack_ns:
        raise contradicts(f"{brick.name} took more than its longest call, each time")


def _shares(found: Sequence[_Brick], total_ns: int) -> list[str]:
    """Compute shares again; ``E_PERCENT_NESTED`` where those of the file sum to more than all."""
    told = [each.share_percent for each in found if each.share_percent is not None]
    if math.fsum(told) > 100 + len(told) * _HALF_SHARE_PP:
        raise ReceiptError(
            "E_PERCENT_NESTED",
            f"The shares of the trace's bricks sum to {math.fsum(told):.1f} %.",
            "Have the profiler count calls within calls once, in one of both.",
        )
    wrong = [
        each.name
        for each in found
        if each.share_percent is not None
        and abs(each.share_percent - 100 * each.total_ns / max(total_ns, 1)) > _HALF_SHARE_PP
    ]
    return [f"{len(wrong)} shares of the file are others than its times give"] if wrong else []


def _totals(brick: _Brick) -> BrickTotals:
    average_ns = round(brick.total_ns / max(brick.calls, 1))
    least, most = brick.least_us, brick.most_us
    return BrickTotals(
        brick.name,
        category_of(brick.name),
        brick.calls,
        brick.total_ns,
        brick.total_ns,
        average_ns if least is None else round(least * _NS),
        average_ns if most is None else round(most * _NS),
        bytes=brick.bytes,
        provenance="ingested",
    )

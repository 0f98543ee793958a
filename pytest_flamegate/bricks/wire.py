"""The record of a brick run as JSON, and back.

A brick run sends its record through a pipe that its own engine could write to as well, so reading
is strict: anything that ``encode_report`` would not write is an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pytest_flamegate.bricks.record import (
    CATEGORIES,
    MAX_COUNT,
    MAX_NAME_CHARACTERS,
    BrickCall,
    BrickTotals,
    Phase,
    Provenance,
    Recorded,
    Sync,
    ThreadTotals,
    parse_bucket,
)
from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


MAX_TOKEN_CALLS = 4096
"""Calls of one token that are sent one by one; if there are more, none is sent."""
MAX_ROWS = 16_384
_MAX_THREADS = 1024
_COUNTS = range(MAX_COUNT + 1)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrickReport:
    """The record of a brick run; ``left_out`` if a token had more than ``MAX_TOKEN_CALLS``."""

    recorded: Recorded
    left_out: bool = False


def encode_record(recorded: Recorded) -> dict[str, Any]:
    """Return ``recorded`` as dicts, lists and scalars, its fields under their own names."""
    return {
        **{each.name: getattr(recorded, each.name) for each in fields(recorded)},
        "totals": [{**_shallow(row), "durations": dict(row.durations)} for row in recorded.totals],
        "lanes": [asdict(thread) for thread in recorded.lanes],
        "calls": [asdict(call) for call in recorded.calls],
    }


def _shallow(row: BrickTotals) -> dict[str, Any]:
    return {each.name: getattr(row, each.name) for each in fields(row)}


def encode_report(report: BrickReport) -> str:
    """Return ``report`` as JSON."""
    document = {**encode_record(report.recorded), "left_out": report.left_out}
    return json.dumps(document, separators=(",", ":"))


def decode_report(text: str) -> BrickReport:
    """Parse the output of ``encode_report``. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad("it is not JSON") from None
    left_out = document.pop("left_out", None) if isinstance(document, dict) else None
    if not isinstance(left_out, bool):
        raise _bad("left_out is missing or no boolean")
    return BrickReport(decode_record(document), left_out)


def decode_record(document: object) -> Recorded:
    """Parse the output of ``encode_record``. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    recorded = _row(Recorded, document, "the record")
    rows = set()
    for row in recorded.totals:
        if (row.name, row.layer, row.phase) in rows:
            raise _bad(f"the brick {row.name!a} has two rows for one layer and phase")
        rows.add((row.name, row.layer, row.phase))
    for index, call in enumerate(recorded.calls):
        if call.parent is not None and (call.parent >= len(recorded.calls) or call.parent == index):
            raise _bad(f"the parent of call {index} is not in the record")
        if call.end_ns < call.start_ns:
            raise _bad(f"call {index} ends before it starts")
    return recorded


def _row(kind: type[T], value: object, path: str) -> T:
    known = fields(kind)  # type: ignore[arg-type]
    if not isinstance(value, dict) or value.keys() != {each.name for each in known}:
        raise _bad(f"{path} has other fields than a {kind.__name__}")
    return kind(
        **{
            each.name: _CHECKS[str(each.type)](value[each.name], f"{path}.{each.name}")
            for each in known
        }
    )


def _count(value: object, path: str) -> int:
    if type(value) is not int or value not in _COUNTS:
        raise _bad(f"{path} is not a whole number from 0")
    return value


def _count_or_none(value: object, path: str) -> int | None:
    return None if value is None else _count(value, path)


def _text(value: object, path: str) -> str:
    is_empty = value == "" and not path.endswith(".kernel")
    if not isinstance(value, str) or is_empty or len(value) > MAX_NAME_CHARACTERS:
        raise _bad(f"{path} is not a text of 1 to {MAX_NAME_CHARACTERS} characters")
    return value


def _one_of(*values: str) -> Callable[[object, str], str]:
    def check(value: object, path: str) -> str:
        if not isinstance(value, str) or value not in values:
            raise _bad(f"{path} is not one of {', '.join(map(repr, values))}")
        return value

    return check


def _rows(kind: type[T], limit: int) -> Callable[[object, str], tuple[T, ...]]:
    def check(value: object, path: str) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > limit:
            raise _bad(f"{path} is not a list of at most {limit:,}")
        return tuple(_row(kind, each, f"{path}[{index}]") for index, each in enumerate(value))

    return check


def _histogram(value: object, path: str) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise _bad(f"{path} is not an object")
    if any(parse_bucket(name) is None for name in value):
        raise _bad(f"{path} names a bucket that does not exist")
    return MappingProxyType({name: _count(calls, path) for name, calls in value.items()})


_CHECKS: Mapping[str, Callable[[object, str], Any]] = {
    "str": _text,
    "int": _count,
    "int | None": _count_or_none,
    "Category": _one_of(*CATEGORIES),
    "Phase": _one_of(*get_args(Phase)),
    "Sync": _one_of(*get_args(Sync)),
    "Provenance": _one_of(*get_args(Provenance)),
    "Mapping[str, int]": _histogram,
    "tuple[BrickTotals, ...]": _rows(BrickTotals, MAX_ROWS),
    "tuple[ThreadTotals, ...]": _rows(ThreadTotals, _MAX_THREADS),
    "tuple[BrickCall, ...]": _rows(BrickCall, MAX_TOKEN_CALLS),
}


def missing_record_error() -> ToolError:
    """Build the error for a process that ended its brick run and sent no record."""
    return _bad("it sent none")


def _bad(why: str) -> ToolError:
    return ToolError(
        "E_BAD_BRICKS",
        f"The process's record of its bricks cannot be read: {why}.",
        "Mark bricks through pytest_flamegate.bricks alone, name bricks and kernels by at most "
        f"{MAX_NAME_CHARACTERS} characters, and write nothing to the pipe.",
    )

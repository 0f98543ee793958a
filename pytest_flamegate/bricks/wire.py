"""What a profiler recorded as plain data, and back: read strictly, for an engine may have told it.

A process tells what it recorded through a pipe that its own engine could write to as well.
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
"""Calls of one token that are told one by one; of more, none is."""
MAX_ROWS = 16_384
_MOST_LANES = 1024
_FIGURES = range(MAX_COUNT + 1)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrickReport:
    """What a process told of its pass; ``left_out`` where a token took more than MOST_CALLS."""

    recorded: Recorded
    left_out: bool = False


def encode_record(recorded: Recorded) -> dict[str, Any]:
    """Return ``recorded`` as dicts, lists and scalars, its fields under their own names."""
    return {
        **{each.name: getattr(recorded, each.name) for each in fields(recorded)},
        "totals": [{**_flat(row), "durations": dict(row.durations)} for row in recorded.totals],
        "lanes": [asdict(lane) for lane in recorded.lanes],
        "calls": [asdict(call) for call in recorded.calls],
    }


def _flat(row: BrickTotals) -> dict[str, Any]:
    return {each.name: getattr(row, each.name) for each in fields(row)}


def encode_report(told: BrickReport) -> str:
    """Return ``told`` as JSON."""
    return json.dumps(
        {**encode_record(told.recorded), "left_out": told.left_out}, separators=(",", ":")
    )


def decode_report(text: str) -> BrickReport:
    """Return what ``tell`` wrote. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad("it is no JSON") from None
    left_out = document.pop("left_out", None) if isinstance(document, dict) else None
    if not isinstance(left_out, bool):
        raise _bad("it does not say whether calls were left out")
    return BrickReport(decode_record(document), left_out)


def decode_record(document: object) -> Recorded:
    """Return what ``plain`` made plain. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    recorded = _row(Recorded, document, "it")
    seen = set()
    for row in recorded.totals:
        if (row.name, row.layer, row.phase) in seen:
            raise _bad(f"the brick {row.name!a} stands twice in one layer and phase")
        seen.add((row.name, row.layer, row.phase))
    for index, call in enumerate(recorded.calls):
        if call.parent is not None and (call.parent >= len(recorded.calls) or call.parent == index):
            raise _bad(f"the call {index} ran within one that is not told")
        if call.end_ns < call.start_ns:
            raise _bad(f"the call {index} ended before it began")
    return recorded


def _row(kind: type[T], told: object, what: str) -> T:
    known = fields(kind)  # type: ignore[arg-type]
    if not isinstance(told, dict) or told.keys() != {each.name for each in known}:
        raise _bad(f"{what} has other fields than a {kind.__name__} has")
    return kind(
        **{
            each.name: _CHECKS[str(each.type)](told[each.name], f"{what}.{each.name}")
            for each in known
        }
    )


def _figure(told: object, what: str) -> int:
    if type(told) is not int or told not in _FIGURES:
        raise _bad(f"{what} is no whole number from 0 up")
    return told


def _figure_or_none(told: object, what: str) -> int | None:
    return None if told is None else _figure(told, what)


def _text(told: object, what: str) -> str:
    empty = told == "" and not what.endswith(".kernel")
    if not isinstance(told, str) or empty or len(told) > MAX_NAME_CHARACTERS:
        raise _bad(f"{what} is no text of 1 to {MAX_NAME_CHARACTERS} characters")
    return told


def _one_of(*values: str) -> Callable[[object, str], str]:
    def check(told: object, what: str) -> str:
        if not isinstance(told, str) or told not in values:
            raise _bad(f"{what} is none of {', '.join(map(repr, values))}")
        return told

    return check


def _rows(kind: type[T], most: int) -> Callable[[object, str], tuple[T, ...]]:
    def check(told: object, what: str) -> tuple[T, ...]:
        if not isinstance(told, list) or len(told) > most:
            raise _bad(f"{what} is no list of at most {most:,}")
        return tuple(_row(kind, each, f"{what}[{index}]") for index, each in enumerate(told))

    return check


def _histogram(told: object, what: str) -> Mapping[str, int]:
    if not isinstance(told, dict):
        raise _bad(f"{what} is no object")
    if any(parse_bucket(name) is None for name in told):
        raise _bad(f"{what} names a bucket that there is not")
    return MappingProxyType({name: _figure(calls, what) for name, calls in told.items()})


_CHECKS: Mapping[str, Callable[[object, str], Any]] = {
    "str": _text,
    "int": _figure,
    "int | None": _figure_or_none,
    "Category": _one_of(*CATEGORIES),
    "Phase": _one_of(*get_args(Phase)),
    "Sync": _one_of(*get_args(Sync)),
    "Provenance": _one_of(*get_args(Provenance)),
    "Mapping[str, int]": _histogram,
    "tuple[BrickTotals, ...]": _rows(BrickTotals, MAX_ROWS),
    "tuple[Lane, ...]": _rows(ThreadTotals, _MOST_LANES),
    "tuple[BrickCall, ...]": _rows(BrickCall, MAX_TOKEN_CALLS),
}


def missing_record_error() -> ToolError:
    """Return the refusal of a process that ended its pass without a word of its bricks."""
    return _bad("it told nothing")


def _bad(why: str) -> ToolError:
    return ToolError(
        "E_BAD_BRICKS",
        f"What the process tells of its bricks cannot be read: {why}.",
        "Mark bricks through pytest_flamegate.bricks alone, name bricks and kernels by at most "
        f"{MAX_NAME_CHARACTERS} characters, and write nothing to the pipe.",
    )

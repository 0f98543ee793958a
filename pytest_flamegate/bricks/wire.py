"""The record of a brick run as JSON, and back.

A brick run sends its record through a pipe that its own engine could write to as well, so reading
is strict: anything that ``encode_report`` would not write is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pytest_flamegate.bricks.record import MAX_NAME_CHARACTERS, Recorded, parse_bucket
from pytest_flamegate.core.errors import FlamegateError, ToolError


@dataclass(frozen=True, slots=True)
class BrickReport:
    """The record of a brick run; ``left_out`` if a token had more than ``MAX_TOKEN_CALLS``."""

    recorded: Recorded
    left_out: bool = False


def encode_report(report: BrickReport) -> str:
    """Return ``report`` as JSON, the fields of the record under their own names."""
    document = {**_encode(report.recorded), "left_out": report.left_out}
    return json.dumps(document, separators=(",", ":"), default=_encode)


def _encode(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    return {each.name: getattr(value, each.name) for each in fields(value)}


def decode_report(text: str) -> BrickReport:
    """Parse the output of ``encode_report``. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    # Imported here: the measured process only encodes, and its interpreter may lack msgspec.
    from pytest_flamegate.core.json import EVIDENCE_LIMITS, parse_json

    try:
        document = parse_json(text.encode("utf-8", "replace"), EVIDENCE_LIMITS)
    except FlamegateError as error:
        raise _bad(error.problem) from None
    left_out = document.pop("left_out", None) if isinstance(document, dict) else None
    if not isinstance(left_out, bool):
        raise _bad("left_out is missing or no boolean")
    return BrickReport(decode_record(document), left_out)


def decode_record(document: object) -> Recorded:
    """Parse the fields of a record. ``ToolError`` ``E_BAD_BRICKS`` for anything else."""
    from pytest_flamegate.core.json import decode_plain

    try:
        recorded = decode_plain(document, Recorded, subject="the record")
    except FlamegateError as error:
        raise _bad(error.problem.rstrip(".")) from None
    rows = set()
    for row in recorded.totals:
        if (row.name, row.layer, row.phase) in rows:
            raise _bad(f"the brick {row.name!a} has two rows for one layer and phase")
        rows.add((row.name, row.layer, row.phase))
        if any(parse_bucket(name) is None for name in row.durations):
            raise _bad(f"the brick {row.name!a} has calls in a bucket that does not exist")
    for index, call in enumerate(recorded.calls):
        if call.parent is not None and (call.parent >= len(recorded.calls) or call.parent == index):
            raise _bad(f"the parent of call {index} is not in the record")
        if call.end_ns < call.start_ns:
            raise _bad(f"call {index} ends before it starts")
    return recorded


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

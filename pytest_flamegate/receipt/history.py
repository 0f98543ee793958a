"""Append-only JSON lines: what every gated run came to, and every gate of unchanged code.

Nothing rewrites such a file. What a crash cut off at its end is dropped, what was spoilt
in its middle left out; both are said, and no other line is lost for them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt import schema, store, strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

T = TypeVar("T")
MAX_BYTES = 256 << 20
_TOLD = 8


@dataclass(frozen=True, slots=True)
class Lines(Generic[T]):
    """The lines that can be read, oldest first, and a sentence for what cannot."""

    lines: tuple[T, ...] = ()
    warnings: tuple[str, ...] = ()


def read(path: Path, decode: Callable[[object], T]) -> Lines[T]:
    """Return what ``decode`` makes of each line of ``path``; none where there is no file.

    ``decode`` raises ``ReceiptError`` for a document that is no such line. Of many spoilt
    lines the first few are named, the others counted. Raises ``ToolError`` or
    ``ReceiptError`` where the file as a whole cannot be read or is larger than 256 MiB.
    """
    if not os.path.lexists(path):
        return Lines()
    *whole, last = store.read_bounded(path, MAX_BYTES).split(b"\n")
    lines, spoilt = [], []
    for number, data in enumerate(whole, 1):
        if not data:
            continue
        try:
            lines.append(decode(strict_json.loads(data)))
        except ReceiptError as error:
            spoilt.append(f"Line {number} of {path} does not count: {error.what}")
    told = spoilt[:_TOLD]
    if len(spoilt) > _TOLD:
        told.append(f"{len(spoilt) - _TOLD:,} more lines of {path} do not count either.")
    if last:
        # A line is acknowledged only once its newline is on the disk.
        told.append(f"Line {len(whole) + 1} of {path} does not count: a crash cut it off.")
    return Lines(tuple(lines), tuple(told))


def append(path: Path, line: Mapping[str, object]) -> None:
    """Append one line, durably. Raises ``ToolError`` where the system refuses."""
    store.append_line(path, json.dumps(line, ensure_ascii=False, allow_nan=False).encode())


def append_run(path: Path, line: Mapping[str, object]) -> None:
    """Append one gated run; ``ReceiptError`` ``E_HISTORY_SCHEMA`` where ``line`` is none."""
    versioned = {"schema_version": schema.VERSION, **line}
    _check(versioned)
    append(path, versioned)


def read_runs(path: Path) -> Lines[Mapping[str, object]]:
    """Return the gated runs; lines from before they had a version count too."""
    return read(path, _run)


def _run(document: object) -> Mapping[str, object]:
    if not isinstance(document, dict):
        raise ReceiptError("E_HISTORY_SCHEMA", "It is no object.", "Remove the line.")
    versioned = {"schema_version": schema.VERSION, **document}
    _check(versioned)
    return versioned


def _check(line: Mapping[str, object]) -> None:
    for fault in schema.validate(line, "history")[:1]:
        raise ReceiptError(fault.code, fault.message, fault.todo)

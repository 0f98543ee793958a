"""An execution graph by any of its names: a run's directory, its bricks, a document, a trace.

Another kind of file is one line in ``READERS``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.bricks.graph import from_document, graph_of, is_document
from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.bricks.traces import is_trace, read_trace
from pytest_flamegate.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.paths import is_file
from pytest_flamegate.profile.importing import read_file, unpacked
from pytest_flamegate.receipt import strict_json
from pytest_flamegate.receipt.codec import from_plain
from pytest_flamegate.receipt.shelves import BRICKS, EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_flamegate.bricks.graph import ExecutionGraph

MAX_BYTES = strict_json.EVIDENCE_MAX_BYTES


class Reader(NamedTuple):
    """A kind of document: whether parsed JSON is of it, and the graph that it tells."""

    recognises: Callable[[object], bool]
    read: Callable[[object], ExecutionGraph]


def open_graph(path: Path) -> ExecutionGraph:
    """Return the graph that ``path`` leads to: a run's directory, its evidence, or ``READERS``.

    Raises ``UsageError`` ``E_NO_RUN`` for a directory without recorded bricks, ``ReceiptError``
    ``E_UNKNOWN_FORMAT`` for JSON of another kind, ``UndecidedError`` ``E_NO_CALLS`` for a trace
    without single calls, ``ToolError`` ``E_CANNOT_READ``, and what the strict reading of JSON, of
    the document and of the trace raises.
    """
    if path.name == EVIDENCE:
        path = path.parent  # it holds the sums; the calls stand beside it
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        if not is_file(path / BRICKS):
            raise UsageError(
                "E_NO_RUN",
                f"{str(path)!a} holds no {BRICKS}.",
                "Measure with --flamegate-bricks, and give the directory of that run.",
            )
        path = path / BRICKS
    data = read_file(path)
    if is_trace(unpacked(data)):
        return _traced(data, path)
    document = strict_json.loads(data, max_bytes=MAX_BYTES)
    for reader in READERS:
        if reader.recognises(document):
            return reader.read(document)
    raise ReceiptError(
        "E_UNKNOWN_FORMAT",
        f"{str(path)!a} is JSON and tells no execution graph.",
        f"Give a run's {BRICKS}, what flamegate bricks PATH --json wrote, or a trace of "
        "torch.profiler, Chrome or onnxruntime.",
    )


def _traced(data: bytes, path: Path) -> ExecutionGraph:
    """Return the graph of the calls that another profiler clocked."""
    found = read_trace(data, str(path))
    if not found.calls:
        raise UndecidedError(
            "E_NO_CALLS",
            f"{str(path)!a} ({found.source}) tells sums, or more calls than a graph can show.",
            "Say --table for its sums, or give a trace with single calls, of a shorter time.",
        )
    return graph_of(found.calls)


def _is_recorded(document: object) -> bool:
    return isinstance(document, dict) and "calls" in document


def _recorded(document: object) -> ExecutionGraph:
    assert isinstance(document, dict)
    calls: tuple[BrickCall, ...] = from_plain(
        tuple[BrickCall, ...],
        document["calls"],
        ".calls",
    )
    return graph_of(calls)


READERS = (
    Reader(is_document, from_document),
    Reader(_is_recorded, _recorded),
)

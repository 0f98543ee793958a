"""An execution graph by any of its names: a run's directory, its bricks, a document, a trace.

Another kind of file is one line in ``READERS``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core import json_old
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.files import read_bounded
from pytest_flamegate.core.json_old import EVIDENCE_MAX_BYTES, from_plain
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.document import from_document, is_document
from pytest_flamegate.graph.table import tabulate_runs, tabulate_totals
from pytest_flamegate.graph.traces import is_trace, read_trace
from pytest_flamegate.profile.formats.registry import read_file, unpack
from pytest_flamegate.receipt.artifacts import BRICKS, EVIDENCE
from pytest_flamegate.receipt.documents import decode_evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_flamegate.graph.graph import ExecutionGraph
    from pytest_flamegate.graph.ingested import IngestedTrace
    from pytest_flamegate.graph.table import BrickTable


MAX_BYTES = json_old.EVIDENCE_MAX_BYTES


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
    if is_trace(unpack(data)):
        return _traced(data, path)
    document = json_old.loads(data, max_bytes=MAX_BYTES)
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
    return build_graph(found.calls)


def _is_recorded(document: object) -> bool:
    return isinstance(document, dict) and "calls" in document


def _recorded(document: object) -> ExecutionGraph:
    assert isinstance(document, dict)
    calls: tuple[BrickCall, ...] = from_plain(
        tuple[BrickCall, ...],
        document["calls"],
        ".calls",
    )
    return build_graph(calls)


READERS = (
    Reader(is_document, from_document),
    Reader(_is_recorded, _recorded),
)

_ALL = 1 << 30
"""More rows than any table has."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What stands at ``name``: the whole table of bricks, and what else a trace tells.

    ``table`` is None only where a trace tells dispatches of ``kernels`` and no time at all.
    ``medians_us`` are of phases that the engine told line by line.
    """

    name: str
    table: BrickTable | None
    notes: tuple[str, ...] = ()
    kernels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    medians_us: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


def open_sums(path: Path) -> Sums:
    """Return the sums that ``path`` leads to: a run's directory, a file in it, or a trace.

    Raises ``UsageError`` ``E_NO_RUN`` where no evidence stands, ``UndecidedError``
    ``E_NO_BRICKS`` where it tells of no brick, ``ToolError`` ``E_CANNOT_READ``, and what the
    strict reading of evidence and of the trace raises.
    """
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        return _measured(path)
    if path.name in (BRICKS, EVIDENCE):
        return _measured(path.parent)
    return _ingested(read_trace(read_file(path), str(path)), path.name)


def _measured(directory: Path) -> Sums:
    """Return the sums of the passes that the evidence of a run tells."""
    path = directory / EVIDENCE
    if not is_file(path):
        raise UsageError(
            "E_NO_RUN",
            f"{str(directory)!a} holds no {EVIDENCE}.",
            "Measure with --flamegate-bricks, and give the directory of that run or a trace.",
        )
    evidence = decode_evidence(read_bounded(path, EVIDENCE_MAX_BYTES))
    return Sums(str(evidence.workload.get("name", "")), tabulate_runs(evidence.bricks, top=_ALL))


def _ingested(found: IngestedTrace, name: str) -> Sums:
    if not found.totals:  # a trace that tells of neither is refused where it is read
        return Sums(name, None, found.notes, found.kernels)
    table = tabulate_totals(
        found.totals,
        wall_ns=found.wall_ns or 0,
        top=_ALL,
        tokens=found.tokens or 0,
        lanes=len(found.lanes),
    )
    return Sums(name, table, found.notes, found.kernels, found.medians_us)

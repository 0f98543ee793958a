"""What bricks took in sum, by any of its names: a run's directory or evidence, a trace."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.table import table_of, tabulate
from pytest_flamegate.bricks.traces import read_trace
from pytest_flamegate.errors import UsageError
from pytest_flamegate.paths import is_file
from pytest_flamegate.profile.importing import read_file
from pytest_flamegate.receipt.build import decode_evidence
from pytest_flamegate.receipt.shelves import BRICKS, EVIDENCE
from pytest_flamegate.receipt.store import read_bounded
from pytest_flamegate.receipt.strict_json import EVIDENCE_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.bricks.table import Table
    from pytest_flamegate.bricks.traces import Ingested

_ALL = 1 << 30
"""More rows than any table has."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What stands at ``name``: the whole table of bricks, and what else a trace tells.

    ``table`` is None only where a trace tells dispatches of ``kernels`` and no time at all.
    ``medians_us`` are of phases that the engine told line by line.
    """

    name: str
    table: Table | None
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
    return Sums(str(evidence.workload.get("name", "")), table_of(evidence.bricks, top=_ALL))


def _ingested(found: Ingested, name: str) -> Sums:
    if not found.totals:  # a trace that tells of neither is refused where it is read
        return Sums(name, None, found.notes, found.kernels)
    table = tabulate(
        found.totals,
        wall_ns=found.wall_ns or 0,
        top=_ALL,
        tokens=found.tokens or 0,
        lanes=len(found.lanes),
    )
    return Sums(name, table, found.notes, found.kernels, found.medians_us)

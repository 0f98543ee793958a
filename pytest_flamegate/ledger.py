"""The ledger as a file: one line for each gate of unchanged code, appended and never rewritten."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.gate.ledger import LedgerLine
from pytest_flamegate.receipt import strict_json
from pytest_flamegate.receipt.codec import from_plain, to_plain
from pytest_flamegate.receipt.disk import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.calibrated import Calibration
    from pytest_flamegate.gate.ledger import AaGate
    from pytest_flamegate.receipt.shelves import Shelves

_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines that can be read, and a sentence for each that cannot."""

    lines: tuple[LedgerLine, ...]
    warnings: tuple[str, ...] = ()


def enter(
    shelves: Shelves, calibration: Calibration, drop_pct: float, gates: Iterable[AaGate]
) -> None:
    """Append the gates that a calibration's pairs made."""
    for gate in gates:
        line = LedgerLine(
            created=calibration.created,
            machine=calibration.machine_id,
            workload=calibration.workload,
            engine=calibration.engine,
            recipe_sha256=calibration.recipe_sha256,
            flamegate_version=calibration.flamegate_version,
            via="calibrate",
            threshold_pct=drop_pct,
            pairs=len(gate.differences),
            decision=gate.decision,
            change_pct=gate.change_pct,
            differences=gate.differences,
        )
        shelves.enter(to_plain(line))


def read(shelves: Shelves) -> Ledger:
    """Read the ledger; empty where there is none.

    A line that a crash cut off, or that somebody spoilt, is named and left out. Raises
    ``ToolError`` or ``ReceiptError`` where the file as a whole cannot be read.
    """
    if not os.path.lexists(shelves.ledger):
        return Ledger(())
    lines, warnings = [], []
    for number, data in enumerate(read_bounded(shelves.ledger, _MAX_BYTES).split(b"\n"), 1):
        if not data:
            continue
        try:
            lines.append(from_plain(LedgerLine, strict_json.loads(data)))
        except ReceiptError as error:
            warnings.append(f"Line {number} of {shelves.ledger} does not count: {error.what}")
    return Ledger(tuple(lines), tuple(warnings))

"""The ledger as a file: one line for each gate of unchanged code, appended and never rewritten."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_flamegate.gate.ledger import LedgerLine
from pytest_flamegate.receipt import history
from pytest_flamegate.receipt.codec import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.calibrated import Calibration
    from pytest_flamegate.gate.ledger import AaGate
    from pytest_flamegate.receipt.history import Lines
    from pytest_flamegate.receipt.shelves import Shelves


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


def read(shelves: Shelves) -> Lines[LedgerLine]:
    """Read the ledger; empty where there is none.

    A line that a crash cut off, or that somebody spoilt, is named and left out. Raises
    ``ToolError`` or ``ReceiptError`` where the file as a whole cannot be read.
    """
    return history.read(shelves.ledger, partial(from_plain, LedgerLine))

"""Where things stand under ``.flamegate``: latest runs, accepted baselines, history."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from glob import escape
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ReceiptError
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.build import decode_evidence
from pytest_flamegate.receipt.codec import from_plain, to_plain
from pytest_flamegate.receipt.strict_json import (
    EVIDENCE_MAX_BYTES,
    RECEIPT_MAX_BYTES,
    dumps,
    loads,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.receipt.types import Batch, Evidence

RECEIPT, EVIDENCE = "receipt.json", "evidence.json"
FOLDED, PICTURE, PAGE = "profile.folded", "flamegraph.svg", "flamegraph.md"
INTERACTIVE = "flamegraph.html"
VERDICT = "verdict.json"
DECODE, DECODE_FOLDED, DECODE_PICTURE = "decode.json", "decode.folded", "decode.svg"
"""Decode alone, by subtraction, where it was asked for."""
INSTRUCTIONS, INSTRUCTIONS_PICTURE = "instructions.folded", "instructions.svg"
"""What was counted beside what was sampled, where that was asked for."""
BASE_EVIDENCE, BASE_FOLDED = "base-evidence.json", "base-profile.folded"
BASE_INSTRUCTIONS = "base-instructions.folded"
"""What was seen of the other side: of the base, or of the accepted baseline."""
DIFFERENCE = "diff.svg"
"""What changed from the other side to this one."""
DESCRIBED = "profile.speedscope.json"
"""How an imported profile was taken, and its stacks once more: it has no evidence."""
BATCHES = "batches.json"
"""The measurements that an accepted baseline rests on, one entry each."""
FILES = (
    *(RECEIPT, EVIDENCE, FOLDED, PICTURE, INTERACTIVE, PAGE),
    *(DECODE, DECODE_FOLDED, DECODE_PICTURE),
    *(INSTRUCTIONS, INSTRUCTIONS_PICTURE, VERDICT),
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """An accepted measurement: its directory, its evidence, and the machine it is for.

    ``batches`` are the measurements of the same code that were accepted so far, oldest first.
    """

    directory: Path
    evidence: Evidence
    machine_id: str
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class Shelves:
    """The artifact directory. Nothing is made before there is something to keep."""

    root: Path

    def latest(self, workload: str) -> Path:
        """Return where the last run of ``workload`` stands."""
        return store.inside(self.root / "latest", workload)

    def accepted(self, machine_id: str, workload: str) -> Path:
        """Return where the baseline of ``workload`` stands for that class of machine."""
        return store.inside(store.inside(self.root / "baselines", machine_id), workload)

    def machines_with(self, workload: str) -> tuple[str, ...]:
        """Return the machine classes that have a baseline of ``workload``."""
        # A variant's name, decode[i2s], would be read as a pattern.
        found = (self.root / "baselines").glob(f"*/{escape(workload)}/{EVIDENCE}")
        return tuple(sorted(path.parents[1].name for path in found))

    def baselines(self) -> tuple[tuple[str, str, Path], ...]:
        """Return machine class, workload and directory of every baseline, in order."""
        found = sorted((self.root / "baselines").glob(f"*/*/{EVIDENCE}"))
        return tuple((p.parents[1].name, p.parent.name, p.parent) for p in found)

    def remove(self, directory: Path) -> None:
        """Remove one baseline."""
        store.clear(directory)

    def probe(self, machine_id: str | None = None) -> None:
        """Make sure that a run can be kept, and a baseline of ``machine_id`` accepted."""
        store.probe(self.root / "latest")
        if machine_id is not None:
            store.probe(store.inside(self.root / "baselines", machine_id))

    def clear(self, workload: str) -> None:
        """Remove the last run: what it said must not outlive the next one's failure."""
        store.clear(self.latest(workload))

    def publish(self, workload: str, files: Mapping[str, bytes]) -> Path:
        """Write one run's files, all or none."""
        store.ensure_gitignore(self.root)
        directory = self.latest(workload)
        store.publish(directory, files)
        return directory

    def accept(self, machine_id: str, workload: str, files: Mapping[str, bytes]) -> Path:
        """Make a run's files the baseline, all or none."""
        directory = self.accepted(machine_id, workload)
        store.publish(directory, files)
        return directory

    def baseline(self, machine_id: str, workload: str) -> Baseline | None:
        """Read the baseline for this machine class; fall back to another machine's.

        None where nothing was ever accepted. ``ReceiptError`` ``E_BASELINE_CORRUPT``
        where it cannot be read as what was written.
        """
        machines = self.machines_with(workload)
        if not machines:
            return None
        chosen = machine_id if machine_id in machines else machines[0]
        directory = self.accepted(chosen, workload)
        return Baseline(directory, read_evidence(directory), chosen, _read_batches(directory))

    def record(self, line: Mapping[str, object]) -> None:
        """Append one gated run to the history."""
        _append(self.root / "history" / "runs.jsonl", line)

    def calibration(self, machine_id: str, workload: str) -> Path:
        """Return where the calibration of ``workload`` stands for that class of machine."""
        shelf = store.inside(self.root / "calibration", machine_id)
        return store.inside(shelf, f"{workload}.json")

    def calibrate(self, machine_id: str, workload: str, data: bytes) -> Path:
        """Make ``data`` the calibration of ``workload`` on that class of machine."""
        store.ensure_gitignore(self.root)
        path = self.calibration(machine_id, workload)
        store.write_atomic(path, data)
        return path

    @property
    def ledger(self) -> Path:
        """Where every gate that compared code with itself stands, one line each."""
        return self.root / "history" / "ledger.jsonl"

    def enter(self, line: Mapping[str, object]) -> None:
        """Append one gate of unchanged code to the ledger. Nothing ever rewrites it."""
        _append(self.ledger, line)


def _append(path: Path, line: Mapping[str, object]) -> None:
    store.append_line(path, json.dumps(line, ensure_ascii=False, allow_nan=False).encode())


def read_evidence(directory: Path) -> Evidence:
    """Read the evidence of a baseline; whatever is wrong with it is ``E_BASELINE_CORRUPT``."""
    path = directory / EVIDENCE
    try:
        return decode_evidence(store.read_bounded(path, EVIDENCE_MAX_BYTES))
    except FlamegateError as error:
        raise _corrupt(path, error) from None


def encode_batches(batches: tuple[Batch, ...]) -> bytes:
    """Return the content of the file that ``Baseline.batches`` is read from."""
    return dumps(to_plain(_Batches(batches)))


def _read_batches(directory: Path) -> tuple[Batch, ...]:
    path = directory / BATCHES
    if not os.path.lexists(path):
        return ()
    try:
        return from_plain(_Batches, loads(store.read_bounded(path, RECEIPT_MAX_BYTES))).batches
    except FlamegateError as error:
        raise _corrupt(path, error) from None


@dataclass(frozen=True, slots=True)
class _Batches:
    batches: tuple[Batch, ...]


def _corrupt(path: Path, error: FlamegateError) -> ReceiptError:
    return ReceiptError(
        "E_BASELINE_CORRUPT",
        f"The baseline {path} cannot be used: {error.what}",
        "Restore it from version control, or accept a new one with --flamegate-update.",
    )

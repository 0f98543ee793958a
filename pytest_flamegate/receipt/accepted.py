"""An accepted baseline as it stands on disk: its files, and the record that binds them.

``baseline.json`` names every file accepted beside it by its sha256. What was edited, torn
or mixed with the files of another run afterwards is so found before anything is held to it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ReceiptError
from pytest_flamegate.receipt import schema, strict_json
from pytest_flamegate.receipt.beneath import read_beneath
from pytest_flamegate.receipt.build import decode_evidence
from pytest_flamegate.receipt.codec import from_plain, to_plain
from pytest_flamegate.receipt.strict_json import EVIDENCE_MAX_BYTES, RECEIPT_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pytest_flamegate.receipt.types import Batch, Evidence

RECORD = "baseline.json"
"""What was accepted: by its digests, and the measurements that it rests on."""
OLD_RECORD = "batches.json"
"""What stood there before there were digests: the measurements alone."""
EVIDENCE = "evidence.json"
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Record:
    """What ``baseline.json`` holds. ``files`` has the sha256 of each file beside it.

    ``batches`` are the measurements of the same code accepted so far, oldest first.
    """

    workload: str
    machine: str
    accepted: str
    files: Mapping[str, str]
    batches: tuple[Batch, ...]
    schema_version: str = schema.VERSION


@dataclass(frozen=True, slots=True)
class _OldRecord:
    batches: tuple[Batch, ...] = field(default=())


def encode(record: Record) -> bytes:
    """Return the content of ``baseline.json``."""
    return strict_json.dumps({"schema_version": record.schema_version, **to_plain(record)})


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each file, in hexadecimal, by its name."""
    return {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}


def read(directory: Path, known: Collection[str]) -> tuple[Evidence, tuple[Batch, ...]]:
    """Return a baseline's evidence and batches, its files checked against its record.

    One from before there were records has no digests, and stays readable. ``known`` are the
    names that a baseline's files can have: others may stand beside them. ``ReceiptError``
    ``E_BASELINE_CORRUPT`` where anything is not what was accepted; it names the file.
    """
    for left in reversed(range(_TRIES)):
        before = _identity(directory)
        try:
            return _read(directory, known)
        except ReceiptError:
            # Accepted anew while we read: half of what we saw is of the one before.
            if not left or _identity(directory) == before:
                raise
    raise AssertionError


def _read(directory: Path, known: Collection[str]) -> tuple[Evidence, tuple[Batch, ...]]:
    batches: tuple[Batch, ...] = ()
    if os.path.lexists(directory / RECORD):
        record = _record(directory / RECORD)
        _check(directory, record, known)
        batches = record.batches
    elif os.path.lexists(directory / OLD_RECORD):
        path = directory / OLD_RECORD
        try:
            batches = from_plain(_OldRecord, strict_json.loads(_bytes(path))).batches
        except ReceiptError as error:
            raise corrupt(path, error.what) from None
    path = directory / EVIDENCE
    try:
        return decode_evidence(_bytes(path, EVIDENCE_MAX_BYTES)), batches
    except FlamegateError as error:
        raise corrupt(path, error.what) from None


def _record(path: Path) -> Record:
    try:
        document = strict_json.loads(_bytes(path))
        for fault in schema.validate(document, "baseline")[:1]:
            raise ReceiptError(fault.code, fault.message, fault.todo)
        return from_plain(Record, document)
    except FlamegateError as error:
        raise corrupt(path, error.what) from None


def _check(directory: Path, record: Record, known: Collection[str]) -> None:
    for name, sha256 in record.files.items():
        path = directory / name
        if not os.path.lexists(path):
            raise corrupt(path, "it was accepted, and is gone.")
        if hashlib.sha256(_bytes(path, EVIDENCE_MAX_BYTES)).hexdigest() != sha256:
            raise corrupt(path, f"it is not what was accepted: its sha256 is not {sha256[:12]}….")
    if EVIDENCE not in record.files:
        raise corrupt(directory / RECORD, f"it does not name {EVIDENCE}.")
    for name in sorted(set(known) - record.files.keys()):
        if os.path.lexists(directory / name):
            raise corrupt(directory / name, "it stands there, and was never accepted.")


def _bytes(path: Path, limit: int = RECEIPT_MAX_BYTES) -> bytes:
    # <root>/baselines/<machine>/<workload>/<file>: committed, so a link in it is anybody's.
    *_, shelf, machine, workload, name = path.parts
    try:
        return read_beneath(path.parents[3], shelf, machine, workload, name, limit=limit)
    except FlamegateError as error:
        raise corrupt(path, error.what) from None


def corrupt(path: Path, why: str) -> ReceiptError:
    """Return the refusal of a baseline for what is wrong with one of its files."""
    return ReceiptError(
        "E_BASELINE_CORRUPT",
        f"The baseline {path} cannot be used: {why}",
        "Restore it from version control, or accept a new one with --flamegate-update.",
    )


def _identity(directory: Path) -> tuple[int, int, int] | None:
    try:
        found = directory.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns

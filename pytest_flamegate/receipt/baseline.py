"""The files of a stored run, an accepted baseline, and the record ``baseline.json`` that binds it.

The record names every accepted file by its SHA-256. An edit, a torn file or a file of another
run is found before any run is compared with the baseline.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.files import MAX_BYTES, read_beneath, read_bounded
from pytest_flamegate.core.json import (
    NonEmpty,
    Sha256,
    Timestamp,
    decode_json,
    encode_json,
    encode_plain,
)
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.types import Evidence

RECEIPT, EVIDENCE, FOLDED = "receipt.json", "evidence.json", "profile.folded"
ATTESTATION = "attestation.dsse.json"
PICTURE, PAGE = "flamegraph.svg", "flamegraph.md"
INTERACTIVE = "flamegraph.html"
VERDICT = "verdict.json"
BRICKS = "bricks.json"
"""The last record of the brick clock, with the calls of the last token."""
LINES = "lines.folded"
"""Samples by the project's lines, next to the profile; no evidence, and no part of a baseline."""
INSTRUCTIONS, INSTRUCTIONS_PICTURE = "instructions.folded", "instructions.svg"
"""Instruction counts, if they were asked for."""
SIDE_FILES = (RECEIPT, EVIDENCE, FOLDED, LINES, INSTRUCTIONS)
"""The files that each side of a comparison has."""
BASE = "base-"
"""How the files of the other side begin: of the base revision, or of the accepted baseline."""
DIFFERENCE = "diff.svg"
DESCRIBED = "profile.speedscope.json"
"""How an imported profile was taken, with its stacks: it has no evidence."""
DIGESTED_FILES = (
    *(RECEIPT, EVIDENCE, FOLDED, PICTURE, INTERACTIVE, PAGE),
    *(INSTRUCTIONS, INSTRUCTIONS_PICTURE, VERDICT),
)
"""The files that a baseline's record names by their digests."""
BASELINE_FILES = (*DIGESTED_FILES, ATTESTATION)
"""The files of a baseline. It may be signed after it was accepted, and more than once."""
RECORD = "baseline.json"

_LOADED_FILES = (RECEIPT, EVIDENCE, FOLDED, INSTRUCTIONS)
_READ_TRIES = 5

FileName = Annotated[
    str, Meta(pattern=r"^[^./][^/]*(?![\s\S])", description="a file name without a directory")
]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One side of the run whose files are in ``directory``: the head's, or those of ``BASE``.

    Others may have written them. Whatever has the name of a file counts as that file, and only a
    regular file is read: a link, dangling or not, is an error, and is neither followed nor skipped.
    """

    directory: Path
    side: str = ""

    @classmethod
    def of_file(cls, path: Path) -> tuple["StoredRun", str]:
        """Return the side that a file belongs to, and how the file is called on that side."""
        name = path.name.removeprefix(BASE)
        is_base = name != path.name and name in SIDE_FILES
        return (cls(path.parent, BASE), name) if is_base else (cls(path.parent), path.name)

    @property
    def base(self) -> "StoredRun":
        """The other side of the same run."""
        return StoredRun(self.directory, BASE)

    def path(self, name: str) -> Path:
        """Return the path of the file that is called ``name`` on this side."""
        return self.directory / f"{self.side}{name}"

    def has(self, name: str) -> bool:
        """Whether there is such a file, even if it cannot be read."""
        return os.path.lexists(self.path(name))

    def read(self, name: str, limit: int = MAX_BYTES) -> bytes:
        """Return the content of a file; raises as ``read_bounded`` does."""
        return read_bounded(self.path(name), limit)

    def evidence(self) -> Evidence:
        """Read the evidence. Raises ``FlamegateError`` if it is missing or malformed."""
        return decode_evidence(self.read(EVIDENCE))


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """``baseline.json``: SHA-256 by file name. ``batches`` are of earlier versions and not used."""

    workload: NonEmpty
    machine: NonEmpty
    accepted: Timestamp
    files: Annotated[Mapping[FileName, Sha256], Meta(min_length=1)]
    batches: tuple[object, ...] = ()
    schema_version: Literal["1.0.0"] = "1.0.0"


@dataclass(frozen=True, slots=True)
class Baseline:
    """An accepted measurement: the record's content, and the bytes of the files to compare with."""

    directory: Path
    evidence: Evidence
    machine_id: str
    files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


def encode_record(workload: str, machine_id: str, files: Mapping[str, bytes]) -> bytes:
    """Return the content of ``baseline.json`` for ``files``, accepted now."""
    digests = {
        name: hashlib.sha256(files[name]).hexdigest()
        for name in sorted(files)
        if name != ATTESTATION
    }
    record = BaselineRecord(workload, machine_id, utc_now(), digests)
    version = {"schema_version": record.schema_version}  # first in the file
    return encode_json({**version, **encode_plain(record)})


def read_baseline(directory: Path) -> Baseline:
    """Read a baseline; ReceiptError ``E_BASELINE_CORRUPT`` if a file is not what was accepted."""
    for tries_left in reversed(range(_READ_TRIES)):
        before = _identity(directory)
        try:
            return _read_baseline(directory)
        except ReceiptError:
            # Accepted anew during the reading: some of the files are of the earlier one.
            if not tries_left or _identity(directory) == before:
                raise
    raise AssertionError


def _read_baseline(directory: Path) -> Baseline:
    path = directory / RECORD
    with _corrupt_if_invalid(path):
        record = decode_json(_read(path), BaselineRecord, subject="It", versioned=True)
    files = _read_digested_files(directory, record)
    with _corrupt_if_invalid(directory / EVIDENCE):
        evidence = decode_evidence(files[EVIDENCE])
    return Baseline(directory, evidence, directory.parent.name, MappingProxyType(files))


def _read_digested_files(directory: Path, record: BaselineRecord) -> dict[str, bytes]:
    """Return the files whose bytes a baseline carries, after checking all that are recorded."""
    loaded = {}
    for name, sha256 in record.files.items():
        path = directory / name
        if not os.path.lexists(path):
            raise corrupt_baseline_error(path, "it was accepted, and does not exist any more.")
        data = _read(path)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise corrupt_baseline_error(
                path, f"it is not what was accepted: its SHA-256 is not {sha256[:12]}…."
            )
        if name in _LOADED_FILES:
            loaded[name] = data
    if EVIDENCE not in record.files:
        raise corrupt_baseline_error(directory / RECORD, f"it does not name {EVIDENCE}.")
    for name in sorted(set(DIGESTED_FILES) - record.files.keys()):
        if os.path.lexists(directory / name):
            raise corrupt_baseline_error(directory / name, "it was never accepted.")
    return loaded


def _read(path: Path) -> bytes:
    # <root>/baselines/<machine>/<workload>/<file> is committed, so it may contain links.
    *_, baselines, machine, workload, name = path.parts
    limit = EVIDENCE_LIMITS.max_bytes
    with _corrupt_if_invalid(path):
        return read_beneath(path.parents[3], baselines, machine, workload, name, limit=limit)


@contextmanager
def _corrupt_if_invalid(path: Path) -> Iterator[None]:
    """Turn an error within the block into ``E_BASELINE_CORRUPT`` about ``path``."""
    try:
        yield
    except FlamegateError as error:
        raise corrupt_baseline_error(path, error.problem) from None


def corrupt_baseline_error(path: Path, reason: str) -> ReceiptError:
    """Return the error for a baseline of which the file ``path`` cannot be used."""
    return ReceiptError("E_BASELINE_CORRUPT", f"The baseline {path} cannot be used: {reason}")


def _identity(directory: Path) -> tuple[int, int, int] | None:
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns

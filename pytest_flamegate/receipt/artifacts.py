"""An accepted baseline as it stands on disk: its files, and the record that binds them.

``baseline.json`` names every file accepted beside it by its sha256. What was edited, torn
or mixed with the files of another run afterwards is so found before anything is held to it.
"""

from __future__ import annotations

import hashlib
import json as json_
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

from msgspec import Meta

from pytest_flamegate.core import files
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.files import read_beneath, require_confined
from pytest_flamegate.core.json import (
    EVIDENCE_LIMITS,
    RECEIPT_LIMITS,
    NonEmpty,
    NonNegative,
    Sha256,
    Timestamp,
    decode_json,
    decode_plain,
    encode_json,
    encode_plain,
    parse_json,
)
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.documents import decode_evidence
from pytest_flamegate.receipt.types import SCHEMA_VERSION, Batch, Evidence, VerdictName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path


RECORD = "baseline.json"
"""What was accepted: by its digests, and the measurements that it rests on."""
OLD_RECORD = "batches.json"
"""What stood there before there were digests: the measurements alone."""
ACCEPTED_EVIDENCE = "evidence.json"
_TRIES = 5


FileName = Annotated[
    str, Meta(pattern=r"^[^./][^/]*(?![\s\S])", description="a file name without a directory")
]


@dataclass(frozen=True, slots=True)
class BaselineRecord:
    """The content of ``baseline.json``: what was accepted next to it.

    Attributes:
        workload: The workload's name.
        machine: The class of machine that the baseline is for.
        accepted: When it was accepted.
        files: The SHA-256 of each accepted file, by its name.
        batches: The measurements of the same code accepted so far, oldest first; empty if the run
            could not be judged.
        schema_version: The version of this schema.
    """

    workload: NonEmpty
    machine: NonEmpty
    accepted: Timestamp
    files: Annotated[Mapping[FileName, Sha256], Meta(min_length=1)]
    batches: tuple[Batch, ...]
    schema_version: Literal["1.0.0"] = "1.0.0"


@dataclass(frozen=True, slots=True)
class _OldRecord:
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One gated run: one line of ``history/runs.jsonl``, to which lines are only appended.

    Attributes:
        workload: The workload's name.
        verdict: The decision; ``error`` also if the run could not be accepted as asked.
        reasons: The codes of its reasons, most important first.
        accepted: Whether the run was made the baseline.
        created: When the run was measured, or rejected if nothing was.
        machine: The class of machine that it ran on.
        commit: The revision measured; None outside a repository.
        nonce: The run's nonce, as in its evidence.
        tokens_per_second: Tokens per second of the run, if it has them.
        quiet_s_per_token: Scheduler-adjusted seconds per token, if it has them.
        schema_version: The version of this schema; older lines have none.
    """

    workload: NonEmpty
    verdict: VerdictName
    reasons: tuple[NonEmpty, ...]
    accepted: bool
    created: Timestamp | None = None
    machine: NonEmpty | None = None
    commit: str | None = None
    nonce: NonEmpty | None = None
    tokens_per_second: NonNegative | None = None
    quiet_s_per_token: NonNegative | None = None
    schema_version: Literal["1.0.0"] = "1.0.0"


def encode(record: BaselineRecord) -> bytes:
    """Return the content of ``baseline.json``."""
    return encode_json({"schema_version": record.schema_version, **encode_plain(record)})


def accepted_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each file, in hexadecimal, by its name."""
    return {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}


def read_baseline_files(
    directory: Path, known: Collection[str]
) -> tuple[Evidence, tuple[Batch, ...]]:
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
            batches = decode_json(_bytes(path), _OldRecord).batches
        except ReceiptError as error:
            raise corrupt_baseline(path, error.problem) from None
    path = directory / ACCEPTED_EVIDENCE
    try:
        return decode_evidence(_bytes(path, EVIDENCE_LIMITS.max_bytes)), batches
    except FlamegateError as error:
        raise corrupt_baseline(path, error.problem) from None


def _record(path: Path) -> BaselineRecord:
    try:
        return decode_json(_bytes(path), BaselineRecord, versioned=True)
    except FlamegateError as error:
        raise corrupt_baseline(path, error.problem) from None


def _check(directory: Path, record: BaselineRecord, known: Collection[str]) -> None:
    for name, sha256 in record.files.items():
        path = directory / name
        if not os.path.lexists(path):
            raise corrupt_baseline(path, "it was accepted, and is gone.")
        if hashlib.sha256(_bytes(path, EVIDENCE_LIMITS.max_bytes)).hexdigest() != sha256:
            raise corrupt_baseline(
                path, f"it is not what was accepted: its sha256 is not {sha256[:12]}…."
            )
    if ACCEPTED_EVIDENCE not in record.files:
        raise corrupt_baseline(directory / RECORD, f"it does not name {ACCEPTED_EVIDENCE}.")
    for name in sorted(set(known) - record.files.keys()):
        if os.path.lexists(directory / name):
            raise corrupt_baseline(directory / name, "it stands there, and was never accepted.")


def _bytes(path: Path, limit: int = RECEIPT_LIMITS.max_bytes) -> bytes:
    # <root>/baselines/<machine>/<workload>/<file>: committed, so a link in it is anybody's.
    *_, shelf, machine, workload, name = path.parts
    try:
        return read_beneath(path.parents[3], shelf, machine, workload, name, limit=limit)
    except FlamegateError as error:
        raise corrupt_baseline(path, error.problem) from None


def corrupt_baseline(path: Path, why: str) -> ReceiptError:
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


T = TypeVar("T")
MAX_BYTES = 256 << 20
_TOLD = 8


@dataclass(frozen=True, slots=True)
class HistoryLines(Generic[T]):
    """The lines that can be read, oldest first, and a sentence for what cannot."""

    lines: tuple[T, ...] = ()
    warnings: tuple[str, ...] = ()


def read_history(path: Path, decode: Callable[[object], T]) -> HistoryLines[T]:
    """Return what ``decode`` makes of each line of ``path``; none where there is no file.

    ``decode`` raises ``ReceiptError`` for a document that is no such line. Of many spoilt
    lines the first few are named, the others counted. Raises ``ToolError`` or
    ``ReceiptError`` where the file as a whole cannot be read or is larger than 256 MiB.
    """
    if not os.path.lexists(path):
        return HistoryLines()
    *whole, last = files.read_bounded(path, MAX_BYTES).split(b"\n")
    lines, spoilt = [], []
    for number, data in enumerate(whole, 1):
        if not data:
            continue
        try:
            lines.append(decode(parse_json(data)))
        except ReceiptError as error:
            spoilt.append(f"Line {number} of {path} does not count: {error.problem}")
    told = spoilt[:_TOLD]
    if len(spoilt) > _TOLD:
        told.append(f"{len(spoilt) - _TOLD:,} more lines of {path} do not count either.")
    if last:
        # A line is acknowledged only once its newline is on the disk.
        told.append(f"Line {len(whole) + 1} of {path} does not count: a crash cut it off.")
    return HistoryLines(tuple(lines), tuple(told))


def append(path: Path, line: Mapping[str, object]) -> None:
    """Append one line, durably. Raises ``ToolError`` where the system refuses."""
    store.append_line(path, json_.dumps(line, ensure_ascii=False, allow_nan=False).encode())


def append_run(path: Path, line: Mapping[str, object]) -> None:
    """Append one gated run; ``ReceiptError`` ``E_HISTORY_SCHEMA`` if ``line`` is malformed."""
    _run(line)
    append(path, {"schema_version": SCHEMA_VERSION, **line})


def read_runs(path: Path) -> HistoryLines[HistoryLine]:
    """Return the gated runs, including lines from before they had a version."""
    return read_history(path, _run)


def _run(document: object) -> HistoryLine:
    return decode_plain(document, HistoryLine, subject="The line", code="E_HISTORY_SCHEMA")


RECEIPT, EVIDENCE = "receipt.json", ACCEPTED_EVIDENCE
FOLDED, PICTURE, PAGE = "profile.folded", "flamegraph.svg", "flamegraph.md"
INTERACTIVE = "flamegraph.html"
VERDICT = "verdict.json"
ATTESTATION = "attestation.dsse.json"
"""Who put their name to receipt, evidence and profile: it stays good where these stay the same."""
DECODE, DECODE_FOLDED, DECODE_PICTURE = "decode.json", "decode.folded", "decode.svg"
"""Decode alone, by subtraction, where it was asked for."""
BRICKS = "bricks.json"
"""What the brick clock recorded last, with the calls of the last token."""
INSTRUCTIONS, INSTRUCTIONS_PICTURE = "instructions.folded", "instructions.svg"
"""What was counted beside what was sampled, where that was asked for."""
BASE_EVIDENCE, BASE_FOLDED = "base-evidence.json", "base-profile.folded"
BASE_INSTRUCTIONS = "base-instructions.folded"
"""What was seen of the other side: of the base, or of the accepted baseline."""
DIFFERENCE = "diff.svg"
"""What changed from the other side to this one."""
DESCRIBED = "profile.speedscope.json"
"""How an imported profile was taken, and its stacks once more: it has no evidence."""
DIGESTED_FILES = (
    *(RECEIPT, EVIDENCE, FOLDED, PICTURE, INTERACTIVE, PAGE),
    *(DECODE, DECODE_FOLDED, DECODE_PICTURE),
    *(INSTRUCTIONS, INSTRUCTIONS_PICTURE, VERDICT),
)
"""What a baseline's record names by digest."""
BASELINE_FILES = (*DIGESTED_FILES, ATTESTATION)
"""What a baseline holds: it may be signed after it was accepted, and again by others."""


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
class StoredPath:
    """Where something was put, and where that went which could not be read in its place."""

    path: Path
    set_aside: Path | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Say what was set aside."""
        if self.set_aside is None:
            return ()
        return (f"What stood at {self.path} could not be used. It is kept as {self.set_aside}.",)


@dataclass(frozen=True, slots=True)
class ArtifactStore:
    """The artifact directory. Nothing is made before there is something to keep."""

    root: Path

    def latest_directory(self, workload: str) -> Path:
        """Return where the last run of ``workload`` stands."""
        return store.child_path(self.root / "latest", workload)

    def baseline_directory(self, machine_id: str, workload: str) -> Path:
        """Return where the baseline of ``workload`` stands for that class of machine."""
        return store.child_path(store.child_path(self.root / "baselines", machine_id), workload)

    def machines_with(self, workload: str) -> tuple[str, ...]:
        """Return the machine classes that have a baseline of ``workload``, readable or not."""
        # A variant's name, decode[i2s], would be read as a pattern.
        found = (self.root / "baselines").glob(f"*/{escape(workload)}")
        return tuple(sorted(path.parent.name for path in found if _holds_something(path)))

    def list_baselines(self) -> tuple[tuple[str, str, Path], ...]:
        """Return machine class, workload and directory of every baseline, in order."""
        found = sorted((self.root / "baselines").glob("*/*"))
        return tuple(
            (path.parent.name, path.name, path)
            for path in found
            if path.is_dir() and _holds_something(path)
        )

    def remove_baseline(self, directory: Path) -> None:
        """Remove one baseline."""
        store.clear(self._own(directory))

    def require_writable(self, machine_id: str | None = None) -> None:
        """Make sure that a run can be kept, and a baseline of ``machine_id`` accepted.

        What writers that were killed left on any shelf is removed first.
        """
        self.sweep()
        store.require_writable(self._own(self.root / "latest"))
        if machine_id is not None:
            store.require_writable(self._own(store.child_path(self.root / "baselines", machine_id)))

    def sweep(self) -> None:
        """Remove what killed writers left, but where somebody is writing right now."""
        store.sweep_probes(self.root.parent)
        for directory in (self.root, *self._directories()):
            store.sweep(self._own(directory))

    def _directories(self) -> Iterator[Path]:
        for name in ("latest", "imported", "history"):
            yield self.root / name
        for name in ("baselines", "calibration"):
            yield self.root / name
            # What cannot be listed now is swept another time.
            with suppress(OSError):
                yield from sorted((self.root / name).iterdir())

    def remove_latest(self, workload: str) -> None:
        """Remove the last run: what it said must not outlive the next one's failure."""
        store.clear(self._own(self.latest_directory(workload)))

    def publish_run(self, workload: str, files: Mapping[str, bytes]) -> Path:
        """Write one run's files, all or none."""
        directory = self._own(self.latest_directory(workload))
        store.ensure_gitignore(self.root)
        store.sweep(directory.parent)
        store.publish(directory, files)
        return directory

    def accept_baseline(
        self,
        machine_id: str,
        workload: str,
        files: Mapping[str, bytes],
        batches: tuple[Batch, ...] = (),
        *,
        set_aside: bool = False,
    ) -> StoredPath:
        """Make a run's files the baseline, with a record of them, all or none.

        With ``set_aside`` what stood there is kept beside it, under a hidden name.
        """
        directory = self._own(self.baseline_directory(machine_id, workload))
        digests = accepted_digests({n: d for n, d in files.items() if n != ATTESTATION})
        record = BaselineRecord(workload, machine_id, utc_now(), digests, batches)
        store.ensure_gitignore(self.root)
        store.sweep(directory.parent)
        whole = {**files, RECORD: encode(record)}
        return StoredPath(directory, store.publish(directory, whole, set_aside=set_aside))

    def read_baseline(self, machine_id: str, workload: str) -> Baseline | None:
        """Read the baseline for this machine class; fall back to another machine's.

        None where nothing was ever accepted. ``ReceiptError`` ``E_BASELINE_CORRUPT``
        where it cannot be read as what was accepted.
        """
        machines = self.machines_with(workload)
        if not machines:
            return None
        chosen = machine_id if machine_id in machines else machines[0]
        directory = self.baseline_directory(chosen, workload)
        evidence, batches = read_baseline_files(directory, DIGESTED_FILES)
        return Baseline(directory, evidence, chosen, batches)

    def append_run(self, line: Mapping[str, object]) -> None:
        """Append one gated run to the history."""
        append_run(self._own(self.runs_path), line)

    @property
    def runs_path(self) -> Path:
        """Where every gated run stands, one line each."""
        return self.root / "history" / "runs.jsonl"

    def calibration_path(self, machine_id: str, workload: str) -> Path:
        """Return where the calibration of ``workload`` stands for that class of machine."""
        shelf = store.child_path(self.root / "calibration", machine_id)
        return store.child_path(shelf, f"{workload}.json")

    def write_calibration(
        self, machine_id: str, workload: str, data: bytes, *, set_aside: bool = False
    ) -> StoredPath:
        """Make ``data`` the calibration of ``workload`` on that class of machine.

        With ``set_aside`` what stood there is kept beside it, under a hidden name.
        """
        path = self._own(self.calibration_path(machine_id, workload))
        store.ensure_gitignore(self.root)
        store.sweep(path.parent)
        return StoredPath(path, store.write_atomic(path, data, set_aside=set_aside))

    @property
    def ledger_path(self) -> Path:
        """Where every gate that compared code with itself stands, one line each."""
        return self.root / "history" / "ledger.jsonl"

    def append_ledger(self, line: Mapping[str, object]) -> None:
        """Append one gate of unchanged code to the ledger. Nothing ever rewrites it."""
        append(self._own(self.ledger_path), line)

    def _own(self, path: Path) -> Path:
        return require_confined(self.root, path)


def read_evidence(directory: Path) -> Evidence:
    """Read the evidence of a baseline; whatever is wrong with it is ``E_BASELINE_CORRUPT``."""
    return read_baseline_files(directory, DIGESTED_FILES)[0]


def _holds_something(path: Path) -> bool:
    """Whether ``path`` is, or was, a baseline: no leftover, and not what an emptied one left."""
    if path.name.startswith("."):
        return False
    if not path.is_dir():
        return True
    return any(not entry.name.startswith(".") for entry in path.iterdir())

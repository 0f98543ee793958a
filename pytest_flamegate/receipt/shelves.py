"""Where things stand under ``.flamegate``: latest runs, accepted baselines, history."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from typing import TYPE_CHECKING

from pytest_flamegate.receipt import accepted, history, store
from pytest_flamegate.receipt.accepted import Record
from pytest_flamegate.receipt.confine import confined
from pytest_flamegate.workload.clocks import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_flamegate.receipt.types import Batch, Evidence

RECEIPT, EVIDENCE = "receipt.json", accepted.EVIDENCE
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
BOUND = (
    *(RECEIPT, EVIDENCE, FOLDED, PICTURE, INTERACTIVE, PAGE),
    *(DECODE, DECODE_FOLDED, DECODE_PICTURE),
    *(INSTRUCTIONS, INSTRUCTIONS_PICTURE, VERDICT),
)
"""What a baseline's record names by digest."""
FILES = (*BOUND, ATTESTATION)
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
class Placed:
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
        """Return the machine classes that have a baseline of ``workload``, readable or not."""
        # A variant's name, decode[i2s], would be read as a pattern.
        found = (self.root / "baselines").glob(f"*/{escape(workload)}")
        return tuple(sorted(path.parent.name for path in found if _holds_something(path)))

    def baselines(self) -> tuple[tuple[str, str, Path], ...]:
        """Return machine class, workload and directory of every baseline, in order."""
        found = sorted((self.root / "baselines").glob("*/*"))
        return tuple(
            (path.parent.name, path.name, path)
            for path in found
            if path.is_dir() and _holds_something(path)
        )

    def remove(self, directory: Path) -> None:
        """Remove one baseline."""
        store.clear(self._own(directory))

    def probe(self, machine_id: str | None = None) -> None:
        """Make sure that a run can be kept, and a baseline of ``machine_id`` accepted.

        What writers that were killed left on any shelf is removed first.
        """
        self.sweep()
        store.probe(self._own(self.root / "latest"))
        if machine_id is not None:
            store.probe(self._own(store.inside(self.root / "baselines", machine_id)))

    def sweep(self) -> None:
        """Remove what killed writers left, but where somebody is writing right now."""
        store.sweep_probes(self.root.parent)
        for shelf in (self.root, *self._shelves()):
            store.sweep(self._own(shelf))

    def _shelves(self) -> Iterator[Path]:
        for name in ("latest", "imported", "history"):
            yield self.root / name
        for name in ("baselines", "calibration"):
            yield self.root / name
            # What cannot be listed now is swept another time.
            with suppress(OSError):
                yield from sorted((self.root / name).iterdir())

    def clear(self, workload: str) -> None:
        """Remove the last run: what it said must not outlive the next one's failure."""
        store.clear(self._own(self.latest(workload)))

    def publish(self, workload: str, files: Mapping[str, bytes]) -> Path:
        """Write one run's files, all or none."""
        directory = self._own(self.latest(workload))
        store.ensure_gitignore(self.root)
        store.sweep(directory.parent)
        store.publish(directory, files)
        return directory

    def accept(
        self,
        machine_id: str,
        workload: str,
        files: Mapping[str, bytes],
        batches: tuple[Batch, ...] = (),
        *,
        set_aside: bool = False,
    ) -> Placed:
        """Make a run's files the baseline, with a record of them, all or none.

        With ``set_aside`` what stood there is kept beside it, under a hidden name.
        """
        directory = self._own(self.accepted(machine_id, workload))
        digests = accepted.digests({n: d for n, d in files.items() if n != ATTESTATION})
        record = Record(workload, machine_id, utc_now(), digests, batches)
        store.ensure_gitignore(self.root)
        store.sweep(directory.parent)
        whole = {**files, accepted.RECORD: accepted.encode(record)}
        return Placed(directory, store.publish(directory, whole, set_aside=set_aside))

    def baseline(self, machine_id: str, workload: str) -> Baseline | None:
        """Read the baseline for this machine class; fall back to another machine's.

        None where nothing was ever accepted. ``ReceiptError`` ``E_BASELINE_CORRUPT``
        where it cannot be read as what was accepted.
        """
        machines = self.machines_with(workload)
        if not machines:
            return None
        chosen = machine_id if machine_id in machines else machines[0]
        directory = self.accepted(chosen, workload)
        evidence, batches = accepted.read(directory, BOUND)
        return Baseline(directory, evidence, chosen, batches)

    def record(self, line: Mapping[str, object]) -> None:
        """Append one gated run to the history."""
        history.append_run(self._own(self.runs), line)

    @property
    def runs(self) -> Path:
        """Where every gated run stands, one line each."""
        return self.root / "history" / "runs.jsonl"

    def calibration(self, machine_id: str, workload: str) -> Path:
        """Return where the calibration of ``workload`` stands for that class of machine."""
        shelf = store.inside(self.root / "calibration", machine_id)
        return store.inside(shelf, f"{workload}.json")

    def calibrate(
        self, machine_id: str, workload: str, data: bytes, *, set_aside: bool = False
    ) -> Placed:
        """Make ``data`` the calibration of ``workload`` on that class of machine.

        With ``set_aside`` what stood there is kept beside it, under a hidden name.
        """
        path = self._own(self.calibration(machine_id, workload))
        store.ensure_gitignore(self.root)
        store.sweep(path.parent)
        return Placed(path, store.write_atomic(path, data, set_aside=set_aside))

    @property
    def ledger(self) -> Path:
        """Where every gate that compared code with itself stands, one line each."""
        return self.root / "history" / "ledger.jsonl"

    def enter(self, line: Mapping[str, object]) -> None:
        """Append one gate of unchanged code to the ledger. Nothing ever rewrites it."""
        history.append(self._own(self.ledger), line)

    def _own(self, path: Path) -> Path:
        return confined(self.root, path)


def read_evidence(directory: Path) -> Evidence:
    """Read the evidence of a baseline; whatever is wrong with it is ``E_BASELINE_CORRUPT``."""
    return accepted.read(directory, BOUND)[0]


def _holds_something(path: Path) -> bool:
    """Whether ``path`` is, or was, a baseline: no leftover, and not what an emptied one left."""
    if path.name.startswith("."):
        return False
    if not path.is_dir():
        return True
    return any(not entry.name.startswith(".") for entry in path.iterdir())

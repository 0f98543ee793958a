"""The artifact directory: the latest runs, accepted baselines, calibrations and the history.

::

    .flamegate/
      latest/WORKLOAD/               the files of the last run
      baselines/MACHINE/WORKLOAD/    the same, accepted, with baseline.json
      calibration/MACHINE/WORKLOAD.json
      history/runs.jsonl             one line for each gated run
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Literal

from pytest_flamegate.core.files import require_confined
from pytest_flamegate.core.json import (
    NonEmpty,
    NonNegative,
    Timestamp,
    encode_plain,
)
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.baseline import RECORD, Baseline, encode_record, read_baseline
from pytest_flamegate.receipt.types import VerdictName


@dataclass(frozen=True, slots=True)
class RunLine:
    """One gated run in ``history/runs.jsonl``. ``reasons`` are codes, most important first."""

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


@dataclass(frozen=True, slots=True)
class StoredPath:
    """The path of a stored file or directory, and the new path of a corrupt one before it."""

    path: Path
    set_aside: Path | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence about the corrupt one, if there was one."""
        if self.set_aside is None:
            return ()
        return (f"{self.path} was corrupt. Its earlier content is in {self.set_aside}.",)


@dataclass(frozen=True, slots=True)
class ArtifactStore:
    """The artifact directory ``root``, which is made when the first file is stored.

    Each method that writes raises ``ToolError``: ``E_CANNOT_WRITE`` (also for a symbolic link
    below ``root``), ``E_LOCK_TIMEOUT``, ``E_BAD_NAME``.
    """

    root: Path

    @property
    def latest(self) -> Path:
        """The directory that has one of the last run of each workload."""
        return self.root / "latest"

    def latest_directory(self, workload: str) -> Path:
        """Return the directory of the last run of ``workload``."""
        return store.child_path(self.latest, workload)

    def baseline_directory(self, machine_id: str, workload: str) -> Path:
        """Return the directory of the baseline of ``workload`` for that class of machine."""
        return store.child_path(store.child_path(self.root / "baselines", machine_id), workload)

    def calibration_path(self, machine_id: str, workload: str) -> Path:
        """Return the path of the calibration of ``workload`` for that class of machine."""
        directory = store.child_path(self.root / "calibration", machine_id)
        return store.child_path(directory, f"{workload}.json")

    @property
    def runs_path(self) -> Path:
        """The history: one line for each gated run."""
        return self.root / "history" / "runs.jsonl"

    def list_baselines(self) -> tuple[tuple[str, str, Path], ...]:
        """Return class of machine, workload and directory of every baseline, in order."""
        found = sorted((self.root / "baselines").glob("*/*"))
        return tuple(
            (path.parent.name, path.name, path)
            for path in found
            if path.is_dir() and _is_baseline(path)
        )

    def require_writable(self, machine_id: str | None = None) -> None:
        """Remove leftovers; raise ToolError if a run, or a baseline, could not be stored."""
        self.sweep()
        store.require_writable(self._confine(self.latest))
        if machine_id is not None:
            store.require_writable(
                self._confine(store.child_path(self.root / "baselines", machine_id))
            )

    def sweep(self) -> None:
        """Remove the leftovers of killed writers, except where a writer is active."""
        directories = [self.root, self.latest, self.root / "imported", self.root / "history"]
        for name in ("baselines", "calibration"):
            directories.append(self.root / name)
            # A directory that cannot be listed now is swept another time.
            with suppress(OSError):
                directories += sorted((self.root / name).iterdir())
        for directory in directories:
            store.sweep(self._confine(directory))

    def publish_run(self, workload: str, files: Mapping[str, bytes]) -> Path:
        """Replace the latest run of ``workload`` by ``files``, all or none."""
        directory = self._prepare(self.latest_directory(workload))
        store.publish(directory, files)
        return directory

    def accept_baseline(
        self,
        machine_id: str,
        workload: str,
        files: Mapping[str, bytes],
        *,
        set_aside: bool = False,
    ) -> StoredPath:
        """Make ``files`` the baseline, all or none. ``set_aside`` hides the earlier one."""
        record = encode_record(workload, machine_id, files)
        directory = self._prepare(self.baseline_directory(machine_id, workload))
        whole = {**files, RECORD: record}
        return StoredPath(directory, store.publish(directory, whole, set_aside=set_aside))

    def read_baseline(self, machine_id: str, workload: str) -> Baseline | None:
        """Read the baseline of this class of machine, else of another class, if there is one."""
        # The name of a variant, decode[i2s], must not be read as a pattern.
        found = (self.root / "baselines").glob(f"*/{escape(workload)}")
        machines = sorted(path.parent.name for path in found if _is_baseline(path))
        if not machines:
            return None
        chosen = machine_id if machine_id in machines else machines[0]
        return read_baseline(self.baseline_directory(chosen, workload))

    def remove_baseline(self, directory: Path) -> None:
        """Remove the baseline in ``directory`` at once; a directory elsewhere is an error."""
        store.remove(self._confine(directory))

    def write_calibration(
        self, machine_id: str, workload: str, data: bytes, *, set_aside: bool = False
    ) -> StoredPath:
        """Make ``data`` the calibration. With ``set_aside`` the earlier one stays, hidden."""
        path = self._prepare(self.calibration_path(machine_id, workload))
        return StoredPath(path, store.write_atomic(path, data, set_aside=set_aside))

    def append_run(self, line: RunLine) -> None:
        """Append one gated run to the history."""
        plain = {name: value for name, value in encode_plain(line).items() if value is not None}
        data = json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
        store.append_line(self._confine(self.runs_path), data)

    def _prepare(self, path: Path) -> Path:
        """Return ``path`` when its directory is free of leftovers and of git."""
        self._confine(path)
        store.ensure_gitignore(self.root)
        store.sweep(path.parent)
        return path

    def _confine(self, path: Path) -> Path:
        return require_confined(self.root, path)


def _is_baseline(path: Path) -> bool:
    """Whether ``path`` is a baseline, readable or not, and neither a leftover nor empty."""
    if path.name.startswith("."):
        return False
    if not path.is_dir():
        return True
    return any(not entry.name.startswith(".") for entry in path.iterdir())

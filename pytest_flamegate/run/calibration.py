"""The ledger as a file: one line for each gate of unchanged code, appended and never rewritten."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_flamegate.core import json_old
from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.files import read_beneath
from pytest_flamegate.core.json_old import from_plain, read_timestamp, to_plain
from pytest_flamegate.gate.calibration import (
    DRAWS,
    LedgerLine,
    Pool,
    count_alarms,
    describe_alarms,
    replay_rule,
)
from pytest_flamegate.gate.signals import ReportedRates
from pytest_flamegate.receipt import artifacts as artifact_files
from pytest_flamegate.receipt.compose import recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.gate.calibration import AaGate
    from pytest_flamegate.gate.shares import ShareSpread
    from pytest_flamegate.receipt.artifacts import ArtifactStore, HistoryLines, StoredPath


def enter(
    artifacts: ArtifactStore, calibration: Calibration, drop_pct: float, gates: Iterable[AaGate]
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
        artifacts.append_ledger(to_plain(line))


def read(artifacts: ArtifactStore) -> HistoryLines[LedgerLine]:
    """Read the ledger; empty where there is none.

    A line that a crash cut off, or that somebody spoilt, is named and left out. Raises
    ``ToolError`` or ``ReceiptError`` where the file as a whole cannot be read.
    """
    return artifact_files.read_history(artifacts.ledger_path, partial(from_plain, LedgerLine))


SCHEMA_VERSION = "1.0.0"
_MAX_BYTES = 16 << 20
_NOT_RUN = frozenset({"name", "source", "timeout_s", "build", "injection"})
"""Parts of a recipe that change nothing of how the same code runs twice."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What A/A pairs of one workload differed by on one machine.

    ``differences`` are log time per token, in the order of measuring; ``pair_s`` is how long
    a pair took on average; ``spreads`` is empty where nothing was profiled.
    """

    created: str
    machine_id: str
    machine: Mapping[str, str]
    flamegate_version: str
    workload: str
    recipe_sha256: str
    engine: str
    differences: tuple[float, ...]
    pair_s: float
    spreads: tuple[ShareSpread, ...] = ()
    schema_version: str = SCHEMA_VERSION

    @property
    def pool(self) -> Pool:
        """The pairs to draw from; UndecidedError where they cannot be drawn from."""
        return Pool.of(self.differences)


def recipe_sha256(workload: Workload) -> str:
    """Return a digest of all that decides how the workload runs, thresholds apart."""
    told = {name: value for name, value in recipe(workload).items() if name not in _NOT_RUN}
    return hashlib.sha256(json_old.dumps(to_plain(told))).hexdigest()


def encode(calibration: Calibration, **derived: object) -> bytes:
    """Return the bytes of the file; ``derived`` is for its readers, who may not compute."""
    return json_old.dumps({**to_plain(calibration), **derived})


def decode(data: bytes) -> Calibration:
    """Return the calibration that ``data`` holds.

    ``ReceiptError`` where it is none, ``UndecidedError`` where its pairs cannot be.
    """
    found = from_plain(Calibration, json_old.loads(data, max_bytes=_MAX_BYTES))
    try:
        read_timestamp(found.created)
    except ValueError as error:
        raise ReceiptError("E_BAD_TIMESTAMP", f"Its date is {error}.", "Calibrate again.") from None
    return replace(found, differences=found.pool.differences)


def _read(artifacts: ArtifactStore, path: Path) -> bytes:
    # Committed like a baseline, so no link below the root is followed.
    below = path.relative_to(artifacts.root).parts
    return read_beneath(artifacts.root, *below, limit=_MAX_BYTES)


def load(
    artifacts: ArtifactStore, machine_id: str, workload: Workload, warn: Callable[[str], None]
) -> Calibration | None:
    """Return the calibration of ``workload`` on this class of machine; None without one.

    One that cannot be read, or is of something else, is told to ``warn`` and does not count:
    without it a verdict still stands, on what its rule promises.
    """
    path = artifacts.calibration_path(machine_id, workload.name)
    if not os.path.lexists(path):
        return None
    try:
        found = decode(_read(artifacts, path))
    except FlamegateError as error:
        warn(f"The calibration {path} does not count: {error.problem} Calibrate again.")
        return None
    if (found.machine_id, found.workload) != (machine_id, workload.name):
        warn(
            f"The calibration {path} is of {found.workload!a} on {found.machine_id!a} and does "
            "not count. Calibrate again."
        )
        return None
    if found.recipe_sha256 != recipe_sha256(workload):
        warn(
            f"The calibration {path} does not count: {workload.name} ran differently when it "
            "was made. Calibrate again."
        )
        return None
    return found


def keep(artifacts: ArtifactStore, calibration: Calibration, **derived: object) -> StoredPath:
    """Make ``calibration`` the one of its workload; what stands there is set aside if spoilt."""
    machine_id, workload = calibration.machine_id, calibration.workload
    path = artifacts.calibration_path(machine_id, workload)
    spoilt = False
    if os.path.lexists(path):
        try:
            decode(_read(artifacts, path))
        except FlamegateError:
            spoilt = True
    data = encode(calibration, **derived)
    return artifacts.write_calibration(machine_id, workload, data, set_aside=spoilt)


def load_ledger(artifacts: ArtifactStore, warn: Callable[[str], None]) -> tuple[LedgerLine, ...]:
    """Return the lines of the ledger; what cannot be read is told to ``warn``."""
    try:
        found = read(artifacts)
    except FlamegateError as error:
        warn(f"The ledger does not count: {error.problem}")
        return ()
    for warning in found.warnings:
        warn(warning)
    return found.lines


def calibration_known(
    calibration: Calibration | None,
    drop_pct: float,
    looks: Sequence[int],
    lines: Sequence[LedgerLine] = (),
) -> ReportedRates | None:
    """Return what is known of the rule's error rates by a calibration; None without one.

    The rates are upper bounds of what 2,000 replays gave. Where the ledger proves more false
    alarms than that, its own bound counts.
    """
    if calibration is None:
        return None
    rates = replay_rule(calibration.pool, drop_pct, looks)
    gates = count_alarms(lines, calibration.machine_id, calibration.workload, drop_pct)
    false_alarm = rates.false_alarm.upper
    if gates.lower > false_alarm:
        false_alarm = gates.upper
    basis = (
        f"calibrated here on {len(calibration.differences)} A/A pairs "
        f"({calibration.created[:10]}): {rates.false_alarm.words} false alarms and "
        f"{rates.miss.words} misses in {DRAWS:,} replays of the whole rule"
    )
    if gates.trials:
        basis = f"{basis}; ledger: {describe_alarms(gates)}"
    return ReportedRates(false_alarm, rates.miss.upper, basis)

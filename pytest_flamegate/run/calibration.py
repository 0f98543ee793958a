"""Calibrations as files: one for each workload and machine class, and the ledger of A/A gates.

The ledger has one line for each gate of unchanged code; lines are appended and never rewritten.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.files import read_beneath
from pytest_flamegate.core.json import (
    Limits,
    Timestamp,
    decode_json,
    decode_plain,
    encode_json,
    encode_plain,
)
from pytest_flamegate.gate.calibration import (
    DRAWS,
    AaGate,
    AnalysisPlan,
    LedgerLine,
    ResampledPairs,
    check_pool,
    count_alarms,
    describe_alarms,
)
from pytest_flamegate.gate.rule import ReportedRates
from pytest_flamegate.receipt import artifacts as artifact_files
from pytest_flamegate.receipt.artifacts import ArtifactStore, HistoryLines, StoredPath
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.run.schedule import plan_pair_counts

SCHEMA_VERSION = "1.0.0"
_MAX_BYTES = 16 << 20
_NOT_RUN = frozenset({"name", "source", "timeout_s", "build", "injection"})
"""Parts of a recipe that do not change how the same code runs twice."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """By how much A/A pairs of one workload differed on one machine.

    ``differences`` are log time per token, in the order of measuring; ``pair_s`` is the mean
    duration of a pair in seconds.
    """

    created: Timestamp
    machine_id: str
    machine: Mapping[str, str]
    flamegate_version: str
    workload: str
    recipe_sha256: str
    engine: str
    differences: tuple[float, ...]
    pair_s: float
    schema_version: str = SCHEMA_VERSION


def recipe_sha256(workload: Workload) -> str:
    """Return a digest of everything that decides how the workload runs, thresholds apart."""
    decisive = {name: value for name, value in recipe(workload).items() if name not in _NOT_RUN}
    return hashlib.sha256(encode_json(encode_plain(decisive))).hexdigest()


def encode(calibration: Calibration, **derived: object) -> bytes:
    """Return the bytes of the file; ``derived`` adds figures for readers that do not compute."""
    return encode_json({**encode_plain(calibration), **derived})


def decode(data: bytes) -> Calibration:
    """Return the calibration that ``data`` holds.

    Raises:
        ReceiptError: The bytes are no calibration.
        UndecidedError: Its pairs are impossible.
    """
    found = decode_json(data, Calibration, Limits(_MAX_BYTES), subject="The calibration")
    check_pool(found.differences)
    return found


def _read(artifacts: ArtifactStore, path: Path) -> bytes:
    # Committed like a baseline, so no link below the root is followed.
    below = path.relative_to(artifacts.root).parts
    return read_beneath(artifacts.root, *below, limit=_MAX_BYTES)


def load(
    artifacts: ArtifactStore, machine_id: str, workload: Workload, warn: Callable[[str], None]
) -> Calibration | None:
    """Return the calibration of ``workload`` on this class of machine; None without one.

    One that cannot be read, or belongs to something else, is reported to ``warn`` and ignored: a
    verdict does not need it.
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


def store(artifacts: ArtifactStore, calibration: Calibration, **derived: object) -> StoredPath:
    """Store ``calibration`` as the one of its workload; a corrupt one there is set aside."""
    machine_id, workload = calibration.machine_id, calibration.workload
    path = artifacts.calibration_path(machine_id, workload)
    corrupt = False
    if os.path.lexists(path):
        try:
            decode(_read(artifacts, path))
        except FlamegateError:
            corrupt = True
    data = encode(calibration, **derived)
    return artifacts.write_calibration(machine_id, workload, data, set_aside=corrupt)


def append_gates(
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
        artifacts.append_ledger(encode_plain(line))


def read_ledger(artifacts: ArtifactStore) -> HistoryLines[LedgerLine]:
    """Read the ledger; empty if there is no file.

    A line that a crash cut off, or that was edited badly, is named and left out. Raises
    ``ToolError`` or ``ReceiptError`` where the file as a whole cannot be read.
    """
    read_line = partial(decode_plain, kind=LedgerLine, subject="The line")
    return artifact_files.read_history(artifacts.ledger_path, read_line)


def load_ledger(artifacts: ArtifactStore, warn: Callable[[str], None]) -> tuple[LedgerLine, ...]:
    """Return the lines of the ledger; lines that cannot be read are reported to ``warn``."""
    try:
        found = read_ledger(artifacts)
    except FlamegateError as error:
        warn(f"The ledger does not count: {error.problem}")
        return ()
    for warning in found.warnings:
        warn(warning)
    return found.lines


def plan_for(budget_s: float, pair_s: float, pairs_share: float) -> AnalysisPlan:
    """Return the analyses that a comparison plans for a budget, and the pairs it has time for.

    ``pairs_share`` is the part of the budget that pairs may take. The first analysis waits for
    its pairs, however long they take.
    """
    analyses = plan_pair_counts(budget_s)
    in_time = math.floor(pairs_share * budget_s / pair_s)
    return AnalysisPlan(analyses, min(analyses[-1], max(analyses[0], in_time)))


def known_rates(
    calibration: Calibration, drop_pct: float, plan: AnalysisPlan, lines: Sequence[LedgerLine] = ()
) -> ReportedRates:
    """Return the error rates of the rule by a calibration, replayed within ``plan``.

    They are upper bounds of the rates in 2,000 replays. If the ledger proves more false alarms
    than that, its own bound counts.
    """
    rates = ResampledPairs.draw(calibration.differences, plan.pairs).rates(drop_pct, plan)
    gates = count_alarms(lines, calibration.machine_id, calibration.workload, drop_pct)
    false_alarm = rates.false_alarm.upper
    if gates.lower > false_alarm:
        false_alarm = gates.upper
    basis = (
        f"calibrated here on {len(calibration.differences)} A/A pairs "
        f"({calibration.created[:10]}): {rates.false_alarm.words} false alarms and "
        f"{rates.miss.words} misses in {DRAWS:,} replays of the whole rule, within {plan.pairs} "
        "pairs"
    )
    if gates.trials:
        basis = f"{basis}; ledger: {describe_alarms(gates)}"
    return ReportedRates(false_alarm, rates.miss.upper, basis)

"""What is shown of one workload's bricks, put together from its evidence and ``bricks.json``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.record import BrickCall  # noqa: TC001 - from_plain reads the annotations
from pytest_flamegate.core import files
from pytest_flamegate.core.errors import FlamegateError, ReceiptError, system_errors
from pytest_flamegate.core.json import EVIDENCE_MAX_BYTES, from_plain, loads
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.graph.roofline import (
    compute_roofline,
    describe_roofline,
    find_instruction_set,
    find_known_bandwidth,
    measure_bandwidth,
)
from pytest_flamegate.graph.table import DEFAULT_ROWS, tabulate_runs
from pytest_flamegate.graph.text import summarize_token
from pytest_flamegate.receipt.artifacts import BRICKS
from pytest_flamegate.report.bricks import BricksShown
from pytest_flamegate.run.hint import relative
from pytest_flamegate.run.lock import machine_lock

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.receipt.types import Evidence


@dataclass(frozen=True, slots=True)
class _OfOneToken:
    nonce: str
    calls: tuple[BrickCall, ...]


def bricks_in(
    directory: Path, evidence: Evidence, settings: Settings, *, measure: bool = False
) -> tuple[BricksShown | None, tuple[str, ...]]:
    """Return what is shown of the bricks of the run in ``directory``, or a sentence on why not.

    Nothing at all where none were clocked. With ``measure`` the machine's bandwidth is measured
    where it is not known, when nothing else is being measured. ``evidence`` is that of the very
    run, whole.
    """
    if not evidence.bricks:
        return None, ()
    path = directory / BRICKS
    try:
        with system_errors():
            told = files.read_bounded(path, EVIDENCE_MAX_BYTES) if is_file(path) else None
    except FlamegateError:
        told = None
    command = shlex.join(["flamegate", "bricks", relative(directory, settings.root)])
    shown, warnings = bricks_of(
        evidence, told, top=settings.bricks or DEFAULT_ROWS, all_of_it=command
    )
    if shown is None:
        return None, warnings
    peak = settings.peak_gflops
    if not measure or find_known_bandwidth(_threads(evidence)) is not None:
        return with_roofline(shown, evidence, measure=False, peak_gflops=peak), warnings
    with machine_lock(lambda _: None):
        return with_roofline(shown, evidence, measure=True, peak_gflops=peak), warnings


def bricks_of(
    evidence: Evidence, told: bytes | None, *, top: int = DEFAULT_ROWS, all_of_it: str = ""
) -> tuple[BricksShown | None, tuple[str, ...]]:
    """Return the same of what ``bricks.json`` holds: ``told``, None where it is not there."""
    if not evidence.bricks:
        return None, ()
    try:
        table = tabulate_runs(evidence.bricks, top=top)
    except FlamegateError as error:
        return None, (f"No bricks are shown. {error}",)
    try:
        token = summarize_token(_calls(told, evidence.nonce))
    except FlamegateError as error:
        note = f"There is no tree of one token. {error}"
        return BricksShown(table, notes=(note,), all_of_it=all_of_it), ()
    return BricksShown(table, token.tree, token.critical_path, all_of_it=all_of_it), ()


def with_roofline(
    shown: BricksShown, evidence: Evidence, *, measure: bool, peak_gflops: float | None = None
) -> BricksShown:
    """Return ``shown`` with how near the decode came to the bandwidth of this machine's memory.

    Whoever lets it ``measure`` a bandwidth that is not known holds the machine's lock. What keeps
    it from being measured is a note: it is only shown.
    """
    threads, bandwidth = _threads(evidence), None
    try:
        with system_errors():
            bandwidth = measure_bandwidth(threads) if measure else find_known_bandwidth(threads)
    except FlamegateError as error:
        shown = replace(shown, notes=(*shown.notes, str(error)))
    found = compute_roofline(
        evidence,
        bandwidth,
        instructions=find_instruction_set(),
        peak_flops=None if peak_gflops is None else 1e9 * peak_gflops,
    )
    return shown if found is None else replace(shown, roofline=describe_roofline(found))


def _threads(evidence: Evidence) -> int:
    told = evidence.workload.get("threads")
    return told if isinstance(told, int) and told > 0 else 1


def _calls(told: bytes | None, nonce: str) -> tuple[BrickCall, ...]:
    if told is None:
        raise ReceiptError("E_NO_BRICKS", f"There is no {BRICKS}.", "Measure again.")
    kept = from_plain(_OfOneToken, loads(told))
    if kept.nonce != nonce:
        raise ReceiptError(
            "E_OTHER_RUN", f"{BRICKS} is of another run.", "Measure again, one run at a time."
        )
    return kept.calls

"""The report of a whole run: read from the artifact directory, written as one page.

What was gated in this process or in a worker says its verdict itself; stacks are read
from the published files, and only where they belong to that very run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_flamegate.core import files
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError, system_errors
from pytest_flamegate.core.json_old import EVIDENCE_MAX_BYTES, RECEIPT_MAX_BYTES, loads
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.gate import Reason, refused
from pytest_flamegate.gate.document import Told, read_verdict
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import EVIDENCE, FOLDED, RECEIPT, VERDICT, ArtifactStore
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.report.flame_html import Drawn
from pytest_flamegate.report.run_page import Reported, run_page
from pytest_flamegate.run.bricks import bricks_in
from pytest_flamegate.run.difference import read_difference
from pytest_flamegate.run.hint import pytest_command, run_command
from pytest_flamegate.run.open import open_profile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.run.present import Shown


_UNACCEPTABLE = frozenset({"dishonest", "error"})


def require_writable(path: Path) -> None:
    """Make sure that a report can be written to ``path``, before anything is measured.

    ``UsageError`` ``E_BAD_OPTION`` where that is a directory, ``ToolError``
    ``E_CANNOT_WRITE`` where the system refuses.
    """
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
        raise UsageError(
            "E_BAD_OPTION",
            f"The report is to be written to {str(path)!a}, which is a directory.",
            "Name a file in it: report.html.",
        )
    if os.path.islink(path):  # noqa: PTH114 - as above
        raise ToolError(
            "E_CANNOT_WRITE",
            f"The report is to be written to {str(path)!a}, which is a symbolic link.",
            "Name the file itself.",
        )
    store.require_writable(path.parent)


def write_report(path: Path, reported: Sequence[Reported], settings: Settings) -> None:
    """Write the page, all or nothing; ``ToolError`` where the system refuses."""
    title = f"flamegate: {settings.root.name}"
    with system_errors():
        store.write_atomic(path, run_page(reported, title=title).encode())


def of_results(results: Sequence[Shown], settings: Settings) -> list[Reported]:
    """Return what was gated in this session; of one workload gated twice, the last."""
    last = {one.workload: one for one in results}
    return [_of_result(one, settings) for one in last.values()]


def of_directory(settings: Settings) -> list[Reported]:
    """Return what the latest run of every workload left.

    ``UsageError`` ``E_NO_RUN`` where nothing ran yet; what is wrong with one workload's
    files is a warning on the page.
    """
    latest = settings.directory / "latest"
    names = sorted(path.parent.name for path in latest.glob(f"*/{VERDICT}"))
    if not names:
        raise UsageError(
            "E_NO_RUN",
            f"There is no run in {str(latest)!a}.",
            "Measure first: pytest --flamegate, or flamegate run.",
        )
    return [
        _read(ArtifactStore(settings.directory).latest_directory(name), settings) for name in names
    ]


def _of_result(one: Shown, settings: Settings) -> Reported:
    drawn, warnings = None, one.warnings
    if one.receipt is not None and one.evidence is not None:
        directory = ArtifactStore(settings.directory).latest_directory(one.workload)
        paired = one.verdict.pairs is not None
        drawn, warnings = _drawn(directory, one.evidence.nonce, warnings, paired=paired)
    return Reported(
        name=one.workload,
        told=Told.of(one.verdict),
        receipt=one.receipt,
        evidence=one.evidence,
        drawn=drawn,
        again=pytest_command(settings, one.node),
        accept=_accept(one.verdict.verdict, settings, one.node),
        warnings=warnings,
        bricks=one.bricks,
    )


def _read(directory: Path, settings: Settings) -> Reported:
    """Return what stands there; what cannot be read is said in the place of its verdict."""
    try:
        return _of_directory(directory, settings)
    except FlamegateError as error:
        what = f"What the run left cannot be read: {error.problem} {error.remedy}"
        verdict = refused("error", [Reason(error.code, what)], grade="SELF_REPORTED")
        return Reported(name=directory.name, told=Told.of(verdict))


def _of_directory(directory: Path, settings: Settings) -> Reported:
    told = read_verdict(loads(files.read_bounded(directory / VERDICT, RECEIPT_MAX_BYTES)))
    evidence = receipt = drawn = bricks = None
    warnings: tuple[str, ...] = ()
    if is_file(directory / EVIDENCE):
        evidence = decode_evidence(files.read_bounded(directory / EVIDENCE, EVIDENCE_MAX_BYTES))
        paired = told.verdict.pairs is not None
        drawn, warnings = _drawn(directory, evidence.nonce, (), paired=paired)
        if told.verdict.verdict != "dishonest":
            bricks, more = bricks_in(directory, evidence, settings)
            warnings += more
    if is_file(directory / RECEIPT):
        receipt = decode_receipt(files.read_bounded(directory / RECEIPT, RECEIPT_MAX_BYTES))
    return Reported(
        name=directory.name,
        told=told,
        receipt=receipt,
        evidence=evidence,
        drawn=drawn,
        again=run_command(settings, directory.name),
        accept=_accept(told.verdict.verdict, settings, None),
        warnings=warnings,
        bricks=bricks,
    )


def _accept(verdict: str, settings: Settings, node: str | None) -> str | None:
    if verdict in _UNACCEPTABLE or settings.against is not None:
        return None
    if node is None:
        return "flamegate baseline accept"
    return f"{pytest_command(settings, node)} --flamegate-update"


def _drawn(
    directory: Path, nonce: str, warnings: tuple[str, ...], *, paired: bool
) -> tuple[Drawn | None, tuple[str, ...]]:
    """Return the flame graph of the run ``nonce``; what keeps it from being drawn is a warning."""
    if not is_file(directory / FOLDED):
        return None, warnings
    try:
        opened = open_profile(directory / FOLDED)
    except FlamegateError as error:
        return None, (*warnings, f"There is no flame graph. {error}")
    if opened.evidence is None or opened.evidence.nonce != nonce:
        return None, (*warnings, "There is no flame graph: another run has taken its place.")
    try:
        difference = read_difference(directory, paired=paired)
    except FlamegateError as error:
        difference, warnings = None, (*warnings, f"There is no difference. {error}")
    return Drawn(opened.name, opened.profile, opened.cpu_s_per_token, difference), warnings

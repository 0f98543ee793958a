"""An outcome as it is shown: in the failed test, the summary, and the CI service's own words.

Everything in here is plain data at heart, so that it travels from an xdist worker.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core.json_old import from_plain, to_plain
from pytest_flamegate.core.paths import is_file
from pytest_flamegate.engines.declare import find_line
from pytest_flamegate.gate import Verdict, headline
from pytest_flamegate.receipt.artifacts import DIFFERENCE, PICTURE, RECEIPT, VERDICT
from pytest_flamegate.receipt.types import (
    Evidence,  # noqa: TC001 - from_plain reads the annotations
    Receipt,  # noqa: TC001 - from_plain reads the annotations
)
from pytest_flamegate.report import ci
from pytest_flamegate.report.bricks import BricksShown, bricks_lines
from pytest_flamegate.report.terminal import Outcome as Row
from pytest_flamegate.report.terminal import failure_section
from pytest_flamegate.run.bricks import bricks_in
from pytest_flamegate.run.hint import pytest_command, relative

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.run.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Shown:
    """One gated workload. ``file`` and ``line`` are where it was declared, for annotations."""

    node: str
    workload: str
    verdict: Verdict
    section: str
    file: str
    line: int | None
    fails: bool
    accepted: bool
    receipt: Receipt | None
    evidence: Evidence | None
    warnings: tuple[str, ...] = ()
    family: str | None = None
    variant: str | None = None
    bricks: BricksShown | None = None

    @property
    def row(self) -> Row:
        """What the summary table needs."""
        return Row(
            self.workload,
            self.verdict,
            self.receipt,
            self.evidence,
            self.warnings,
            self.family,
            self.variant,
            self.bricks,
        )

    def as_data(self) -> Mapping[str, Any]:
        """Return plain data; ``from_data`` gives it back."""
        plain: Mapping[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Shown:
        """Read what ``as_data`` returned."""
        return from_plain(cls, data)


def show(outcome: Outcome, node: str, settings: Settings) -> Shown:
    """Return what is shown of ``outcome``, gated as the test ``node``."""
    workload = outcome.workload
    file = workload.directory / workload.source
    declared = file if is_file(file) else None
    again = pytest_command(settings, node)
    if outcome.verdict.against is not None and settings.against is None:
        again += f" --flamegate-against={outcome.verdict.against[:12]}"
    accept = None
    if outcome.verdict.verdict not in ("dishonest", "error"):
        accept = f"{pytest_command(replace(settings, against=None), node)} --flamegate-update"
    slim = bricks = None
    warnings = outcome.warnings
    if outcome.evidence is not None:
        # The token times stay in evidence.json; nothing that is shown needs them.
        slim = replace(outcome.evidence, runs=(), tokens=(), bricks=())
        if outcome.verdict.verdict != "dishonest":
            bricks, told = bricks_in(outcome.directory, outcome.evidence, settings, measure=True)
            warnings += told
    section = failure_section(
        outcome.verdict,
        outcome.evidence,
        outcome.baseline,
        paths=_paths(outcome, settings.root),
        again=again,
        accept=accept,
    )
    return Shown(
        node=node,
        workload=workload.name,
        verdict=outcome.verdict,
        section=section,
        file=relative(declared, settings.root) if declared else node.partition("::")[0],
        line=find_line(declared, workload.name) if declared else None,
        fails=outcome.fails,
        accepted=outcome.accepted is not None,
        receipt=outcome.receipt,
        evidence=slim,
        warnings=warnings,
        family=workload.family,
        variant=workload.variant,
        bricks=bricks,
    )


def brick_lines(results: Sequence[Shown], *, width: int, colour: bool) -> list[str]:
    """Return what stands under the summary: the bricks of each workload, where it has any."""
    return [
        line
        for one in results
        if one.bricks is not None
        for line in bricks_lines(one.workload, one.bricks, width=width, colour=colour)
    ]


def workflow_commands(results: Sequence[Shown]) -> list[str]:
    """Return one GitHub workflow command for each result that failed its test."""
    return [
        ci.error_annotation(one.file, one.line, f"flamegate: {one.workload}", headline(one.verdict))
        for one in results
        if one.fails
    ]


def append_step_summary(results: Sequence[Shown]) -> None:
    """Append the table to the job's summary page, where the service names one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(ci.step_summary([one.row for one in results]) + "\n")


def _paths(outcome: Outcome, root: Path) -> list[str]:
    names = [PICTURE, RECEIPT, VERDICT]
    if outcome.verdict.verdict == "regressed":
        names.insert(0, DIFFERENCE)
    found = [outcome.directory / name for name in names]
    return [relative(path, root) for path in found if is_file(path)][:2]

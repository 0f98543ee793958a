"""The outcome as users see it: failed test, summary, report page, annotations, hints.

A ``ResultView`` is plain data, so that it travels from a worker of pytest-xdist.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core import files
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError, system_errors
from pytest_flamegate.core.files import is_file
from pytest_flamegate.core.json import (
    EVIDENCE_LIMITS,
    RECEIPT_LIMITS,
    decode_plain,
    encode_plain,
)
from pytest_flamegate.engines.declare import find_line, split_variant_name
from pytest_flamegate.gate import Reason, Verdict, headline
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.gate.signals import rate_change_pct
from pytest_flamegate.graph.table import DEFAULT_ROWS
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.baseline import (
    BASE_EVIDENCE,
    DIFFERENCE,
    EVIDENCE,
    FOLDED,
    PICTURE,
    RECEIPT,
    VERDICT,
)
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.receipt.types import Evidence, Receipt
from pytest_flamegate.report import bricks, text
from pytest_flamegate.report.bricks import BrickView
from pytest_flamegate.report.flame_html import Drawn
from pytest_flamegate.report.markdown import step_summary
from pytest_flamegate.report.page import run_page
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.terminal import error_annotation, failure_section
from pytest_flamegate.run.difference import read_difference
from pytest_flamegate.run.open import open_profile
from pytest_flamegate.run.pictures import bricks_in, opens_compared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.run.publish import Outcome


_NOT_ACCEPTABLE = frozenset({"dishonest", "error"})


@dataclass(frozen=True, slots=True)
class Hints:
    """Commands to copy. They repeat the options that say where to look and how to measure.

    ``as_command`` makes them ``flamegate run`` instead of ``pytest``.
    """

    settings: Settings
    as_command: bool = False

    def again(self, *nodes: str, against: str | None = None) -> str:
        """Return the command that measures ``nodes`` again, or everything.

        ``against`` is the commit that it was compared with: a branch moves, a commit does not.
        """
        against = against[:12] if against else self.settings.against
        return self._command(nodes, against)

    def accept(self, *nodes: str) -> str:
        """Return the command that measures ``nodes`` and accepts them as the baseline."""
        return f"{self._command(nodes, None)} --{'' if self.as_command else 'flamegate-'}update"

    def _command(self, nodes: tuple[str, ...], against: str | None) -> str:
        settings = self.settings
        options = {}
        if settings.config is not None:
            options["config"] = relative(settings.config, settings.root)
        if settings.directory != settings.root / ".flamegate":
            options["dir"] = relative(settings.directory, settings.root)
        if against is not None:
            options["against"] = against
        if settings.profiler != "auto":
            options["profiler"] = settings.profiler
        if self.as_command:
            words = ["flamegate", "run", *(node.rpartition("::")[2] for node in nodes)]
            return shlex.join([*words, *(f"--{name}={value}" for name, value in options.items())])
        words = ["pytest", *nodes, "--flamegate"]
        words += [f"--flamegate-{name}={value}" for name, value in options.items()]
        return shlex.join(words)


def relative(path: Path, root: Path) -> str:
    """Return ``path`` as seen from ``root``, whole if it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


@dataclass(frozen=True, slots=True)
class ResultView:
    """One gated workload. ``file`` and ``line`` are its declaration, for annotations.

    ``section`` is the text of the failed test, empty if it passes. ``accepted`` is the
    directory of the baseline that the run became.
    """

    node: str
    workload: str
    verdict: Verdict
    section: str
    file: str
    line: int | None
    fails: bool
    accepted: str | None
    receipt: Receipt | None
    evidence: Evidence | None
    warnings: tuple[str, ...] = ()
    family: str | None = None
    variant: str | None = None
    bricks: BrickView | None = None
    pairs_pct: tuple[float, ...] = ()

    @property
    def row(self) -> RunReport:
        """The data of its row in the summary table."""
        return RunReport(
            self.workload,
            self.verdict,
            headline(self.verdict),
            self.receipt,
            self.evidence,
            self.warnings,
            self.family,
            self.variant,
            self.bricks,
        )

    def as_data(self) -> Mapping[str, Any]:
        """Return plain data; ``from_data`` gives it back."""
        plain: Mapping[str, Any] = encode_plain(self)
        return plain

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ResultView:
        """Read what ``as_data`` returned."""
        return decode_plain(data, cls)


def view_of(outcome: Outcome, node: str, hints: Hints) -> ResultView:
    """Return ``outcome`` as it is shown, gated as the test ``node``."""
    settings, workload, verdict = hints.settings, outcome.workload, outcome.verdict
    file = workload.directory / workload.source
    declared = file if is_file(file) else None
    section = ""
    if outcome.fails:
        section = failure_section(
            verdict,
            outcome.evidence,
            outcome.baseline,
            paths=_paths(outcome, settings.root),
            again=hints.again(node, against=verdict.against),
            accept=None if verdict.verdict in _NOT_ACCEPTABLE else hints.accept(node),
        )
    slim = None
    if outcome.evidence is not None:
        # The token times stay in evidence.json; nothing that is shown needs them.
        run = replace(outcome.evidence.runs[0], blocks=(), reported=())
        slim = replace(outcome.evidence, runs=(run,), tokens=(), bricks=())
    return ResultView(
        node=node,
        workload=workload.name,
        verdict=verdict,
        section=section,
        file=relative(declared, settings.root) if declared else node.partition("::")[0],
        line=find_line(declared, workload.name) if declared else None,
        fails=outcome.fails,
        accepted=relative(outcome.accepted, settings.root) if outcome.accepted else None,
        receipt=outcome.receipt,
        evidence=slim,
        warnings=outcome.warnings,
        family=workload.family,
        variant=workload.variant,
        bricks=outcome.pictures.bricks,
        pairs_pct=pair_changes(verdict, outcome.baseline, outcome.evidence),
    )


def pair_changes(
    verdict: Verdict, base: Evidence | None, head: Evidence | None
) -> tuple[float, ...]:
    """Return the change of the rate in each pair that decided, in percent; none without pairs."""
    if verdict.pairs is None or base is None or head is None:
        return ()
    try:
        differences = pair_differences(base, head)[: verdict.pairs]
    except FlamegateError:
        return ()
    return tuple(rate_change_pct(difference.quiet) for difference in differences)


def rows(results: Sequence[ResultView]) -> list[RunReport]:
    """Return the rows of the summary table.

    A workload that several tests ask for has a row for each, labelled with the test.
    """
    count = Counter(one.workload for one in results)
    return [
        replace(one.row, name=one.node) if count[one.workload] > 1 else one.row for one in results
    ]


def accepted_lines(results: Sequence[ResultView]) -> list[str]:
    """Return which baselines were accepted, where they lie, and that they are to be committed."""
    found: dict[str, list[str]] = {}
    for one in results:
        if one.accepted is not None:
            directory, _, name = one.accepted.rpartition("/")
            found.setdefault(directory, []).append(name)
    return [
        f"accepted {text.plural(len(set(names)), 'baseline')} in {directory}: "
        f"{', '.join(dict.fromkeys(names))}. Commit {'it' if len(set(names)) == 1 else 'them'}: "
        f"git add {shlex.quote(directory)}"
        for directory, names in found.items()
    ]


def brick_lines(results: Sequence[ResultView], *, width: int) -> list[str]:
    """Return the bricks of each workload that has any, as lines under the summary."""
    return [
        line
        for one in results
        if one.bricks is not None
        for line in bricks.brick_lines(one.workload, one.bricks, width=width)
    ]


def workflow_commands(results: Sequence[ResultView]) -> list[str]:
    """Return one GitHub workflow command for each result that failed its test."""
    return [
        error_annotation(one.file, one.line, f"flamegate: {one.workload}", headline(one.verdict))
        for one in results
        if one.fails
    ]


def append_step_summary(results: Sequence[ResultView]) -> None:
    """Append the table to the job's summary page, if the CI service names one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(step_summary(rows(results)) + "\n")


def _paths(outcome: Outcome, root: Path) -> list[str]:
    names = [PICTURE, RECEIPT, VERDICT]
    if outcome.verdict.verdict == "regressed":
        names.insert(0, DIFFERENCE)
    found = [outcome.directory / name for name in names]
    return [relative(path, root) for path in found if is_file(path)][:2]


# The report of a whole run


def require_writable(path: Path) -> None:
    """Make sure that a report can be written to ``path``, before anything is measured.

    Raises:
        UsageError: ``E_BAD_OPTION`` if it is a directory.
        ToolError: ``E_CANNOT_WRITE`` if it is a link, or the system does not allow it.
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


def write_report(path: Path, reported: Sequence[RunReport], settings: Settings) -> None:
    """Write the page, all or nothing; ``ToolError`` if the system does not allow it."""
    title = f"flamegate: {settings.root.name}"
    with system_errors():
        store.write_atomic(path, run_page(reported, title=title).encode())


@dataclass
class DrawnRuns:
    """The flame graphs of the runs of this process: a report need not read them again."""

    _drawn: dict[str, tuple[str, Drawn]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Add the flame graph of an outcome, if it has one."""
        if outcome.evidence is not None and outcome.pictures.drawn is not None:
            self._drawn[outcome.workload.name] = outcome.evidence.nonce, outcome.pictures.drawn

    def find(self, workload: str, nonce: str) -> Drawn | None:
        """Return the flame graph of that very run; None if it was made in another process."""
        known, drawn = self._drawn.get(workload, ("", None))
        return drawn if known == nonce else None


def report_results(
    results: Sequence[ResultView], drawn: DrawnRuns, hints: Hints
) -> list[RunReport]:
    """Return what was gated in this session; of one workload gated twice, the last."""
    last = {one.workload: one for one in results}
    return [_report_result(one, drawn, hints) for one in last.values()]


def report_directory(settings: Settings) -> list[RunReport]:
    """Return the latest run of every workload.

    Raises:
        UsageError: ``E_NO_RUN`` if there is none.
    """
    latest = settings.directory / "latest"
    try:
        names = sorted(path.name for path in latest.iterdir() if is_file(path / VERDICT))
    except OSError:
        names = []
    if not names:
        raise UsageError(
            "E_NO_RUN",
            f"There is no run in {str(latest)!a}.",
            "Measure first: pytest --flamegate, or flamegate run.",
        )
    hints = Hints(settings, as_command=True)
    return [
        _read_run(ArtifactStore(settings.directory).latest_directory(name), hints) for name in names
    ]


def _report_result(one: ResultView, drawn_runs: DrawnRuns, hints: Hints) -> RunReport:
    drawn, warnings = None, one.warnings
    if one.receipt is not None and one.evidence is not None:
        drawn = drawn_runs.find(one.workload, one.evidence.nonce)
        if drawn is None:
            directory = ArtifactStore(hints.settings.directory).latest_directory(one.workload)
            paired = one.verdict.pairs is not None
            drawn, warnings = _read_drawn(directory, one.evidence.nonce, warnings, paired=paired)
            drawn = drawn and replace(drawn, opens_compared=opens_compared(one.verdict))
    return replace(
        one.row,
        drawn=drawn,
        warnings=warnings,
        pairs_pct=one.pairs_pct,
        again=hints.again(one.node, against=one.verdict.against),
        accept=_accept_command(one.verdict, hints.accept(one.node), hints.settings),
    )


def _read_run(directory: Path, hints: Hints) -> RunReport:
    """Return the run in a directory; an error in place of its verdict if it cannot be read."""
    try:
        return _read_files(directory, hints)
    except FlamegateError as error:
        problem = f"The files of the run cannot be read: {error.problem} {error.remedy}"
        verdict = Verdict.unjudged("error", [Reason(error.code, problem)], grade="SELF_REPORTED")
        return RunReport(directory.name, verdict, headline(verdict))


def _read_files(directory: Path, hints: Hints) -> RunReport:
    stored = read_verdict(files.read_bounded(directory / VERDICT, RECEIPT_LIMITS.max_bytes))
    verdict = stored.verdict
    evidence = receipt = base = drawn = view = None
    warnings: tuple[str, ...] = ()
    if is_file(directory / EVIDENCE):
        evidence = decode_evidence(
            files.read_bounded(directory / EVIDENCE, EVIDENCE_LIMITS.max_bytes)
        )
        paired = verdict.pairs is not None
        drawn, warnings = _read_drawn(directory, evidence.nonce, (), paired=paired)
        drawn = drawn and replace(drawn, opens_compared=opens_compared(verdict))
        if paired and is_file(directory / BASE_EVIDENCE):
            data = files.read_bounded(directory / BASE_EVIDENCE, EVIDENCE_LIMITS.max_bytes)
            base = decode_evidence(data)
        if verdict.verdict != "dishonest":
            settings = hints.settings
            view, more = bricks_in(
                directory,
                evidence,
                shown_directory=relative(directory, settings.root),
                top=settings.bricks or DEFAULT_ROWS,
                peak_gflops=settings.peak_gflops,
            )
            warnings += more
    if is_file(directory / RECEIPT):
        receipt = decode_receipt(files.read_bounded(directory / RECEIPT, RECEIPT_LIMITS.max_bytes))
    family, variant = split_variant_name(directory.name)
    return RunReport(
        name=directory.name,
        verdict=verdict,
        headline=stored.headline,
        receipt=receipt,
        evidence=evidence,
        drawn=drawn,
        again=hints.again(directory.name, against=verdict.against),
        accept=_accept_command(verdict, "flamegate baseline accept", hints.settings),
        warnings=warnings,
        bricks=view,
        family=family,
        variant=variant,
        pairs_pct=pair_changes(verdict, base, evidence),
    )


def _accept_command(verdict: Verdict, command: str, settings: Settings) -> str | None:
    acceptable = verdict.verdict not in _NOT_ACCEPTABLE and settings.against is None
    return command if acceptable else None


def _read_drawn(
    directory: Path, nonce: str, warnings: tuple[str, ...], *, paired: bool
) -> tuple[Drawn | None, tuple[str, ...]]:
    """Return the flame graph of the run ``nonce``; an error that prevents it is a warning."""
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
    return Drawn(opened.title, opened.profile, opened.cpu_s_per_token, difference), warnings

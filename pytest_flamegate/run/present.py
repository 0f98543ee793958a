"""The outcome as users see it: failed test, summary, report page, annotations, hints.

A ``ResultView`` is plain data, so that it travels from a worker of pytest-xdist.
"""

from __future__ import annotations

import ast
import os
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError, system_errors
from pytest_flamegate.core.files import is_directory, is_file, real_path, relative
from pytest_flamegate.core.json import decode_plain, encode_plain, replace
from pytest_flamegate.engines.declare import find_line, split_variant_name
from pytest_flamegate.gate.document import read_verdict
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.gate.rule import Reason, rate_change_pct
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.receipt import baseline, store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.receipt.baseline import StoredRun
from pytest_flamegate.receipt.documents import decode_receipt
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report import text
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.page import run_page
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.terminal import brick_lines, failure_section, summary
from pytest_flamegate.run.open import compare_stored_run, open_profile
from pytest_flamegate.run.pictures import opens_compared, read_brick_view
from pytest_flamegate.run.publish import Hints, Outcome
from pytest_flamegate.run.sources import read_lines, read_sources


@dataclass(frozen=True, slots=True)
class ResultView:
    """One gated workload as it travels from a worker of pytest-xdist.

    ``file``, relative to the repository, and ``line`` are for annotations: those of the changed
    line that costs more, or of the function that made it slower, or of the declaration. ``section``
    is the text of the failed test, empty if it passes. ``accepted`` is the directory of the
    baseline that the run became. ``is_declared`` says, under pytest, whether the workload file
    declares it.
    """

    node: str
    report: RunReport
    section: str
    file: str
    line: int | None
    fails: bool
    accepted: str | None
    is_declared: bool = False

    @property
    def waits(self) -> bool:
        """Whether a baseline is missing that this run could become."""
        return self.report.lacks_baseline and self.accepted is None

    @property
    def is_certain(self) -> bool:
        """Whether measuring again cannot take the verdict back."""
        verdict = self.report.verdict
        return verdict is not None and verdict.kind.tone == "bad" and verdict.verdict != "error"

    def as_data(self) -> Mapping[str, Any]:
        """Return plain data without the flame graph; ``from_data`` gives it back."""
        report = replace(self.report, drawn=None)
        plain: Mapping[str, Any] = encode_plain(replace(self, report=report))
        return plain

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ResultView:
        """Return the result of which ``as_data`` returned ``data``."""
        return decode_plain(data, cls)


def view_of(outcome: Outcome, node: str, hints: Hints) -> ResultView:
    """Return ``outcome`` as it is shown, gated as the test ``node``."""
    root, workload, verdict = hints.settings.root, outcome.workload, outcome.verdict
    reasons = [replace(each, message=hints.adapt(each.message)) for each in verdict.reasons]
    verdict = replace(verdict, reasons=tuple(reasons))
    again = hints.again(node, against=verdict.against)
    accept = hints.accept(node) if hints.accepts(verdict) else None
    slim = None
    if outcome.evidence is not None:
        # The token times stay in evidence.json; nothing that is shown needs them.
        run = replace(outcome.evidence.runs[0], blocks=(), reported=())
        slim = replace(outcome.evidence, runs=(run,), tokens=(), bricks=())
    report = RunReport(
        workload.name,
        verdict,
        hints.adapt(headline(verdict)),
        outcome.receipt,
        slim,
        tuple(map(hints.adapt, outcome.warnings)),
        workload.family,
        workload.variant,
        bricks=outcome.pictures.bricks,
        drawn=outcome.pictures.drawn,
        pairs_pct=pair_changes(verdict, outcome.baseline, outcome.evidence),
        again=again,
        accept=accept,
    )
    file, line = _find_place(outcome, node, root)
    return ResultView(
        node,
        report,
        _describe_failure(outcome, report, hints) if outcome.fails else "",
        file=file,
        line=line,
        fails=outcome.fails,
        accepted=relative(outcome.accepted, root) if outcome.accepted else None,
    )


def _describe_failure(outcome: Outcome, report: RunReport, hints: Hints) -> str:
    """Return the text of a failed test, with the files that show why, if they were written."""
    root, run = hints.settings.root, StoredRun(outcome.directory)
    first = [baseline.DIFFERENCE] if outcome.verdict.verdict == "regressed" else []
    names = (*first, baseline.PICTURE, baseline.RECEIPT, baseline.VERDICT)
    # Files of an earlier run would show nothing of this one.
    paths = [run.path(name) for name in names if outcome.is_written and run.has(name)]
    shown = shlex.quote(relative(run.directory, root))
    section = failure_section(
        outcome.verdict,
        outcome.evidence,
        outcome.baseline,
        paths=[relative(path, root) for path in paths[:2]],
        look=f"flamegate annotate {shown}" if paths and run.has(baseline.LINES) else None,
        again=report.again or "",
        accept=report.accept,
    )
    return hints.adapt(section)


def _find_place(outcome: Outcome, node: str, root: Path) -> tuple[str, int | None]:
    """Return file and line of the slowdown, or else of the declaration or of the test."""
    workload = outcome.workload
    declared = workload.directory / workload.source
    place: tuple[str, int | None] | None = None
    if outcome.fails:
        place = locate_slowdown(outcome.verdict, outcome.evidence, root)
    if place is None and is_file(declared):
        place = relative(declared, root), find_line(declared, workload.name)
    file, line = place or (node.partition("::")[0], None)
    if outcome.fails and file and (top := git.find_top(root)):  # as a code host shows paths
        file = relative(real_path(root) / file, top)
    return file, line


def locate_slowdown(
    verdict: Verdict, evidence: Evidence | None, root: Path
) -> tuple[str, int] | None:
    """Return file and line of a slowdown: a changed line, or the Python function that explains it.

    The file is relative to ``root``; a function is looked up in the commit that was measured. None
    if it is not known, not Python, not of the repository, or shares its name in the file.
    """
    if verdict.verdict != "regressed":
        return None
    for each in (*verdict.lines, *verdict.reported_lines):
        if each.place.is_changed and each.cost.change_us > 0.0:
            return each.place.file, each.place.first
    if not verdict.explained_by:
        return None
    if evidence is None or evidence.profile is None or evidence.commit is None:
        return None
    name = verdict.explained_by[0]
    spot = next((each for each in evidence.profile.hotspots if each.name == name), None)
    if spot is None or spot.kind != "python":
        return None
    # A profile leaves the directory src/ out of its paths.
    for path in (spot.module, f"src/{spot.module}"):
        text = git.query(root, "show", f"{evidence.commit.revision}:./{path}")
        if text is not None and (line := _find_definition(text, name.rpartition(".")[2])):
            return path, line
    return None


def _find_definition(source: str, name: str) -> int | None:
    """Return the line of the only function of that name."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    lines = [e.lineno for e in ast.walk(tree) if isinstance(e, functions) and e.name == name]
    return lines[0] if len(lines) == 1 else None


def pair_changes(
    verdict: Verdict, base: Evidence | None, head: Evidence | None
) -> tuple[float, ...]:
    """Return the change of the rate in each pair that decided, in percent.

    There are none without pairs, and none if the interval is of other pairs too.
    """
    is_pooled = any(each.code == "I_ATTEMPTS" for each in verdict.reasons)
    if verdict.pairs is None or base is None or head is None or is_pooled:
        return ()
    try:
        differences = pair_differences(base, head)[: verdict.pairs]
    except FlamegateError:
        return ()
    return tuple(rate_change_pct(difference.quiet) for difference in differences)


def rows(results: Sequence[ResultView]) -> list[RunReport]:
    """Return the rows of the summary; a workload of several tests has a row for each."""
    count = Counter(one.report.name for one in results)
    return [
        replace(one.report, name=one.node) if count[one.report.name] > 1 else one.report
        for one in results
    ]


def summary_lines(
    results: Sequence[ResultView],
    hints: Hints,
    nodes: Sequence[str],
    *,
    width: int,
    colour: bool,
) -> list[str]:
    """Return the table of verdicts, the bricks, and how to accept ``nodes`` without a baseline."""
    settings = hints.settings
    is_as_it_is = settings.against is None and settings.inject is None
    waits = is_as_it_is and any(one.waits for one in results)
    lines = summary(
        rows(results),
        directory=relative(ArtifactStore(settings.directory).latest, settings.root),
        accept=_accept_command(results, hints, nodes) if waits else None,
        width=width,
        colour=colour,
    )
    if settings.bricks is not None:
        for one in results:
            if one.report.bricks is not None:
                lines += brick_lines(one.report.name, one.report.bricks, width=width)
    return lines + accepted_lines([one.accepted for one in results if one.accepted])


def _accept_command(results: Sequence[ResultView], hints: Hints, nodes: Sequence[str]) -> str:
    """Return the command that accepts the runs as they are, or else the one that measures again."""
    waiting = [one.report for one in results if one.waits]
    if all(report.receipt is not None for report in waiting):
        return hints.accept_stored(*(report.name for report in waiting))
    return f"{hints.accept(*nodes)}  (measures again)"


def accepted_lines(paths: Sequence[str]) -> list[str]:
    """Return which baselines were accepted, where they lie, and that they are to be committed."""
    directories: dict[str, list[str]] = {}
    for directory, _, name in (path.rpartition("/") for path in dict.fromkeys(paths)):
        directories.setdefault(directory, []).append(name)
    return [
        f"accepted {text.plural(len(names), 'baseline')} in {directory}: {', '.join(names)}. "
        f"Commit {'it' if len(names) == 1 else 'them'}: git add {shlex.quote(directory)}"
        for directory, names in directories.items()
    ]


def require_writable(path: Path) -> None:
    """Raise if no report can be written to ``path``, before anything is measured."""
    if is_directory(path):
        raise UsageError(
            "E_BAD_OPTION",
            f"The report is to be written to {str(path)!a}, which is a directory.",
            "Name a file in it: report.html.",
        )
    if os.path.islink(path):  # noqa: PTH114 - as in is_file
        raise ToolError(
            "E_CANNOT_WRITE",
            f"The report is to be written to {str(path)!a}, which is a symbolic link.",
            "Name the file itself.",
        )
    store.require_writable(path.parent)


def write_report(path: Path, reported: Sequence[RunReport], settings: Settings) -> None:
    """Write the page, all or nothing; ``ToolError`` if the system does not allow it."""
    passes = {each.name: each.verdict is None or not each.verdict.exit_code for each in reported}
    failed_first = sorted(reported, key=lambda each: passes[each.name])
    page = run_page(failed_first, title=f"flamegate: {settings.root.name}")
    with system_errors():
        store.write_atomic(path, page.encode())


def report_results(results: Sequence[ResultView], settings: Settings) -> list[RunReport]:
    """Return the workloads gated in this session, each with one result."""
    return [_with_pictures(one.report, settings) for one in choose_one_each(results)]


def choose_one_each(results: Sequence[ResultView]) -> Collection[ResultView]:
    """Return one result of each workload: the last that fails, else the last."""
    shown = {one.report.name: one for one in results}
    shown |= {one.report.name: one for one in results if one.fails}
    return shown.values()


def report_directory(settings: Settings) -> list[RunReport]:
    """Return the latest run of every workload. ``UsageError`` ``E_NO_RUN`` if there is none."""
    artifacts, hints = ArtifactStore(settings.directory), Hints(settings, as_command=True)
    latest = artifacts.latest
    names = sorted(
        path.parent.name for path in latest.glob(f"*/{baseline.VERDICT}") if is_file(path)
    )
    if not names:
        raise UsageError("E_NO_RUN", f"There is no run in {str(latest)!a}.")
    found = []
    for name in names:
        try:
            report = _read_run(artifacts.latest_directory(name), hints)
            found.append(_with_pictures(report, settings))
        except FlamegateError as error:
            problem = f"The files of the run cannot be read: {error.problem} {error.remedy}"
            reasons = (Reason(error.code, problem),)
            verdict = Verdict("error", reasons, grade="SELF_REPORTED")
            found.append(RunReport(name, verdict, headline(verdict)))
    return found


def _read_run(directory: Path, hints: Hints) -> RunReport:
    """Return the run in a directory, without its flame graph."""
    run = StoredRun(directory)
    headline_text, verdict = read_verdict(run.read(baseline.VERDICT))
    evidence = run.evidence() if run.has(baseline.EVIDENCE) else None
    has_base = verdict.pairs is not None and run.base.has(baseline.EVIDENCE)
    base = run.base.evidence() if has_base else None
    receipt = decode_receipt(run.read(baseline.RECEIPT)) if run.has(baseline.RECEIPT) else None
    view = None
    warnings: tuple[str, ...] = ()
    if evidence is not None and verdict.verdict != "dishonest":
        view, warnings = read_brick_view(directory, evidence, hints.settings)
    family, variant = split_variant_name(directory.name)
    return RunReport(
        name=directory.name,
        verdict=verdict,
        headline=headline_text,
        receipt=receipt,
        evidence=evidence,
        again=hints.again(directory.name, against=verdict.against),
        accept=hints.accept_latest(directory.name, verdict, evidence),
        warnings=warnings,
        bricks=view,
        family=family,
        variant=variant,
        pairs_pct=pair_changes(verdict, base, evidence),
    )


def _with_pictures(report: RunReport, settings: Settings) -> RunReport:
    """Return a report with its flame graph and the sources of that; an error is a warning."""
    directory = ArtifactStore(settings.directory).latest_directory(report.name)
    if report.drawn is None:
        drawn, warnings = _read_drawn(directory, report.evidence, report.verdict)
        report = replace(report, drawn=drawn, warnings=report.warnings + warnings)
    if report.drawn is None or not StoredRun(directory).has(baseline.LINES):
        return report
    try:
        view = read_sources(directory, settings.root, report.drawn.difference)
    except FlamegateError as error:
        return replace(report, warnings=(*report.warnings, f"There is no source. {error}"))
    return replace(report, source=view)


def _read_drawn(
    directory: Path, evidence: Evidence | None, verdict: Verdict | None
) -> tuple[Drawn | None, tuple[str, ...]]:
    """Return the flame graph of the run of ``evidence``; an error is a warning."""
    run = StoredRun(directory)
    if evidence is None or verdict is None or not run.has(baseline.FOLDED):
        return None, ()
    try:
        opened = open_profile(run.path(baseline.FOLDED))
    except FlamegateError as error:
        return None, (f"There is no flame graph. {error}",)
    if opened.evidence is None or opened.evidence.nonce != evidence.nonce:
        return None, ("There is no flame graph: another run has taken its place.",)
    profile = opened.profile
    if run.has(baseline.LINES):
        with suppress(FlamegateError):  # the sources, which are read next, report it
            profile = replace(profile, lines=read_lines(run, profile.samples))
    drawn = Drawn(opened.title, profile, opened.cpu_s_per_token)
    drawn = replace(drawn, opens_compared=opens_compared(verdict))
    try:
        difference = compare_stored_run(directory, verdict)
    except FlamegateError as error:
        return drawn, (f"There is no difference. {error}",)
    return replace(drawn, difference=difference), ()

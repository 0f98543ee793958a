"""Draw a run: its flame graph and page, the difference, its bricks. Nothing is measured here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import FlamegateError, ReceiptError, system_errors
from pytest_flamegate.core.files import relative
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.graph.roofline import describe_roofline
from pytest_flamegate.graph.table import DEFAULT_ROWS, tabulate_runs
from pytest_flamegate.graph.text import summarize_token
from pytest_flamegate.observe.machine import Bandwidth, find_known_bandwidth
from pytest_flamegate.profile.difference import ProfileDifference
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.receipt import baseline
from pytest_flamegate.receipt.baseline import StoredRun
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.bricks import BrickView
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.evidence import machine_note, picture_subtitle, workload_notes
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.markdown import run_markdown
from pytest_flamegate.report.page import flamegraph_html
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.run.open import RecordedCalls, compare_run
from pytest_flamegate.run.seal import ComposedRun


@dataclass(frozen=True, slots=True)
class Pictures:
    """The drawn files by their names, and the data that reports show again."""

    files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    drawn: Drawn | None = None
    bricks: BrickView | None = None
    warnings: tuple[str, ...] = ()


def draw(
    run: ComposedRun,
    verdict: Verdict,
    settings: Settings,
    *,
    again: str,
    directory: Path,
) -> Pictures:
    """Draw a run; its page shows ``verdict`` and the command that measures it ``again``."""
    difference, head = compare_run(run, verdict), run.head
    bricks = drawn = None
    warnings: tuple[str, ...] = ()
    if verdict.verdict != "dishonest":
        calls = head.recorded.calls if head.recorded is not None else None
        bricks, warnings = make_brick_view(
            head.evidence, calls, settings, run.measured.bandwidth, directory
        )
    if head.profile is not None:
        drawn = Drawn(
            run.prepared.workload.name,
            head.profile,
            cost_of(head.profile.covers, head.evidence.metrics),
            difference,
            opens_compared=opens_compared(verdict),
        )
    drawings = _difference_files(run, difference)
    drawings |= _flame_files(run, verdict, again, drawn, bricks)
    drawings |= _instruction_files(run)
    return Pictures(drawings, drawn, bricks, warnings)


def _flame_files(
    run: ComposedRun,
    verdict: Verdict,
    again: str,
    drawn: Drawn | None,
    bricks: BrickView | None,
) -> dict[str, bytes]:
    """Return the flame graph, still and interactive, and its page; nothing without a profile."""
    head = run.head
    if drawn is None or head.receipt is None:
        return {}
    drawn = replace(drawn, title=run.prepared.workload.node_name)
    subtitle = picture_subtitle(head.evidence, head.receipt)
    picture = flamegraph(drawn, subtitle=subtitle)
    interactive = flamegraph_html(drawn, subtitle=subtitle, answer=headline(verdict))
    page = run_markdown(
        RunReport(
            str(head.evidence.workload.get("name")),
            verdict,
            headline(verdict),
            head.receipt,
            head.evidence,
            picture=baseline.PICTURE,
            difference=baseline.DIFFERENCE if drawn.difference is not None else "",
            bricks=bricks and replace(bricks, full_command=f"flamegate bricks {baseline.BRICKS}"),
            again=again,
        )
    )
    return {
        baseline.PICTURE: picture.encode(),
        baseline.INTERACTIVE: interactive.encode(),
        baseline.PAGE: page.encode(),
    }


def opens_compared(verdict: Verdict) -> bool:
    """Whether a page opens on the difference: a reader of a changed run looks for that first."""
    return verdict.kind.is_change


def _difference_files(run: ComposedRun, difference: ProfileDifference | None) -> dict[str, bytes]:
    """Return the picture of the difference, and the files of the other side."""
    found, accepted = {}, run.prepared.baseline
    if run.base is not None:
        found = _base_files(run.base.files)
    elif difference is not None and accepted is not None:
        names = (baseline.EVIDENCE, baseline.FOLDED)
        found = _base_files({name: accepted.files[name] for name in names})
    if difference is not None:
        evidence = run.head.evidence
        picture = difference_svg(
            difference,
            title=f"{run.prepared.workload.node_name}: what changed",
            subtitle=" · ".join([*workload_notes(evidence), machine_note(evidence)]),
        )
        found[baseline.DIFFERENCE] = picture.encode()
    return found


def _base_files(stored: Mapping[str, bytes]) -> dict[str, bytes]:
    names = (name for name in baseline.SIDE_FILES if name in stored)
    return {baseline.BASE + name: stored[name] for name in names}


def _instruction_files(run: ComposedRun) -> dict[str, bytes]:
    """Return the counted instructions as folded stacks, and as a flame graph of their own."""
    counts = [side.count for side in run.prepared.sides]
    count = counts[-1]
    if count is None or (len(counts) > 1 and counts[0] is None):
        return {}
    per_token = f"{round(count.per_token):,} instructions a token, {count.profile.covers} counted"
    picture = flamegraph(
        Drawn(f"{run.prepared.workload.node_name}: instructions", count.profile),
        subtitle=f"{picture_subtitle(run.head.evidence, None)} · {per_token}",
    )
    found = {
        baseline.INSTRUCTIONS: fold_profile(count.profile).encode(),
        baseline.INSTRUCTIONS_PICTURE: picture.encode(),
    }
    if len(counts) > 1 and counts[0] is not None:
        found[baseline.BASE + baseline.INSTRUCTIONS] = fold_profile(counts[0].profile).encode()
    return found


def read_brick_view(
    directory: Path, evidence: Evidence, settings: Settings
) -> tuple[BrickView | None, tuple[str, ...]]:
    """Return the bricks of the run in ``directory``, whose evidence is given; or a warning."""
    if not evidence.bricks:
        return None, ()
    calls: tuple[BrickCall, ...] | None = None
    notes: tuple[str, ...] = ()
    try:
        with system_errors():
            calls = _read_calls(StoredRun(directory), evidence.nonce)
    except FlamegateError as error:
        notes = (f"There is no tree of one token. {error}",)
    threads = evidence.workload.get("threads")
    bandwidth = find_known_bandwidth(threads if isinstance(threads, int) and threads > 0 else 1)
    view, warnings = make_brick_view(evidence, calls, settings, bandwidth, directory)
    return view and replace(view, notes=(*view.notes, *notes)), warnings


def make_brick_view(
    evidence: Evidence,
    calls: Sequence[BrickCall] | None,
    settings: Settings,
    bandwidth: Bandwidth | None = None,
    directory: Path = Path(),
) -> tuple[BrickView | None, tuple[str, ...]]:
    """Return the table of bricks, and the tree of one token if its ``calls`` are known."""
    if not evidence.bricks:
        return None, ()
    try:
        view = BrickView(tabulate_runs(evidence.bricks, top=settings.bricks or DEFAULT_ROWS))
    except FlamegateError as error:
        return None, (f"No bricks are shown. {error}",)
    try:
        token = summarize_token(calls) if calls is not None else None
    except FlamegateError as error:
        view, token = replace(view, notes=(f"There is no tree of one token. {error}",)), None
    if token is not None:
        view = replace(view, tree=token[0], critical_path=token[1])
    peak_flops = None if settings.peak_gflops is None else 1e9 * settings.peak_gflops
    view = replace(view, roofline=describe_roofline(evidence, bandwidth, peak_flops))
    command = shlex.join(["flamegate", "bricks", relative(directory, settings.root)])
    return replace(view, full_command=command), ()


def _read_calls(run: StoredRun, nonce: str) -> tuple[BrickCall, ...]:
    if not run.has(baseline.BRICKS):
        raise ReceiptError("E_NO_BRICKS", f"There is no {baseline.BRICKS}.", "Measure again.")
    data = run.read(baseline.BRICKS)
    found = decode_json(data, RecordedCalls, EVIDENCE_LIMITS, subject=baseline.BRICKS)
    if found.nonce != nonce:
        raise ReceiptError(
            "E_NO_BRICKS", f"{baseline.BRICKS} belongs to another run.", "Measure again."
        )
    return found.calls

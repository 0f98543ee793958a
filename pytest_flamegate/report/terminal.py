"""What stands in a terminal or a log: the line before the runs, the table after, an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.words import headline
from pytest_flamegate.report import figures
from pytest_flamegate.report.families_shown import family_lines, speed_cells
from pytest_flamegate.report.insights import by_self_share
from pytest_flamegate.report.kernels import kernel_line
from pytest_flamegate.report.own_word import own_lines
from pytest_flamegate.report.replay import replay_line
from pytest_flamegate.report.text import cells, clip, clip_front, columns, paint, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from pytest_flamegate.errors import FlamegateError
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.receipt.findings import Notice, Refusal
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.receipt.verification import Verification
    from pytest_flamegate.report.bricks import BricksShown

GREEN, RED, YELLOW = "green", "red", "yellow"
_COLOURS = {
    "pass": GREEN,
    "improved": GREEN,
    "regressed": RED,
    "dishonest": RED,
    "error": RED,
}
_SAID_BELOW = frozenset({"inconclusive", "not_comparable"})
_HEAD = ("workload", "tokens/s", "quiet clock", "verdict", "hottest frames (share of CPU)")
_HOTTEST = 3
_UNSEEN = frozenset({"SELF_REPORTED", "CONSISTENT"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one workload; without a receipt and evidence it never came to be measured.

    ``family`` and ``variant`` are those of the workload, None where it has none; ``bricks``
    are None where none were clocked.
    """

    workload: str
    verdict: Verdict
    receipt: Receipt | None = None
    evidence: Evidence | None = None
    warnings: tuple[str, ...] = ()
    family: str | None = None
    variant: str | None = None
    bricks: BricksShown | None = None


def colour_of(verdict: Verdict) -> str:
    """Return the colour of a verdict's word: ``green``, ``red`` or ``yellow``."""
    return _COLOURS.get(verdict.verdict, YELLOW)


def preamble(
    *,
    profiler: str,
    note: str | None,
    cpu: str,
    cores: int | None,
    noise_pct: float | None,
) -> str:
    """Return the line that stands before the runs.

    ``profiler`` is its name and version and ``note`` why it is not a better one;
    ``noise_pct`` is the machine's spread in percent where it is known.
    """
    used = f"{visible(profiler)} ({visible(note)})" if note else visible(profiler)
    machine = visible(cpu.strip()) or "unknown CPU"
    if cores is not None:
        machine += f", {figures.plural(cores, 'core')}"
    noise = [f"noise {figures.percent(noise_pct)}"] if noise_pct is not None else []
    return " · ".join([f"flamegate: {used}", machine, *noise])


def summary(
    outcomes: Sequence[Outcome],
    *,
    width: int = 100,
    directory: str = ".flamegate/latest",
    accept: str | None = None,
    colour: bool = False,
) -> list[str]:
    """Return the lines of the table of all workloads, and of what to do next.

    ``width`` is the terminal's, in columns; ``directory`` is where the flame graphs
    lie; ``accept`` is the command that makes these runs the baseline, None where there
    is nothing to accept.
    """
    if not outcomes:
        return ["no workload was measured"]
    rows = [_HEAD, *(_row(each, width) for each in outcomes)]
    # The last column takes what the others leave.
    room = width - 3 - max(map(cells, columns([row[:4] for row in rows])))
    lines = columns(
        [(*row[:4], _hottest(row[4], max(room, 20))) for row in rows],
        right=(1, 2),
        colour=colour,
    )
    lines += [
        f"{visible(each.workload)}: {visible(headline(each.verdict), 1000)}"
        for each in outcomes
        if each.verdict.verdict in _SAID_BELOW
    ]
    lines += [
        f"{visible(each.workload)}: {visible(warning, 1000)}"
        for each in outcomes
        for warning in each.warnings
    ]
    lines += [
        f"{visible(each.workload)}: {told}"
        for each in outcomes
        if each.evidence is not None
        for told in own_lines(each.evidence, each.receipt)
    ]
    lines += [
        f"{visible(each.workload)}: {told}"
        for each in outcomes
        if each.evidence is not None and (told := kernel_line(each.evidence)) is not None
    ]
    lines += family_lines(outcomes, width)
    claimed = [each for each in outcomes if each.receipt is not None]
    if claimed:
        lines += wrap([_grades(claimed), f"flame graphs in {visible(directory)}"], width)
    if accept is not None:
        lines.append(f"accept these as the baseline:  {visible(accept, 1000)}")
    return [line.rstrip() for line in lines]


def _row(outcome: Outcome, width: int) -> tuple[str, str, str, Text | str, str]:
    from rich.text import Text

    evidence = outcome.evidence
    rate, quiet, hottest = *speed_cells(outcome.receipt, evidence), ""
    if evidence is not None and evidence.profile is not None:
        frames = by_self_share(evidence.profile.hotspots)[:_HOTTEST]
        hottest = "\n".join(
            f"{visible(each.name)} {figures.share(each.self_share)}"
            for each in frames
            if each.self_samples
        )
    word = outcome.verdict.verdict.replace("_", " ")
    shown = Text.styled(word, f"bold {colour_of(outcome.verdict)}")
    name = clip_front(visible(outcome.workload), max(width // 3, 12))
    return name, rate, quiet, shown, hottest


def _hottest(frames: str, room: int) -> str:
    """Return as many whole frames as fit into ``room`` columns; the first one clipped."""
    names = frames.split("\n")
    shown = clip(names[0], room)
    for name in names[1:]:
        if cells(shown) + 2 + cells(name) > room:
            break
        shown += f"  {name}"
    return shown


def _grades(outcomes: Sequence[Outcome]) -> str:
    counted = Counter(each.verdict.grade for each in outcomes)
    told = ", ".join(
        visible(name) if len(counted) == 1 else f"{visible(name)} ({number})"
        for name, number in counted.items()
    )
    by_whom = (
        "some are only the word of whoever wrote them"
        if set(counted) & _UNSEEN
        else "the machine's owner could still have forged them"
    )
    return f"receipts {told} ({by_whom})"


def verification_text(
    found: Verification,
    *,
    path: str | None = None,
    required: str | None = None,
    colour: bool = False,
    error: FlamegateError | None = None,
) -> str:
    """Return the answer on one receipt as plain text, without a line break at its end.

    ``path`` names the receipt where there are several; ``required`` is the grade that
    was asked for, ``error`` why its workload could not be run again. An honest receipt
    whose replay does not hold is neither accepted nor refused.
    """
    undecided = error is not None or (found.replayed is not None and not found.obtained_again)
    answer = "refused" if not found.ok else "not replayed" if undecided else "accepted"
    if colour and not (found.ok and undecided):
        answer = paint(answer, GREEN if found.ok else RED)
    wanted = f", wanted {visible(required).upper()}" if required else ""
    named = f"{visible(path, 1000)}: " if path is not None else ""
    told: list[Refusal | Notice] = [*found.refusals, *found.warnings]
    replayed = replay_line(found)
    replay = [replayed] if replayed is not None else []
    if error is not None:
        failed = (error.code, visible(f"{error.what} {error.todo}", 20_000))
        replay = ["not replayed:", *columns([failed], indent=2)]
    honest = f"honest: yes, {found.grade.name}" if found.honest else "honest: no"
    fit = "yes" if found.fit else "no" if found.honest else "not asked, for it is not honest"
    return "\n".join(
        [
            f"{named}{answer} (grade {found.grade.name}{wanted})   policy {visible(found.policy)}",
            *replay,
            honest,
            *_findings(told),
            f"fit to gate on: {fit}",
            *_findings(found.unfit),
            *([f"signed by {visible(found.signed_by)}"] if found.signed_by else []),
            visible(found.ceiling, 1000),
        ]
    )


def _findings(told: Sequence[Refusal | Notice]) -> list[str]:
    """Return a line for each finding: its code, what happened, what to do."""
    rows = [
        (each.code, " ".join(filter(None, (visible(each.message, 1000), visible(each.todo, 1000)))))
        for each in told
    ]
    return columns(rows, indent=2)

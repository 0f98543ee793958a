"""Reports as text: the line before the runs, the table after them, a failed test, annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report import text
from pytest_flamegate.report.evidence import engine_lines, kernel_line, revision_note, speed_cells
from pytest_flamegate.report.run_report import RunReport, find_hottest, variant_sections
from pytest_flamegate.report.sections import (
    Items,
    Line,
    Paragraph,
    Section,
    Table,
    cell_text,
    join_line,
)
from pytest_flamegate.report.text import cells, clip, clip_front, columns, paint, visible, wrap
from pytest_flamegate.report.verdict import (
    cost_section,
    describe_sureness,
    phase_section,
    reason_section,
    signal_section,
)

_WITH_HEADLINE = frozenset({"pass", "improved", "inconclusive", "not comparable"})
"""Verdicts whose figures the table's footer prints; a failed test has a section of its own."""
_HEAD = ("workload", "quiet clock", "wall tokens/s", "verdict", "hottest frames (share of CPU)")
_CLOCKS = "gated: the quiet clock (wall time less the time spent waiting for a CPU)"
_NOT_OBSERVED = frozenset({"SELF_REPORTED", "CONSISTENT"})
_LONG = 2000
_COLOURS = {"good": "green", "bad": "red", "unsure": "yellow"}


def section_lines(section: Section, *, indent: int = 2, width: int = 10_000) -> list[str]:
    """Return a section as lines: its title heads the first column of its first table.

    Tables are clipped at ``width``, sentences are not.
    """
    lines: list[str] = []
    title = section.title
    for block in section.blocks:
        if isinstance(block, Table):
            head = (title or block.head[0], *block.head[1:])
            rows = [[visible(cell_text(cell)) for cell in row] for row in block.rows]
            body = [(f"  {first}", *cells) for first, *cells in rows] if title else rows
            aligned = columns([head, *body], right=block.right, indent=indent, gap=2)
            lines += [clip(line, width) for line in aligned]
            title = ""
            continue
        sentences: tuple[Line, ...] = (block.line,) if isinstance(block, Paragraph) else ()
        if isinstance(block, Items):
            sentences = block.lines
        plain = [visible(join_line(each, str, str), _LONG) for each in sentences]
        lines += [f"{' ' * indent}{sentence}" for sentence in plain]
    return lines


def preamble(
    *, profiler: str, note: str | None, cpu: str, cores: int | None, noise_pct: float | None
) -> str:
    """Return the line before the runs: profiler, machine and its noise.

    ``note`` states why the profiler is not a better one.
    """
    used = f"{visible(profiler)} ({visible(note)})" if note else visible(profiler)
    machine = visible(cpu.strip()) or "unknown CPU"
    if cores is not None:
        machine += f", {text.plural(cores, 'core')}"
    noise = [f"noise {text.percent(noise_pct)}"] if noise_pct is not None else []
    return " · ".join([f"flamegate: {used}", machine, *noise])


# The table after the runs


def summary(
    rows: Sequence[RunReport],
    *,
    width: int = 100,
    directory: str = ".flamegate/latest",
    accept: str | None = None,
    colour: bool = False,
) -> list[str]:
    """Return the table of all workloads, their figures, and the next command.

    ``directory`` holds the flame graphs; ``accept`` is the command that makes these runs the
    baseline, None if there is none to accept.
    """
    if not rows:
        return ["no workload was measured"]
    table = [_HEAD, *(_summary_cells(row, width, colour=colour) for row in rows)]
    lines = columns(table, right=(1, 2))
    # A narrow terminal has the frames in lines of their own, not cut.
    is_narrow = max(map(cells, lines)) > width
    if is_narrow:
        lines = columns([each[:-1] for each in table], right=(1, 2))
    for row in rows:
        notes = [row.headline, *row.warnings] if row.word in _WITH_HEADLINE else row.warnings
        notes = [visible(note, 1000) for note in notes]
        if is_narrow and (hottest := _describe_hottest(row, ", ")):
            notes.append(f"hottest frames {hottest} of CPU")
        if row.evidence is not None:
            notes += engine_lines(row.evidence, row.receipt)
            notes += filter(None, [kernel_line(row.evidence)])
        lines += [f"{visible(row.name)}: {note}" for note in notes]
    for section in variant_sections(rows):
        lines += ["", visible(section.title)]
        lines += section_lines(replace(section, title=""), indent=0, width=width)
    if any(row.receipt is not None for row in rows):
        claimed = [row for row in rows if row.receipt is not None]
        facts = [_CLOCKS, _describe_grades(claimed), f"flame graphs in {visible(directory)}"]
        lines += wrap(facts, width)
    if accept is not None:
        lines.append(f"accept these as the baseline:  {visible(accept, 1000)}")
    return [line.rstrip() for line in lines]


def _summary_cells(row: RunReport, width: int, *, colour: bool) -> tuple[str, str, str, str, str]:
    name = clip_front(visible(row.name), max(width // 3, 12))
    word = paint(row.word, _COLOURS[row.tone]) if colour else row.word
    return name, *speed_cells(row.receipt, row.evidence), word, _describe_hottest(row, "  ")


def _describe_hottest(row: RunReport, separator: str) -> str:
    hottest = find_hottest(row.evidence)
    return separator.join(f"{visible(h.name)} {text.share(h.self_share)}" for h in hottest)


def _describe_grades(rows: Sequence[RunReport]) -> str:
    counted = Counter(row.grade for row in rows)
    grades = ", ".join(
        visible(name) if len(counted) == 1 else f"{visible(name)} ({number})"
        for name, number in counted.items()
    )
    meaning = (
        "some are only the word of their author"
        if set(counted) & _NOT_OBSERVED
        else "the machine's owner could still have forged them"
    )
    return f"receipts {grades} ({meaning})"


# A failed test


def failure_section(
    verdict: Verdict,
    evidence: Evidence | None,
    baseline: Evidence | None,
    *,
    paths: Sequence[str],
    again: str,
    accept: str | None,
    colour: bool = False,
) -> str:
    """Return the text of a failed test, without a line break at its end.

    ``paths`` are the files that prove it, the most telling first. ``again`` and ``accept`` are
    commands; ``accept`` is None if the run cannot be the new baseline.
    """
    answer = visible(headline(verdict), _LONG)
    tone = RunReport("", verdict).tone
    lines = [paint(answer, _COLOURS[tone]) if colour else answer]
    for section in (
        cost_section(verdict, brief=True),
        signal_section(verdict, brief=True),
        phase_section(verdict),
        reason_section(verdict, brief=True),
    ):
        lines += section_lines(section)
    if verdict.signals:
        # The grade is in the line of the evidence.
        lines.append(f"  {visible(' '.join(describe_sureness(verdict)[1:]), _LONG)}")
    proof = [visible(path) for path in paths]
    proof.append(f"receipt {visible(verdict.grade)}")
    if baseline is not None and baseline.commit is not None:
        proof.append(f"base {visible(baseline.commit.revision)[:7]}")
    if evidence is not None and (revision := revision_note(evidence)):
        proof.append(f"head {visible(revision)}")
    facts = [("evidence", " · ".join(proof)), ("again", visible(again, _LONG))]
    if accept is not None:
        facts.append(("accept", visible(accept, _LONG)))
    lines += columns(facts, indent=2, gap=2)
    return "\n".join(lines)


# Annotations of a CI service


_MESSAGE = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY = (*_MESSAGE, (":", "%3A"), (",", "%2C"))


def error_annotation(file: str, line: int | None, title: str, message: str) -> str:
    """Return the GitHub workflow command that puts an error on ``file`` (and ``line``, from 1).

    It is one line without a line break at its end; ``message`` may have several. Every part is
    escaped, so that no text can start another command.
    """
    properties = [f"file={_escape(visible(file), _PROPERTY)}"] if file else []
    if file and line is not None:
        properties.append(f"line={max(line, 1)}")
    properties.append(f"title={_escape(visible(title), _PROPERTY)}")
    body = "\n".join(visible(each, 1000) for each in message.splitlines())
    return f"::error {','.join(properties)}::{_escape(body, _MESSAGE)}"


def _escape(value: str, replacements: tuple[tuple[str, str], ...]) -> str:
    for char, written in replacements:
        value = value.replace(char, written)
    return value

"""Reports as text: the table after the runs, a failed test, receipts, imported results."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.text import Notice, Refusal, significant
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.receipt.imports.imported import ImportComparison, Imported, ImportedMetric
from pytest_flamegate.receipt.rules.replay import describe_rates
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.receipt.verify import Verification
from pytest_flamegate.report import sections, text
from pytest_flamegate.report.bricks import TREE_LINES, BrickView, brick_section
from pytest_flamegate.report.evidence import engine_lines, kernel_line, revision_note
from pytest_flamegate.report.run_report import (
    RunReport,
    describe_claims,
    describe_hottest,
    summary_section,
    variant_sections,
)
from pytest_flamegate.report.text import cells, clip, clip_front, columns, paint, visible, wrap
from pytest_flamegate.report.verdict import (
    call_section,
    cost_section,
    describe_sureness,
    line_section,
    phase_section,
    reason_section,
    signal_section,
)

_LONG = 2000
_WIDEST_BRICK = 40
_COLOURS = {"good": "green", "bad": "red", "unsure": "yellow"}


def section_lines(section: sections.Section, *, indent: int = 2, width: int = 10_000) -> list[str]:
    """Return a section as lines: its title heads the first column of its first table.

    Tables and listings are clipped at ``width``, and sentences are broken between words.
    """
    lines: list[str] = []
    title = section.title
    for block in section.blocks:
        if isinstance(block, sections.Table):
            head = (title or block.head[0], *block.head[1:])
            rows = [[visible(sections.cell_text(cell)) for cell in row] for row in block.rows]
            body = [(f"  {first}", *cells) for first, *cells in rows] if title else rows
            aligned = columns([head, *body], right=block.right, indent=indent, gap=2)
            lines += [clip(line, width) for line in aligned]
            title = ""
        elif isinstance(block, sections.Listing):
            listing = [block.summary, *block.text.split("\n")]
            lines += ["", *(clip(visible(line), width) for line in listing)]
        for sentence in sections.list_sentences(block):
            # A figure and its sign stay on one line.
            joined = visible(sentence, _LONG).replace(" %", "\u00a0%")
            broken = textwrap.wrap(joined, width, break_on_hyphens=False)
            lines += [f"{' ' * indent}{line}".replace("\u00a0%", " %") for line in broken]
    return lines


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
    found, *_ = summary_section(rows, on_page=False).blocks
    assert isinstance(found, sections.Table)
    table = [found.head, *(_summary_cells(row, width, colour=colour) for row in found.rows)]
    lines = columns(table, right=found.right)
    # A narrow terminal has the frames in lines of their own, not cut.
    is_narrow = max(map(cells, lines)) > width
    if is_narrow:
        lines = columns([each[:-1] for each in table], right=found.right)
    for row in rows:
        # A failed test has a section of its own, which begins with the headline.
        has_headline = row.verdict is not None and row.tone != "bad"
        notes = [row.headline, *row.warnings] if has_headline else row.warnings
        notes = [visible(note, 1000) for note in notes]
        if is_narrow and (hottest := describe_hottest(row.evidence)):
            notes.append(f"hottest frames {hottest} of CPU")
        if row.evidence is not None:
            notes += engine_lines(row.evidence, row.receipt)
            notes += filter(None, [kernel_line(row.evidence)])
        lines += [f"{visible(row.name)}: {note}" for note in notes]
    for section in variant_sections(rows):
        lines += ["", visible(section.title)]
        lines += section_lines(replace(section, title=""), indent=0, width=width)
    if claims := describe_claims(rows):
        lines += wrap([*claims, f"flame graphs in {visible(directory)}"], width)
    if accept is not None:
        lines.append(f"accept these as the baseline:  {visible(accept, 1000)}")
    return [line.rstrip() for line in lines]


def _summary_cells(row: Sequence[sections.Cell], width: int, *, colour: bool) -> list[str]:
    """Return the cells of a row; a name that fills the line would leave no room for the others."""
    name = clip_front(visible(sections.cell_text(row[0])), max(width // 3, 12))
    others = [
        paint(cell.text, _COLOURS[cell.tone])
        if colour and isinstance(cell, sections.Badge)
        else sections.cell_text(cell)
        for cell in row[1:]
    ]
    return [name, *others]


def brick_lines(name: str, view: BrickView, *, width: int = 100) -> list[str]:
    """Return the bricks of the workload ``name`` in lines of at most ``width`` columns."""
    table, *others = brick_section(view, TREE_LINES).blocks
    assert isinstance(table, sections.Table)
    # A name that fills the line would leave no room for its figures.
    rows = [
        (clip(visible(sections.cell_text(label)), _WIDEST_BRICK), *figures)
        for label, *figures in table.rows
    ]
    section = sections.Section("", (replace(table, rows=rows), *others))
    lines = [f"bricks of {visible(name)}", *section_lines(section, indent=0, width=width)]
    return ["", *(clip(line, width).rstrip() for line in lines)]


# A failed test


def failure_section(
    verdict: Verdict,
    evidence: Evidence | None,
    baseline: Evidence | None,
    *,
    paths: Sequence[str],
    look: str | None,
    again: str,
    accept: str | None,
) -> str:
    """Return the text of a failed test, without a line break at its end.

    ``paths`` are the files that prove it, the most telling first. ``look``, ``again`` and
    ``accept`` are commands: ``look`` shows the source with its costs, None if they are not known;
    ``accept`` is None if the run cannot be accepted.
    """
    lines = [visible(headline(verdict), _LONG)]
    for section in (
        cost_section(verdict, brief=True),
        line_section(verdict),
        call_section(verdict),
        signal_section(verdict, brief=True),
        phase_section(verdict),
        reason_section(verdict, brief=True),
    ):
        lines += section_lines(section)
    if verdict.signals:
        # The grade is in the line of the evidence.
        lines.append(f"  {visible(' '.join(describe_sureness(verdict)[1:]), _LONG)}")
    proof = [visible(path) for path in paths]
    proof.append(f"receipt {visible(verdict.grade)}" if evidence is not None else "no receipt")
    if baseline is not None and baseline.commit is not None:
        proof.append(f"base {visible(baseline.commit.revision)[:7]}")
    if evidence is not None and (revision := revision_note(evidence.commit)):
        proof.append(f"head {visible(revision)}")
    next_steps = (("look", look), ("again", again), ("accept", accept))
    facts = [("evidence", " · ".join(proof))]
    facts += [(name, visible(command, _LONG)) for name, command in next_steps if command]
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


# Answers about receipts


_TOKENS = {"E_REPLAY_TOKENS": "differ", "W_REPLAY_NOT_DETERMINISTIC": "not compared"}


def verification_text(
    found: Verification,
    *,
    path: str | None = None,
    required: str | None = None,
    colour: bool = False,
    error: FlamegateError | None = None,
) -> str:
    """Return the answer about one receipt, without a line break at its end.

    An honest receipt whose replay does not hold is neither accepted nor rejected. ``path`` names
    the receipt if there are several, ``required`` the grade that was asked for; ``error`` is the
    reason why its workload could not be run again.
    """
    undecided = error is not None or (found.replayed is not None and not found.obtained_again)
    answer = "rejected" if not found.ok else "not replayed" if undecided else "accepted"
    if colour and not (found.ok and undecided):
        answer = paint(answer, "green" if found.ok else "red")
    wanted = f", wanted {visible(required).upper()}" if required else ""
    name = f"{visible(path, 1000)}: " if path is not None else ""
    replay = []
    if found.replayed is not None:
        tokens = _compare_tokens(found)
        digest = "differs" if tokens == "differ" else tokens
        processes, rates = found.replayed.processes, describe_rates(found.replayed.rate)
        replay = [f"replayed here: {processes} processes, digest {digest}, {rates}"]
    if error is not None:
        problem = visible(f"{error.problem} {error.remedy}", 20_000)
        replay = ["not replayed:", *columns([(error.code, problem)], indent=2)]
    usable = "yes" if found.fit else "no" if found.honest else "not evaluated (verification failed)"
    return "\n".join(
        [
            f"{name}{answer} (grade {found.grade.name}{wanted})   policy {visible(found.policy)}",
            *replay,
            f"honest: yes, {found.grade.name}" if found.honest else "honest: no",
            *_finding_lines([*found.refusals, *found.warnings]),
            f"usable as a baseline: {usable}",
            *_finding_lines(found.unfit),
            *([f"signed by {visible(found.signed_by)}"] if found.signed_by else []),
            visible(found.ceiling, 1000),
        ]
    )


def _finding_lines(findings: Sequence[Refusal | Notice]) -> list[str]:
    """Return a line for each finding: its code, the problem, the remedy."""
    rows = []
    for each in findings:
        sentences = (visible(each.message, 1000), visible(each.remedy, 1000))
        rows.append((each.code, " ".join(filter(None, sentences))))
    return columns(rows, indent=2)


def replay_document(found: Verification) -> dict[str, object] | None:
    """Return the replay as plain data; rates are tokens per second, null if not compared."""
    replayed = found.replayed
    if replayed is None:
        return None
    rate = replayed.rate
    return {
        "processes": replayed.processes,
        "tokens": _compare_tokens(found),
        "rate": rate.answer,
        "claimed_tokens_per_second": rate.claimed,
        "tokens_per_second": rate.here,
        "low": rate.low,
        "high": rate.high,
        "wall_tokens_per_second": rate.wall,
    }


def _compare_tokens(found: Verification) -> str:
    codes = [each.code for each in (*found.refusals, *found.warnings)]
    return next((word for code, word in _TOKENS.items() if code in codes), "equal")


# Imported results


_WIDTH = 44
_WORDS = {True: "better", False: "worse", None: "same"}
_MOST_LEFT_OUT = 5
_NAMES = ("name", "statistic", "formula", "unit", "direction")


def imported_text(results: Sequence[Imported]) -> str:
    """Return a table of the figures of every result, with their formulas."""
    rows = [("result", "figure", "", "statistic", "of", "formula")]
    for result in results:
        rows += [
            (
                visible(result.result),
                each.name,
                _value(each),
                each.statistic,
                "" if each.samples is None else text.count(each.samples),
                each.formula,
            )
            for each in result.metrics
        ]
    first = results[0]
    tool = " ".join(part for part in (first.tool, first.tool_version) if part)
    lines = [
        f"{text.plural(len(results), 'result')} of {clip(visible(tool), 60)}, SELF_REPORTED: "
        "not measured by flamegate",
        *columns(rows, right=(2, 4)),
    ]
    left_out = [each for result in results for each in result.left_out]
    lines += [
        f"left out: {visible(each.field)}, {each.reason}" for each in left_out[:_MOST_LEFT_OUT]
    ]
    if len(left_out) > _MOST_LEFT_OUT:
        lines.append(f"left out: {text.count(len(left_out) - _MOST_LEFT_OUT)} more")
    return "\n".join(lines)


def comparison_text(compared: ImportComparison) -> str:
    """Return the figures that are comparable, then the names of those that are not."""
    rows = [("figure", "statistic", "before", "after", "change", "", "formula")]
    rows += [
        (
            pair.after.name,
            pair.after.statistic,
            _value(pair.before),
            _value(pair.after),
            f"{pair.change_pct:+,.1f} %",
            _WORDS[pair.better],
            pair.after.formula,
        )
        for pair in compared.pairs
    ]
    lines = columns(rows, right=(2, 3, 4)) if compared.pairs else ["nothing could be compared"]
    lines += [f"{each.code}: {each.message}" for each in compared.differing]
    if compared.alone:
        lines.append(f"not on both sides: {clip(', '.join(compared.alone), 300)}")
    return "\n".join(lines)


def comparison_document(compared: ImportComparison) -> dict[str, object]:
    """Return the comparison as plain data."""
    return {
        "compared": [
            {name: getattr(pair.after, name) for name in _NAMES}
            | {
                "before": pair.before.value,
                "after": pair.after.value,
                "change_pct": pair.change_pct,
                "better": pair.better,
            }
            for pair in compared.pairs
        ],
        "refused": [{"code": each.code, "message": each.message} for each in compared.differing],
        "alone": list(compared.alone),
    }


def _value(metric: ImportedMetric) -> str:
    spread = "" if metric.stddev is None else f" ± {significant(metric.stddev)}"
    return clip(f"{significant(metric.value, 4)}{spread} {metric.unit}", _WIDTH)

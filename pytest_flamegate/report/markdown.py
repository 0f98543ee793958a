"""Reports as Markdown: pieces that keep foreign text text, sections, and whole pages."""

import re
from collections.abc import Collection, Sequence
from urllib.parse import quote

from pytest_flamegate.report import sections
from pytest_flamegate.report.bricks import brick_summary_section
from pytest_flamegate.report.evidence import machine_note, workload_notes
from pytest_flamegate.report.flame import PALETTE
from pytest_flamegate.report.run_report import (
    RunReport,
    next_section,
    run_sections,
    summary_section,
    variant_sections,
)
from pytest_flamegate.report.text import read_asset, visible
from pytest_flamegate.report.verdict import call_section, cost_section, line_section

# Anywhere in a line; at its start; and the parts that hosts turn into links by themselves.
_INLINE = re.compile(r"[\\`*_{}\[\]<>|~$&!]")
_START = re.compile(r"^([#+=-](?![\w.])|\d+(?=[.)](?:\s|$)))")
_LINK = re.compile(r"(?<=www)\.|:(?=//)")
_REFERENCE = re.compile(r"(?<=[@#!])(?=\w)|(?<=&amp;)(?=\w)|(?<=\bGH-)(?=\d)", re.IGNORECASE)
_BREAK = "&#8203;"
"""A space without width: hosts look for mentions and references in the rendered text."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LONG = 2000


def escape(text: str, limit: int = 300) -> str:
    """Return ``text`` as prose on one line: nothing in it is read as markup or HTML.

    Hosts find no mention (``@org``) and no reference (``#12``, ``!12``, ``&12``, ``GH-12``) in it.
    """
    shown = visible(text, limit).strip()
    shown = _INLINE.sub(lambda found: _ENTITIES.get(found[0], "\\" + found[0]), shown)
    shown = _LINK.sub(lambda found: "\\" + found[0], shown)
    # "1." would open a list; its full stop is what can be escaped, not the digit.
    shown = _START.sub(lambda at: at[0] + "\\" if at[0].isdigit() else "\\" + at[0], shown)
    return _REFERENCE.sub(_BREAK, shown)


def code(text: str) -> str:
    """Return ``text`` as a code span, whatever backticks it holds; not for a table."""
    shown = visible(text)
    if not shown.strip():
        return "(empty)"
    fence = "`" * (_longest_fence(shown) + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{room}{shown}{room}{fence}"


def code_cell(text: str) -> str:
    """Return ``text`` as a code span in a table, whose cells a bar splits even inside code."""
    return code(text).replace("|", r"\|")


def _longest_fence(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)


def block(text: str, language: str = "") -> str:
    """Return the lines of ``text`` as a fenced block that they cannot close."""
    lines = [visible(line, _LONG) for line in text.split("\n")]
    fence = "`" * max(3, _longest_fence(text) + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return a table; the columns numbered in ``right`` hold figures and are right-aligned.

    Cells are markup already: pass them through ``escape`` or ``code_cell``.
    """
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    # A figure and its unit stay on one line.
    joined = [
        [cell.replace(" ", "\u00a0") if i in right else cell for i, cell in enumerate(row)]
        for row in rows
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *joined))


def link(text: str, path: str) -> str:
    """Return a link to a relative ``path``, which cannot end the link early."""
    return f"[{escape(text)}]({quote(path, safe='/', errors='replace')})"


# Sections


def render_section(section: sections.Section, level: int = 2) -> str:
    """Return a section; a folded one in an element that opens with a click."""
    blocks = [part for part in map(_render_block, section.blocks) if part]
    if section.folded:
        # Hosts need the empty lines to read the content as Markdown.
        summary = f"<summary>{escape(section.title)}</summary>"
        return "\n\n".join([f"<details>{summary}", *blocks, "</details>"])
    return "\n\n".join([f"{'#' * level} {escape(section.title)}", *blocks])


def _render_block(content: sections.Block) -> str:
    match content:
        case sections.Paragraph(line=line):
            return sections.join_line(line, _escape_part, code)
        case sections.Items(lines=lines):
            return "\n".join(f"- {sections.join_line(line, _escape_part, code)}" for line in lines)
        case sections.Table(head=head, rows=rows, right=right):
            return table(list(map(escape, head)), [list(map(_cell, row)) for row in rows],
                         right=right)  # fmt: skip
        case sections.Listing(text=lines, language=language, summary=summary):
            listing = block(lines, language)
            return f"{escape(summary)}:\n\n{listing}" if summary else listing
        case sections.Picture(title=title, path=path):
            return f"!{link(title, path)}" if path else ""


def _escape_part(part: str) -> str:
    """Return a part of a line; the spaces at its ends separate it from the next one."""
    start, end = " " * part.startswith(" "), " " * (part.endswith(" ") and len(part) > 1)
    return f"{start}{escape(part, _LONG)}{end}"


def _cell(cell: sections.Cell) -> str:
    if isinstance(cell, sections.Code):
        return code_cell(cell.text)
    shown = escape(sections.cell_text(cell), _LONG)
    is_marked = isinstance(cell, sections.Badge) and cell.tone != "good"
    return f"**{shown}**" if is_marked else shown


# Pages


def run_markdown(run: RunReport) -> str:
    """Return the page of a run, ending in a line break: the same bytes each time."""
    parts = [f"# Flame graph: {escape(run.name)}"]
    if run.headline:
        parts.append(f"**{escape(run.headline, _LONG)}**")
    parts += map(render_section, run_sections(run))
    parts += ["## How to view and read it", read_asset("reading.md").rstrip()]
    return "\n\n".join(parts) + "\n"


def step_summary(rows: Sequence[RunReport], accepted: Collection[str] = ()) -> str:
    """Return the summary page of a CI job, ending in a line break.

    It holds a row for each workload, the headline of each verdict, its warnings, the variants of
    each family and the costliest bricks. The table says of which names the verdict is ``accepted``
    as it is. The caller appends the page to the file ``GITHUB_STEP_SUMMARY``.
    """
    parts = ["## flamegate", *map(_render_block, summary_section(rows, accepted).blocks)]
    warnings = [(sections.Code(row.name), f" {each}") for row in rows for each in row.warnings]
    if warnings:
        parts += ["Warnings:", _render_block(sections.Items(tuple(warnings)))]
    families = variant_sections(rows)
    families += [brick_summary_section(row.name, row.bricks) for row in rows if row.bricks]
    return "\n\n".join([*parts, *(render_section(section, 3) for section in families)]) + "\n"


def check_markdown(
    sentence: str,
    rows: Sequence[RunReport],
    changes: Sequence[str],
    debt: Sequence[str],
    failed: Collection[str],
    accepted: Collection[str] = (),
) -> str:
    """Return the page of a required check, for a comment or a job's summary.

    It holds the answer, the table, where the time went in each workload that is not fine, how to
    measure it again and to accept it if it is one of the ``failed``, the ``changes`` of the policy
    and the ``debt``, one sentence each. A waiver accepts the verdicts on the ``accepted``.
    """
    parts = [f"**{escape(sentence, _LONG)}**", step_summary(rows, accepted).strip()]
    for row in rows:
        if row.verdict is not None and row.tone != "good" and not row.lacks_baseline:
            accept = row.accept if row.name in failed else None
            accepts = "If it is meant, accept it in this change, and commit the file"
            found = [
                cost_section(row.verdict),
                line_section(row.verdict),
                call_section(row.verdict),
                next_section(row.again, accept, accepts),
            ]
            parts.append(f"### {escape(row.name)}")
            parts += [render_section(each, 4) for each in found if each.blocks]
    about = sections.Paragraph("This change counts once it is merged:") if changes else None
    policy = sections.make_section("Changed policy", [about, sections.Items(tuple(changes))])
    waived = sections.make_section("Accepted", [sections.Items(tuple(debt))])
    parts += [render_section(each, 3) for each in (policy, waived) if each.blocks]
    return "\n\n".join(parts) + "\n"


# The guide of a folder


GUIDE_TITLE = "# Flame graphs"
"""The first line of every guide; another README is not overwritten."""


def guide_readme(runs: Sequence[RunReport], *, regenerate: str = "flamegate flamegraph") -> str:
    """Return the README of a folder of flame graphs, ending in a line break.

    Each run has its ``picture`` there, and a page ``NAME.md``; ``regenerate`` is the command that
    makes them again. Equal arguments give equal bytes.
    """
    rows = []
    for run in sorted(runs, key=lambda run: run.name):
        if run.evidence is None:
            continue
        about = ", ".join(workload_notes(run.evidence))
        page = link("page", f"{run.name}.md")
        about, hardware = escape(about), escape(machine_note(run.evidence))
        created = code_cell(run.evidence.created)
        cells = (link(run.name, run.picture), page, about, created, hardware)
        rows.append([cell or sections.NONE for cell in cells])
    head = ["flame graph", "details", "workload", "generated", "hardware"]
    tones = [[code(name), code(tone.light), escape(tone.meaning)] for name, tone in PALETTE.items()]
    values = {
        "baselines": table(head, rows) if rows else "None yet.",
        "regenerate": visible(regenerate, _LONG),
        "reading": read_asset("reading.md").rstrip(),
        "colours": table(["category", "colour", "meaning"], tones),
    }
    # One pass, so that a name in braces is not replaced too.
    pattern = re.compile("|".join(f"{{{name}}}" for name in values))
    return pattern.sub(lambda found: values[found[0][1:-1]], read_asset("guide.md"))

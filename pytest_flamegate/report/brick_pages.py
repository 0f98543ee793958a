"""The bricks of one workload as a section of a page: HTML, Markdown, and a job's summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import bricks, figures, page
from pytest_flamegate.report.flame_tables import named
from pytest_flamegate.report.markup import block, code, escape, table
from pytest_flamegate.report.svg import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.names import Category
    from pytest_flamegate.bricks.table import Row
    from pytest_flamegate.report.bricks import BricksShown

TITLE = "Bricks"
TREE_LINES, TREE_LINES_MARKDOWN = 400, 60
"""Lines of the tree on a page, where it is folded, and in Markdown, where it is not."""
SHORT = 5
"""Rows in a job's summary."""
_BRIEF = ("calls", "avg", "token")
_TONES: Mapping[Category, str] = {
    "Norm": "norm",
    "Attention": "attention",
    "FFN": "matmul",
    "Other": "native",
}
"""The colour of each category, from the palette of flame graphs."""


def bricks_section(shown: BricksShown) -> str:
    """Return the section's content as HTML, without its title."""
    found = shown.table
    rows = [_row(row) for row in found.rows]
    for name, *cells, share in map(_texts, _others(shown)):
        rows.append([name, share, "", "", *cells])
    first, *more, last = bricks.head(found)
    heads = [first, last, "", "kind", *more]
    right = (1, *range(4, len(heads)))
    parts = [
        page.table(heads, rows, right=right, class_="bricks"),
        page.lines("p", [" · ".join(bricks.by_kind(found))]),
        page.lines("p", [" · ".join(bricks.provenance(found))], class_="muted"),
        page.lines("p", [*bricks.latencies(found), shown.critical_path, shown.roofline]),
        page.lines("p", shown.notes, class_="muted"),
    ]
    if shown.tree:
        told = "\n".join(page.text(line) for line in _tree(shown, TREE_LINES))
        summary = page.lines("summary", ["The execution tree of one token"])
        parts.append(page.element("details", summary, page.element("pre", told)))
    return "".join(parts)


def bricks_markdown(shown: BricksShown) -> str:
    """Return the section's content as Markdown, without its title."""
    found = shown.table
    first, *more = bricks.head(found)
    rows = [
        [code(row.name), escape(row.category), *map(escape, bricks.cells_of(row)[1:])]
        for row in found.rows
    ]
    rows += [[escape(name), "", *map(escape, cells)] for name, *cells in _others(shown)]
    told = [
        " · ".join(map(escape, bricks.by_kind(found))),
        " · ".join(map(escape, bricks.provenance(found))),
        *map(escape, bricks.latencies(found)),
        *map(escape, (shown.critical_path, shown.roofline, *shown.notes)),
    ]
    parts = [
        table([first, "kind", *more], rows, right=range(2, len(more) + 2)),
        "\n".join(f"- {each}" for each in told if each),
    ]
    if shown.tree:
        parts += [
            "The execution tree of one token:",
            block("\n".join(_tree(shown, TREE_LINES_MARKDOWN)), "text"),
        ]
    return "\n\n".join(parts)


def bricks_summary(name: str, shown: BricksShown) -> str:
    """Return a short table of the workload ``name`` as Markdown, for a job's summary page."""
    found = shown.table
    first, *more = bricks.head(found, _BRIEF)
    rows = [
        [code(row.name), *map(escape, bricks.cells_of(row, _BRIEF)[1:])]
        for row in found.rows[:SHORT]
    ]
    told = [" · ".join(map(escape, bricks.provenance(found))), escape(shown.roofline)]
    return "\n\n".join(
        [
            f"### Bricks of {code(name)}",
            table([first, *more], rows, right=range(1, len(more) + 1)),
            *(each for each in told if each),
        ]
    )


def _row(row: Row) -> list[str]:
    # The share stands first, where a narrow page shows it without being scrolled.
    tone = f"tone-{_TONES[row.category]}"
    _, *cells, share = _texts(bricks.cells_of(row))
    return [named(row.name, tone), share, _bar(row.share, tone), page.text(row.category), *cells]


def _texts(cells: Sequence[str]) -> list[str]:
    return [page.text(cell) for cell in cells]


def _bar(share: float, tone: str) -> str:
    """Return a bar as long as a share; the figure stands beside it, so it is not read aloud."""
    drawn = page.element(
        "rect", width=number(100 * min(max(share, 0.0), 1.0)), height="10", class_=tone
    )
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{drawn}</svg>"
    )


def _others(shown: BricksShown) -> list[list[str]]:
    return bricks.other_cells(shown.table)


def _tree(shown: BricksShown, lines: int) -> list[str]:
    return [*shown.tree[:lines], *bricks.left_out(shown, lines)]

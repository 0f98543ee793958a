"""The bricks of one workload as lines of a terminal: table, tree of one token, roofline."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import text
from pytest_flamegate.graph.critical_path import sum_path_by_name
from pytest_flamegate.graph.table import BrickTable
from pytest_flamegate.graph.text import draw_tree, escape_label, format_microseconds
from pytest_flamegate.report import html
from pytest_flamegate.report import text as report_text
from pytest_flamegate.report.flame_html import named
from pytest_flamegate.report.markup import block, code, escape, table
from pytest_flamegate.report.svg import number
from pytest_flamegate.report.text import cells, clip, columns, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_flamegate.bricks.record import Category, Provenance
    from pytest_flamegate.graph.critical_path import CriticalPath
    from pytest_flamegate.graph.graph import ExecutionGraph
    from pytest_flamegate.graph.table import BrickRow


NONE = "–"
TREE_LINES = 25
"""Lines of the tree that are shown in a terminal."""
OUTSIDE = "outside any brick"
_LEAST_NAME, _WIDEST_NAME = 12, 40
_HOT = 0.2
_SAID: Mapping[Provenance, str] = {
    "measured_wall": "clocked by the engine's own marks",
    "measured_cpu": "CPU time by the engine's own marks",
    "measured_device_event": "clocked by the device's own events",
    "counted": "counted",
    "sampled": "sampled",
    "ingested": "the engine's own word, ingested and never gated",
    "derived": "derived and never gated",
}
_WAITED = {
    "immediate": "each brick waits for the device, which slows the whole",
    "per_layer": "each layer waits for the device",
    "deferred": "the device is waited for once, at the end",
}


@dataclass(frozen=True, slots=True)
class BricksShown:
    """What is shown of one workload's bricks.

    ``tree`` is the execution tree of one decode token, the line of ``critical_path`` is of the
    same token; ``roofline`` says how near to the bandwidth's ceiling decode came, ``notes`` what
    is missing and why. Each is empty where it is not known. ``all_of_it`` is the command that
    shows everything.
    """

    table: BrickTable
    tree: tuple[str, ...] = ()
    critical_path: str = ""
    roofline: str = ""
    notes: tuple[str, ...] = ()
    all_of_it: str = ""


def _ms(value_ns: float) -> str:
    return text.significant(value_ns / 1e6)


def _us(value_ns: float | None) -> str:
    return NONE if value_ns is None else text.significant(value_ns / 1e3)


_COLUMNS: Mapping[str, tuple[str, Callable[[BrickRow], str]]] = {
    "calls": ("Calls", lambda row: report_text.count(row.calls)),
    "total": ("Total ms", lambda row: _ms(row.total_ns)),
    "self": ("Self ms", lambda row: _ms(row.self_ns)),
    "avg": ("Avg µs", lambda row: _us(row.avg_ns)),
    "min": ("Min µs", lambda row: _us(row.min_ns)),
    "median": ("Median µs", lambda row: _us(row.median_ns)),
    "p95": ("p95 µs", lambda row: _us(row.p95_ns)),
    "max": ("Max µs", lambda row: _us(row.max_ns)),
    "token": ("Self µs/token", lambda row: _us(row.per_token_ns)),
}
WIDE = ("calls", "total", "self", "avg", "min", "median", "p95", "max", "token")
_LAYOUTS = (
    WIDE,
    ("calls", "total", "self", "avg", "min", "median", "p95", "max"),
    ("calls", "total", "avg", "min", "max"),
    ("calls", "total", "avg"),
    ("avg",),
    (),
)
"""From the widest on: the first that fits is shown. A share always stands last."""


def head(table: BrickTable, names: Sequence[str] = WIDE) -> list[str]:
    """Return the heads of the columns ``names``, with the function's before and its share's."""
    share = "% of wall" if table.whole == "wall" else "% of bricks"
    return ["Function", *(_COLUMNS[name][0] for name in names), share]


def cells_of(row: BrickRow, names: Sequence[str] = WIDE) -> list[str]:
    """Return one brick's cells under ``head``."""
    return [
        visible(row.name),
        *(_COLUMNS[name][1](row) for name in names),
        report_text.share(row.share),
    ]


def other_cells(table: BrickTable, names: Sequence[str] = WIDE) -> list[list[str]]:
    """Return the cells of the bricks that have no row of their own, and of what is in none."""
    rows = []
    if (rest := table.rest) is not None:
        told = {"calls": report_text.count(rest.calls), "self": _ms(rest.self_ns)}
        label = f"{report_text.plural(rest.bricks, 'other brick')}"
        rows.append([label, *(told.get(name, "") for name in names), report_text.share(rest.share)])
    if table.whole == "wall":
        outside_ns = table.wall_ns - table.self_ns
        told = {"self": _ms(outside_ns)}
        share = report_text.share(outside_ns / max(table.wall_ns, 1))
        rows.append([OUTSIDE, *(told.get(name, "") for name in names), share])
    return rows


def by_kind(table: BrickTable) -> list[str]:
    """Return the share of each category of bricks, the largest first."""
    return [f"{group.name} {report_text.share(group.share)}" for group in table.categories]


def provenance(table: BrickTable) -> list[str]:
    """Return how the figures came about and what they cover, in short parts."""
    said = _SAID[table.provenance]
    if table.processes:
        of_its_own = "of its own" if table.processes == 1 else "of their own"
        processes = report_text.plural(table.processes, "process", "processes")
        said += f" in {processes} {of_its_own}, never in timed ones"
    told = [said]
    if table.coverage is not None:
        told.append(f"covers {report_text.share(table.coverage)} of wall")
    if table.tokens:
        told.append(report_text.plural(table.tokens, "token"))
    if any(row.self_ns < row.total_ns for row in table.rows):
        told.append("shares are of own time, without the bricks within")
    if table.whole == "self" and table.lanes > 1:
        lanes = report_text.plural(table.lanes, "thread or task", "threads or tasks")
        told.append(f"{lanes} side by side, so shares are of all bricks' own time")
    told += [_WAITED[sync] for sync in table.syncs if sync in _WAITED]
    if table.unended:
        told.append(
            f"{report_text.plural(table.unended, 'call')} did not end and stand in no figure"
        )
    return told


def latencies(table: BrickTable) -> list[str]:
    """Return a sentence on each brick of which only the latency is known."""
    return [
        f"{visible(row.name)}: {report_text.seconds(row.latency_ns / 1e9)} from enqueue to sync, "
        "of work that overlapped: no time spent"
        for row in table.rows
        if row.latency_ns
    ]


def left_out(shown: BricksShown, shown_lines: int) -> list[str]:
    """Return how many lines of the tree are not shown, and how to see them; [] where all are."""
    left = len(shown.tree) - shown_lines
    if left <= 0:
        return []
    how = f": {shown.all_of_it}" if shown.all_of_it else ""
    return [f"… {report_text.plural(left, 'more line')}{how}"]


def bricks_lines(
    name: str, shown: BricksShown, *, width: int = 100, colour: bool = False
) -> list[str]:
    """Return what is shown of the workload ``name`` in at most ``width`` columns."""
    table = shown.table
    lines = ["", clip(f"bricks of {visible(name)}", width), *_table(table, width, colour)]
    lines += wrap(by_kind(table), width)
    lines += _wrapped([" · ".join(provenance(table)), *latencies(table), *shown.notes], width)
    if shown.tree:
        lines += ["", clip(f"one token of {visible(name)}", width)]
        lines += [clip(visible(line), width) for line in shown.tree[:TREE_LINES]]
        lines += _wrapped(left_out(shown, TREE_LINES), width)
    lines += _wrapped([shown.critical_path, shown.roofline], width)
    return [line.rstrip() for line in lines]


def _wrapped(sentences: Sequence[str], width: int) -> list[str]:
    """Return sentences in lines of at most ``width`` columns, broken between words."""
    # A figure and its sign stay on one line.
    kept = [visible(sentence, 1000).replace(" %", "\u00a0%") for sentence in sentences]
    return [
        clip(line.replace("\u00a0%", " %"), width)
        for sentence in kept
        for line in textwrap.wrap(sentence, width, break_on_hyphens=False)
    ]


def _table(table: BrickTable, width: int, colour: bool) -> list[str]:
    for names in _LAYOUTS:
        rows = [head(table, names)]
        rows += [cells_of(row, names) for row in table.rows]
        rows += other_cells(table, names)
        figures_alone = columns([row[1:] for row in rows], gap=2)
        room = width - 2 - max(map(cells, figures_alone))
        if room >= min(_WIDEST_NAME, max(cells(row[0]) for row in rows)):
            break
    room = max(room, _LEAST_NAME)
    shown: list[list[str | Text]] = [
        [clip(row[0], min(room, _WIDEST_NAME)), *row[1:]] for row in rows
    ]
    if colour:
        from rich.text import Text

        shown[0] = [Text(str(cell), "bold") for cell in shown[0]]
        for cell, row in zip(shown[1:], table.rows, strict=False):
            if row.share >= _HOT:
                cell[-1] = Text(str(cell[-1]), "bold yellow")
    return columns(shown, right=range(1, len(shown[0])), gap=2, colour=colour)


TITLE = "Bricks"
BRICK_PAGES_TREE_LINES, TREE_LINES_MARKDOWN = 400, 60
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
    for name, *columns_between, share in map(_texts, _others(shown)):
        rows.append([name, share, "", "", *columns_between])
    first, *more, last = head(found)
    heads = [first, last, "", "kind", *more]
    right = (1, *range(4, len(heads)))
    parts = [
        html.table(heads, rows, right=right, class_="bricks"),
        html.lines("p", [" · ".join(by_kind(found))]),
        html.lines("p", [" · ".join(provenance(found))], class_="muted"),
        html.lines("p", [*latencies(found), shown.critical_path, shown.roofline]),
        html.lines("p", shown.notes, class_="muted"),
    ]
    if shown.tree:
        told = "\n".join(html.text(line) for line in _tree(shown, BRICK_PAGES_TREE_LINES))
        summary = html.lines("summary", ["The execution tree of one token"])
        parts.append(html.element("details", summary, html.element("pre", told)))
    return "".join(parts)


def bricks_markdown(shown: BricksShown) -> str:
    """Return the section's content as Markdown, without its title."""
    found = shown.table
    first, *more = head(found)
    rows = [
        [code(row.name), escape(row.category), *map(escape, cells_of(row)[1:])]
        for row in found.rows
    ]
    rows += [[escape(name), "", *map(escape, cells)] for name, *cells in _others(shown)]
    told = [
        " · ".join(map(escape, by_kind(found))),
        " · ".join(map(escape, provenance(found))),
        *map(escape, latencies(found)),
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
    first, *more = head(found, _BRIEF)
    rows = [[code(row.name), *map(escape, cells_of(row, _BRIEF)[1:])] for row in found.rows[:SHORT]]
    told = [" · ".join(map(escape, provenance(found))), escape(shown.roofline)]
    return "\n\n".join(
        [
            f"### Bricks of {code(name)}",
            table([first, *more], rows, right=range(1, len(more) + 1)),
            *(each for each in told if each),
        ]
    )


def _row(row: BrickRow) -> list[str]:
    # The share stands first, where a narrow page shows it without being scrolled.
    tone = f"tone-{_TONES[row.category]}"
    _, *cells, share = _texts(cells_of(row))
    return [named(row.name, tone), share, _bar(row.share, tone), html.text(row.category), *cells]


def _texts(cells: Sequence[str]) -> list[str]:
    return [html.text(cell) for cell in cells]


def _bar(share: float, tone: str) -> str:
    """Return a bar as long as a share; the figure stands beside it, so it is not read aloud."""
    drawn = html.element(
        "rect", width=number(100 * min(max(share, 0.0), 1.0)), height="10", class_=tone
    )
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{drawn}</svg>"
    )


def _others(shown: BricksShown) -> list[list[str]]:
    return other_cells(shown.table)


def _tree(shown: BricksShown, lines: int) -> list[str]:
    return [*shown.tree[:lines], *left_out(shown, lines)]


def sums_text(
    name: str,
    table: BrickTable | None,
    *,
    notes: tuple[str, ...] = (),
    kernels: Mapping[str, int],
    medians_us: Mapping[str, float],
    width: int = 100,
) -> str:
    """Return the ``table`` of what is called ``name``, and below it what else was told.

    ``kernels`` is how often each was dispatched, ``medians_us`` the middle of each phase.
    """
    lines: list[str] = []
    if table is not None:
        lines += bricks_lines(name, BricksShown(table, notes=notes), width=width)[1:]
    if medians_us:
        middles = [
            f"{visible(phase.removesuffix('_us'))} {text.significant(value)} µs"
            for phase, value in medians_us.items()
        ]
        lines += wrap(["in the median of all lines", *middles], width)
    if kernels:
        most_first = sorted(kernels.items(), key=lambda each: (-each[1], each[0]))
        rows = [
            ("Kernel", "Dispatched"),
            *((visible(kernel), report_text.count(count)) for kernel, count in most_first),
        ]
        lines += [*([""] if lines else []), *columns(rows, right=(1,), gap=2)]
        lines.append("dispatches as the engine told them, ingested and never gated")
    return "\n".join(clip(line, width) for line in lines)


_LONGEST = 10


def graph_text(graph: ExecutionGraph, path: CriticalPath) -> str:
    """Return the tree and, below it, the critical path with its share and its costliest bricks."""
    return "\n".join([draw_tree(graph), "", *path_lines(graph, path)])


def path_lines(graph: ExecutionGraph, path: CriticalPath) -> list[str]:
    """Return the critical path's length and share, and the names that it spends most in."""
    spent = sum_path_by_name(graph, path)
    head = (
        f"critical path {format_microseconds(path.length_ns)}, {report_text.share(path.share)} of "
        f"the wall time of {format_microseconds(path.wall_ns)}"
    )
    if not spent:
        return [head]
    rows = [
        (format_microseconds(self_ns), report_text.share(share), escape_label(name))
        for name, self_ns, share in spent[:_LONGEST]
    ]
    left = len(spent) - len(rows)
    more = [f"  and {report_text.plural(left, 'other name')}"] if left else []
    return [f"{head}; most of it in:", *columns(rows, right=(0, 1), indent=2), *more]

"""The bricks of one workload as lines of a terminal: table, tree of one token, roofline."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.text import cells, clip, columns, visible, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.text import Text

    from pytest_flamegate.bricks.record import Provenance
    from pytest_flamegate.bricks.table import Row, Table

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

    table: Table
    tree: tuple[str, ...] = ()
    critical_path: str = ""
    roofline: str = ""
    notes: tuple[str, ...] = ()
    all_of_it: str = ""


def _ms(value_ns: float) -> str:
    return figures.significant(value_ns / 1e6)


def _us(value_ns: float | None) -> str:
    return NONE if value_ns is None else figures.significant(value_ns / 1e3)


_COLUMNS: Mapping[str, tuple[str, Callable[[Row], str]]] = {
    "calls": ("Calls", lambda row: figures.count(row.calls)),
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


def head(table: Table, names: Sequence[str] = WIDE) -> list[str]:
    """Return the heads of the columns ``names``, with the function's before and its share's."""
    share = "% of wall" if table.whole == "wall" else "% of bricks"
    return ["Function", *(_COLUMNS[name][0] for name in names), share]


def cells_of(row: Row, names: Sequence[str] = WIDE) -> list[str]:
    """Return one brick's cells under ``head``."""
    return [
        visible(row.name),
        *(_COLUMNS[name][1](row) for name in names),
        figures.share(row.share),
    ]


def other_cells(table: Table, names: Sequence[str] = WIDE) -> list[list[str]]:
    """Return the cells of the bricks that have no row of their own, and of what is in none."""
    rows = []
    if (rest := table.rest) is not None:
        told = {"calls": figures.count(rest.calls), "self": _ms(rest.self_ns)}
        label = f"{figures.plural(rest.bricks, 'other brick')}"
        rows.append([label, *(told.get(name, "") for name in names), figures.share(rest.share)])
    if table.whole == "wall":
        outside_ns = table.wall_ns - table.self_ns
        told = {"self": _ms(outside_ns)}
        share = figures.share(outside_ns / max(table.wall_ns, 1))
        rows.append([OUTSIDE, *(told.get(name, "") for name in names), share])
    return rows


def by_kind(table: Table) -> list[str]:
    """Return the share of each category of bricks, the largest first."""
    return [f"{group.name} {figures.share(group.share)}" for group in table.categories]


def provenance(table: Table) -> list[str]:
    """Return how the figures came about and what they cover, in short parts."""
    said = _SAID[table.provenance]
    if table.processes:
        of_its_own = "of its own" if table.processes == 1 else "of their own"
        processes = figures.plural(table.processes, "process", "processes")
        said += f" in {processes} {of_its_own}, never in timed ones"
    told = [said]
    if table.coverage is not None:
        told.append(f"covers {figures.share(table.coverage)} of wall")
    if table.tokens:
        told.append(figures.plural(table.tokens, "token"))
    if any(row.self_ns < row.total_ns for row in table.rows):
        told.append("shares are of own time, without the bricks within")
    if table.whole == "self" and table.lanes > 1:
        lanes = figures.plural(table.lanes, "thread or task", "threads or tasks")
        told.append(f"{lanes} side by side, so shares are of all bricks' own time")
    told += [_WAITED[sync] for sync in table.syncs if sync in _WAITED]
    if table.unended:
        told.append(f"{figures.plural(table.unended, 'call')} did not end and stand in no figure")
    return told


def latencies(table: Table) -> list[str]:
    """Return a sentence on each brick of which only the latency is known."""
    return [
        f"{visible(row.name)}: {figures.seconds(row.latency_ns / 1e9)} from enqueue to sync, "
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
    return [f"… {figures.plural(left, 'more line')}{how}"]


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
    return [
        clip(line, width)
        for sentence in sentences
        for line in textwrap.wrap(visible(sentence, 1000), width, break_on_hyphens=False)
    ]


def _table(table: Table, width: int, colour: bool) -> list[str]:
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

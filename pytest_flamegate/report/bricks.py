"""The bricks of one workload: their table, the tree of one token, the roofline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_flamegate.bricks.record import Category, Provenance
from pytest_flamegate.core.text import escape_name, significant
from pytest_flamegate.graph.critical_path import CriticalPath, sum_path_by_name
from pytest_flamegate.graph.graph import ExecutionGraph
from pytest_flamegate.graph.table import BrickRow, BrickTable
from pytest_flamegate.graph.text import MAX_BYTES, draw_tree, format_microseconds
from pytest_flamegate.report import sections, text
from pytest_flamegate.report.text import columns, visible

TREE_LINES, _PAGE_TREE_LINES = 25, 400
"""Lines of the tree in a terminal, and on a page, which folds it."""
OUTSIDE = "outside any brick"
_SUMMARY_ROWS = 5
_PROVENANCES: Mapping[Provenance, str] = {
    "measured_wall": "clocked by the engine's own marks",
    "measured_device_event": "clocked by the device's own events",
    "ingested": "reported by the engine, ingested and never gated",
    "derived": "derived and never gated",
}
_SYNCS = {
    "immediate": "each brick waits for the device, which slows the whole",
    "per_layer": "each layer waits for the device",
    "deferred": "the device is waited for once, at the end",
}
_TONES: Mapping[Category, str] = {
    "Norm": "tone-norm",
    "Attention": "tone-attention",
    "FFN": "tone-matmul",
    "Other": "tone-native",
}
"""The colour of each category, from the palette of flame graphs."""


@dataclass(frozen=True, slots=True)
class BrickView:
    """The bricks of one workload as reports show them; a part that is not known is empty.

    ``tree`` and ``critical_path`` describe the same decode token; ``roofline`` states how near
    decode came to the memory bandwidth; ``notes`` name missing parts and the reason. The command
    ``full_command`` prints everything.
    """

    table: BrickTable
    tree: tuple[str, ...] = ()
    critical_path: str = ""
    roofline: str = ""
    notes: tuple[str, ...] = ()
    full_command: str = ""


def _ms(value_ns: float) -> str:
    return significant(value_ns / 1e6)


def _us(value_ns: float | None) -> str:
    return sections.NONE if value_ns is None else significant(value_ns / 1e3)


_COLUMNS: Mapping[str, tuple[str, Callable[[BrickRow], str]]] = {
    "calls": ("Calls", lambda row: text.count(row.calls)),
    "total": ("Total ms", lambda row: _ms(row.total_ns)),
    "self": ("Self ms", lambda row: _ms(row.self_ns)),
    "avg": ("Avg µs", lambda row: _us(row.avg_ns)),
    "min": ("Min µs", lambda row: _us(row.min_ns)),
    "median": ("Median µs", lambda row: _us(row.median_ns)),
    "p95": ("p95 µs", lambda row: _us(row.p95_ns)),
    "max": ("Max µs", lambda row: _us(row.max_ns)),
    "token": ("Self µs/token", lambda row: _us(row.per_token_ns)),
}


def _other_rows(table: BrickTable) -> list[tuple[sections.Cell, ...]]:
    """Return the rows of the bricks without a row of their own, and of time outside any brick."""
    rows: list[tuple[sections.Cell, ...]] = []

    def add(label: str, share: float, **known: str) -> None:
        cells = (known.get(name, "") for name in _COLUMNS)
        rows.append((label, text.share(share), "", *cells))

    if (rest := table.rest) is not None:
        label = text.plural(rest.bricks, "other brick")
        add(label, rest.share, calls=text.count(rest.calls), self=_ms(rest.self_ns))
    if (outside_ns := table.outside_ns) is not None:
        add(OUTSIDE, outside_ns / max(table.wall_ns, 1), self=_ms(outside_ns))
    return rows


def provenance_notes(table: BrickTable) -> list[str]:
    """Return how the figures were taken and how much they cover, in short parts."""
    source = _PROVENANCES[table.provenance]
    if table.processes:
        own = "its own" if table.processes == 1 else "their own"
        processes = text.plural(table.processes, "process", "processes")
        source += f" in {processes} of {own}, never in timed ones"
    notes = [source]
    if table.coverage is not None:
        notes.append(f"covers {text.share(table.coverage)} of wall")
    if table.tokens:
        notes.append(text.plural(table.tokens, "token"))
    if any(row.self_ns < row.total_ns for row in table.rows):
        notes.append("shares are of own time, without the bricks within")
    if table.whole == "self" and table.lanes > 1:
        threads = text.plural(table.lanes, "thread or task", "threads or tasks")
        notes.append(f"{threads} at once, so shares are of all bricks' own time")
    notes += [_SYNCS[sync] for sync in table.syncs if sync in _SYNCS]
    if table.unended:
        notes.append(f"{text.plural(table.unended, 'call')} did not end and is in no figure")
    return notes


def brick_section(view: BrickView, most: int = _PAGE_TREE_LINES) -> sections.Section:
    """Return the table of bricks, how it was measured, and the tree of one token.

    Of the tree it has ``most`` lines, and a sentence on how to see the others.
    """
    table = view.table
    # The share comes first, so that a narrow page shows it without scrolling.
    share = "% of wall" if table.whole == "wall" else "% of bricks"
    head = ("Function", share, "kind", *(title for title, _ in _COLUMNS.values()))
    rows: list[tuple[sections.Cell, ...]] = [
        (
            sections.Code(row.name, _TONES[row.category]),
            sections.Share(row.share, _TONES[row.category]),
            row.category,
            *(figure(row) for _, figure in _COLUMNS.values()),
        )
        for row in table.rows
    ]
    shown = sections.Table(
        head, [*rows, *_other_rows(table)], right=(1, *range(3, len(head))), kind="bricks"
    )
    notes = [view.critical_path, view.roofline, *view.notes]
    categories = [f"{group.name} {text.share(group.share)}" for group in table.categories]
    left = len(view.tree) - most
    command = f": {view.full_command}" if view.full_command else ""
    more = f"… {text.plural(left, 'more line')}{command}" if left > 0 else ""
    tree = "\n".join(view.tree[:most])
    return sections.make_section(
        "Bricks",
        [
            shown,
            sections.Paragraph(" · ".join(categories)),
            sections.Items(tuple(filter(None, notes))),
            sections.Paragraph(" · ".join(provenance_notes(table)), muted=True),
            sections.Listing(tree, summary="The execution tree of one token"),
            sections.Paragraph(more, muted=True),
        ],
    )


def brick_summary_section(name: str, view: BrickView) -> sections.Section:
    """Return the costliest bricks of the workload ``name``, for a job's summary page."""
    table, *others = brick_section(replace(view, tree=())).blocks
    assert isinstance(table, sections.Table)
    short = replace(table, rows=table.rows[:_SUMMARY_ROWS])
    notes = [block for block in others if isinstance(block, sections.Paragraph)]
    return sections.Section(f"Bricks of {visible(name, 80)}", (short, *notes))


_MOST_PATH_ROWS = 10


def graph_text(graph: ExecutionGraph, path: CriticalPath) -> str:
    """Return the tree and, below it, the critical path with its share and its costliest bricks."""
    head = (
        f"critical path {format_microseconds(path.length_ns)}, {text.share(path.share)} of "
        f"the wall time of {format_microseconds(path.wall_ns)}"
    )
    spent = sum_path_by_name(graph, path)
    rows = [
        (format_microseconds(self_ns), text.share(share), escape_name(name, MAX_BYTES))
        for name, self_ns, share in spent[:_MOST_PATH_ROWS]
    ]
    left = len(spent) - len(rows)
    more = [f"  and {text.plural(left, 'other name')}"] if left else []
    head += "; most of it in:" if rows else ""
    return "\n".join([draw_tree(graph), "", head, *columns(rows, right=(0, 1), indent=2), *more])

"""The table of bricks: all calls of a brick in one row, the one with the most self time first."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pytest_flamegate.bricks import record
from pytest_flamegate.core.errors import UndecidedError

DEFAULT_ROWS = 20
_BY_STRENGTH: tuple[record.Provenance, ...] = get_args(record.Provenance)
"""From measured to derived. A sum has the weakest provenance of its parts."""


@dataclass(frozen=True, slots=True)
class BrickRow:
    """All calls of one brick, in all layers.

    ``total_ns`` is inclusive and counts recursion once; ``self_ns`` leaves out the bricks within.
    ``avg_ns`` (``total_ns`` per call), minimum, maximum and quantiles are of single calls,
    inclusive; quantiles are None if only the sum of calls is known. ``share`` is the part of the
    self time in the whole of the table, 0 to 1. ``per_token_ns`` is self time per token,
    None if no token is known.
    """

    name: str
    category: record.Category
    calls: int
    total_ns: int
    self_ns: int
    avg_ns: float
    min_ns: int
    max_ns: int
    median_ns: int | None
    p95_ns: int | None
    share: float
    per_token_ns: float | None


@dataclass(frozen=True, slots=True)
class BrickGroup:
    """Several bricks together: their self time and its share, 0 to 1."""

    name: str
    bricks: int
    calls: int
    self_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class BrickTable:
    """The bricks with the most self time, the others as ``rest``, and all bricks by category.

    Rows and rest add up to ``self_ns``, and so do the categories. Shares are of ``wall_ns`` if
    ``whole`` is ``wall``, and of ``self_ns`` if the wall time is not known, or if threads side by
    side spent more than it. ``outside_ns`` is the wall time outside of bricks, None if it is not
    known: of several threads in one run the times in bricks may overlap.
    ``coverage`` is the part of the wall time that the busiest thread spent in bricks, None if
    threads are not known. ``lanes`` is the number of threads and tasks.
    """

    rows: tuple[BrickRow, ...]
    rest: BrickGroup | None
    categories: tuple[BrickGroup, ...]
    self_ns: int
    wall_ns: int
    whole: Literal["wall", "self"]
    outside_ns: int | None
    provenance: record.Provenance
    processes: int = 0
    tokens: int = 0
    coverage: float | None = None
    lanes: int = 0
    syncs: tuple[record.Sync, ...] = ()
    unended: int = 0


def tabulate_runs(runs: Sequence[record.BrickRun], *, top: int = DEFAULT_ROWS) -> BrickTable:
    """Return the table of all brick runs together. Raises as ``tabulate_totals`` does."""
    wall_ns = sum(run.wall_ns for run in runs)
    table = tabulate_totals(
        [each for run in runs for each in run.totals],
        wall_ns=wall_ns,
        top=top,
        tokens=sum(run.tokens for run in runs),
    )
    return replace(
        table,
        outside_ns=table.outside_ns if all(is_serial(run.lanes) for run in runs) else None,
        processes=len(runs),
        coverage=sum(run.coverage * run.wall_ns for run in runs) / wall_ns if wall_ns else None,
        lanes=max((len(run.lanes) for run in runs), default=0),
        syncs=tuple(sorted({run.sync for run in runs})),
        unended=sum(run.unended for run in runs),
    )


def is_serial(lanes: Sequence[record.ThreadTotals]) -> bool:
    """Whether at most one thread or task spent time in bricks, so that none overlap."""
    return sum(lane.self_ns > 0 for lane in lanes) <= 1


def tabulate_totals(
    totals: Iterable[record.BrickTotals], *, wall_ns: int, top: int = DEFAULT_ROWS, tokens: int = 0
) -> BrickTable:
    """Return the table of any ``totals``; pass 0 as ``wall_ns`` or ``tokens`` if not known.

    Raises ``UndecidedError`` ``E_NO_BRICKS`` if no brick was timed.
    """
    timed = [each for each in totals if each.calls > 0]
    found: dict[tuple[str, record.Category], list[record.BrickTotals]] = {}
    for each in timed:
        found.setdefault((each.name, each.category), []).append(each)
    self_ns = sum(each.self_ns for each in timed)
    if not self_ns:
        raise UndecidedError("E_NO_BRICKS", "No brick was timed.")
    whole: Literal["wall", "self"] = "wall" if wall_ns >= self_ns else "self"
    whole_ns = max(wall_ns, self_ns, 1)
    rows = [_row(group, whole_ns, tokens) for group in found.values()]
    rows.sort(key=lambda row: (-row.self_ns, -row.total_ns, row.name, row.category))
    by_category = [
        _group(name, [row for row in rows if row.category == name], whole_ns)
        for name in record.CATEGORIES
    ]
    return BrickTable(
        rows=tuple(rows[:top]),
        rest=_group("the others", rows[top:], whole_ns) if rows[top:] else None,
        categories=tuple(
            sorted((each for each in by_category if each.bricks), key=lambda each: -each.self_ns)
        ),
        self_ns=self_ns,
        wall_ns=wall_ns,
        whole=whole,
        outside_ns=wall_ns - self_ns if whole == "wall" else None,
        provenance=max((each.provenance for each in timed), key=_BY_STRENGTH.index),
        tokens=tokens,
    )


def _row(totals: Sequence[record.BrickTotals], whole_ns: int, tokens: int) -> BrickRow:
    calls = sum(each.calls for each in totals)
    total_ns = sum(each.total_ns for each in totals)
    self_ns = sum(each.self_ns for each in totals)
    durations: Counter[int] = Counter()
    for each in totals:
        durations.update(record.parse_durations(each.durations))
    single = sum(durations.values()) == calls
    least_ns, most_ns = min(each.min_ns for each in totals), max(each.max_ns for each in totals)

    def quantile(part: float) -> int | None:
        if not single:
            return None
        # The middle of a bucket may lie outside of the calls in it.
        return min(max(record.compute_quantile_ns(durations, part), least_ns), most_ns)

    return BrickRow(
        name=totals[0].name,
        category=totals[0].category,
        calls=calls,
        total_ns=total_ns,
        self_ns=self_ns,
        avg_ns=total_ns / calls,
        min_ns=least_ns,
        max_ns=most_ns,
        median_ns=quantile(0.5),
        p95_ns=quantile(0.95),
        share=self_ns / whole_ns,
        per_token_ns=self_ns / tokens if tokens else None,
    )


def _group(name: str, rows: Sequence[BrickRow], whole_ns: int) -> BrickGroup:
    self_ns = sum(row.self_ns for row in rows)
    calls = sum(row.calls for row in rows)
    return BrickGroup(name, len(rows), calls, self_ns, self_ns / whole_ns)

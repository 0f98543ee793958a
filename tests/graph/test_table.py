"""The table of bricks: its sums, shares and quantiles, and the error for an empty one."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks import record
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.graph.table import tabulate_runs, tabulate_totals
from tests.bricks.factory import make_run, make_totals


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


def test_layers_phases_and_processes_share_one_row() -> None:
    one = make_run(
        make_totals("RmsNorm", [100, 200], layer=0, phase="prefill"),
        make_totals("RmsNorm", [300], layer=1, phase="decode", elements=64, bytes=256),
        make_totals("LmHead", [1400]),
        tokens=4,
        wall_ns=2500,
    )
    table = tabulate_runs([one, one])
    head, norm = table.rows
    assert (head.name, head.calls, head.total_ns, head.self_ns) == ("LmHead", 2, 2800, 2800)
    assert (norm.calls, norm.total_ns, norm.min_ns, norm.max_ns) == (6, 1200, 100, 300)
    assert norm.avg_ns == 200.0
    assert (norm.median_ns, norm.p95_ns) == pytest.approx((200, 300), rel=0.008)
    assert (norm.share, norm.per_token_ns) == (near(1200 / 5000), near(150))
    assert (table.processes, table.tokens, table.wall_ns, table.whole) == (2, 8, 5000, "wall")
    assert table.coverage == near(4000 / 5000)


def test_nested_brick_is_not_counted_twice() -> None:
    """The total of the outer brick includes the inner one; shares are of self time."""
    outer = replace(make_totals("Layer", [1000]), self_ns=100)
    table = tabulate_runs([make_run(outer, make_totals("DownProjection", [900]), wall_ns=1000)])
    rows = [(row.name, row.total_ns, row.self_ns) for row in table.rows]
    assert rows == [("DownProjection", 900, 900), ("Layer", 1000, 100)]
    assert sum(row.share for row in table.rows) == near(1.0)


def test_rest_and_categories_add_up() -> None:
    names = ("RmsNorm", "Gate", "Up", "x")
    bricks = [make_totals(name, [10 * n]) for n, name in enumerate(names, 1)]
    table = tabulate_runs([make_run(*bricks, wall_ns=200)], top=1)
    assert [row.name for row in table.rows] == ["x"]
    assert table.rest is not None
    assert (table.rest.bricks, table.rest.calls, table.rest.self_ns) == (3, 3, 60)
    own = {each.name: each.self_ns for each in table.categories}
    assert own == {"FFN": 50, "Other": 40, "Norm": 10}
    assert tabulate_runs([make_run(*bricks, wall_ns=200)], top=4).rest is None


def test_quantiles_need_valid_buckets_and_lie_within_the_calls() -> None:
    totals = make_totals("LmHead", [1_000_000])
    (row,) = tabulate_totals([totals], wall_ns=10**7).rows
    assert row.min_ns == row.median_ns == row.p95_ns == row.max_ns == 1_000_000
    for durations in ({}, {"x": 1}):
        (row,) = tabulate_totals([replace(totals, durations=durations)], wall_ns=10**7).rows
        assert (row.avg_ns, row.median_ns, row.p95_ns) == (1_000_000, None, None)
        assert row.per_token_ns is None


def test_shares_of_threads_side_by_side_sum_to_one() -> None:
    threads = (record.ThreadTotals("a", 900, 1), record.ThreadTotals("b", 800, 1))
    both = replace(make_run(make_totals("RmsNorm", [900, 800]), wall_ns=1000), lanes=threads)
    table = tabulate_runs([both])
    assert (table.whole, table.lanes, table.coverage) == ("self", 2, near(0.9))
    assert sum(row.share for row in table.rows) == near(1.0)


def test_sum_has_the_weakest_provenance() -> None:
    measured = make_totals("RmsNorm", [5])
    for rows in ([measured], [measured, replace(measured, layer=1, provenance="ingested")]):
        assert tabulate_totals(rows, wall_ns=100).provenance == rows[-1].provenance


@pytest.mark.parametrize(
    "passes",
    [
        *([], [make_run()], [make_run(make_totals("RmsNorm", [0, 0]))]),
        [make_run(replace(make_totals("RmsNorm", [1]), calls=0))],
    ],
    ids=["no process", "no brick", "no time", "no call"],
)
def test_empty_table_raises(passes: list[record.BrickRun]) -> None:
    with pytest.raises(UndecidedError, match="E_NO_BRICKS"):
        tabulate_runs(passes)


NAMES = st.sampled_from(["RmsNorm", "Qkv", "Gate", "Head", "mine", "other"])
CALLS = st.lists(st.tuples(NAMES, st.integers(1, 10**7)), min_size=1, max_size=40)


@given(calls=CALLS, idle_ns=st.integers(0, 10**8), top=st.integers(1, 8))
def test_table_sums_to_the_whole(calls: list[tuple[str, int]], idle_ns: int, top: int) -> None:
    totals = [
        replace(make_totals(name, [spent]), layer=layer)
        for layer, (name, spent) in enumerate(calls)
    ]
    self_ns = sum(spent for _, spent in calls)
    table = tabulate_totals(totals, wall_ns=self_ns + idle_ns, top=top)
    own = [(row.self_ns, row.share) for row in table.rows]
    own += [(table.rest.self_ns, table.rest.share)] if table.rest is not None else []
    assert sum(spent for spent, _ in own) == self_ns == table.self_ns
    assert sum(each.self_ns for each in table.categories) == self_ns
    assert sum(each.calls for each in table.categories) == len(calls)
    share = math.fsum(part for _, part in own)
    assert share <= 1 + 1e-9
    assert share * (self_ns + idle_ns) == pytest.approx(self_ns)
    shown = [row.self_ns for row in table.rows]
    assert shown == sorted(shown, reverse=True)
    assert len(table.rows) == min(top, len(Counter(name for name, _ in calls)))

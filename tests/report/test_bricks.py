"""Bricks in a terminal and on pages: a table that adds up, a tree that is cut."""

import itertools
import re
from dataclasses import replace

import pytest

from pytest_flamegate.bricks.record import ThreadTotals
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import build_graph
from pytest_flamegate.graph.table import tabulate_runs, tabulate_totals
from pytest_flamegate.report import bricks, markdown, page, terminal
from pytest_flamegate.report.run_report import RunReport
from pytest_flamegate.report.sections import Table, cell_text
from pytest_flamegate.report.text import cells
from tests.bricks.factory import make_run, make_totals
from tests.graph.graphs import call
from tests.report.factory import TREE, shown_bricks


def test_a_terminal_shows_the_table_the_notes_and_the_tree() -> None:
    lines = terminal.brick_lines("decode", shown_bricks(), width=130)
    assert lines[:2] == ["", "bricks of decode"]
    rows = [re.split(r" {2,}", line) for line in lines[2:8]]
    assert rows[0] == [
        "Function", "% of wall", "kind", "Calls", "Total ms", "Self ms", "Avg µs", "Min µs",
        "Median µs", "p95 µs", "Max µs", "Self µs/token",
    ]  # fmt: skip
    assert rows[1] == [
        "QkvProjection", "40.0 %", "Attention", "6", "1.20", "1.20", "200", "190", "190", "210",
        "210", "200",
    ]  # fmt: skip
    assert [row[:2] for row in rows[2:5]] == [
        ["DownProjection", "24.0 %"], ["LmHead", "21.0 %"], ["RmsNorm", "9.0 %"],
    ]  # fmt: skip
    assert rows[5] == ["outside any brick", "6.0 %", "0.180"]
    assert lines[8:11] == [
        "Attention 40.0 % · FFN 24.0 % · Other 21.0 % · Norm 9.0 %",
        "critical path: QkvProjection → LmHead, 410 µs of 500 µs",
        "at 61 % of this machine's read bandwidth (19.5 of 32.0 GB/s, 1 thread)",
    ]
    assert lines[11].startswith("clocked by the engine's own marks in 3 processes of their own")
    assert lines[-len(TREE) - 2 :] == ["", "The execution tree of one token", *TREE]


def test_every_width_is_kept_to() -> None:
    views = (shown_bricks(), shown_bricks("行" * 90, top=2), shown_bricks(text="word " * 90))
    for view, width in itertools.product(views, (40, 80, 140)):
        lines = terminal.brick_lines("decode", view, width=width)
        assert max(map(cells, lines)) <= width
        # However narrow, the costliest brick stands there.
        assert re.search(r"^(QkvPro|行)", "\n".join(lines), re.MULTILINE)


@pytest.mark.parametrize(("own_ns", "is_shown"), [((800, 0), True), ((400, 400), False)])
def test_time_outside_is_unknown_if_threads_may_overlap(
    own_ns: tuple[int, int], is_shown: bool
) -> None:
    threads = tuple(ThreadTotals(name, ns, 1) for name, ns in zip("ab", own_ns, strict=True))
    run = replace(make_run(make_totals("RmsNorm", [400, 400]), wall_ns=1000), lanes=threads)
    table = tabulate_runs([run])
    lines = terminal.brick_lines("decode", bricks.BrickView(table), width=130)
    assert table.whole == "wall"
    assert table.rows[0].share == pytest.approx(0.8)
    assert ("outside any brick" in "\n".join(lines)) is is_shown


def test_shares_add_up_to_all_of_the_wall_time() -> None:
    for top in (1, 2, 4):
        table = bricks.brick_section(shown_bricks(top=top)).blocks[0]
        assert isinstance(table, Table)
        shares = [float(cell_text(row[1]).removesuffix(" %")) for row in table.rows]
        assert sum(shares) == pytest.approx(100.0)
        assert len(shares) == top + 1 + (top < 4)


def test_a_long_tree_is_cut_and_the_rest_named() -> None:
    given = replace(shown_bricks(), tree=tuple(f"Layer {n}" for n in range(500)))
    lines = terminal.brick_lines("decode", given, width=100)
    assert "Layer 24" in lines
    assert "Layer 25" not in lines
    assert "… 475 more lines: flamegate bricks .flamegate/latest/decode" in lines
    # A page, which folds the tree, cuts it later.
    assert "… 100 more lines: flamegate bricks" in markdown.render_section(
        bricks.brick_section(given)
    )
    assert "… 100 more lines</p>" in page.render_section(
        bricks.brick_section(replace(given, full_command="")), ""
    )


def test_threads_side_by_side_have_shares_of_bricks() -> None:
    lanes = (ThreadTotals("a", 900, 1), ThreadTotals("b", 800, 1))
    one = replace(make_run(make_totals("RmsNorm", [900, 800]), wall_ns=1000), lanes=lanes)
    lines = terminal.brick_lines("decode", bricks.BrickView(tabulate_runs([one])), width=200)
    assert "% of bricks" in lines[2]
    assert "2 threads or tasks at once" in lines[-1]
    assert not any("outside" in line for line in lines)


def test_limits_of_the_figures_are_notes() -> None:
    one, ingested = make_run(make_totals("A", [9])), make_totals("A", [9])
    ingested = replace(ingested, provenance="ingested")
    nested = [replace(make_totals("Block", [90]), self_ns=20), make_totals("RmsNorm", [70])]
    for table, note in (
        (tabulate_runs([replace(one, sync="immediate")]), "each brick waits for the device, which"),
        (tabulate_runs([replace(one, unended=2)]), "2 calls did not end and is in no figure"),
        (tabulate_totals([ingested], wall_ns=0), "reported by the engine, ingested and never"),
        (tabulate_totals(nested, wall_ns=100), "shares are of own time, without the bricks"),
    ):
        assert note in "; ".join(bricks.provenance_notes(table))
        assert note not in "; ".join(bricks.provenance_notes(shown_bricks().table))


def test_a_critical_path_names_ten_bricks_and_counts_the_others() -> None:
    calls = [call(f"Brick{n}", 1000 * n, 1000 * (n + 1), layer=0) for n in range(12)]
    graph = build_graph(calls)
    assert bricks.graph_text(graph, find_critical_path(graph)).endswith("\n  and 2 other names")


# Pages


def test_a_page_has_the_tree_and_draws_the_shares_as_long_as_they_are() -> None:
    whole = page.render_section(bricks.brick_section(shown_bricks()), "")
    for word in ("covers 94.0 % of wall", "Layer 0", "at 61 % of this machine"):
        assert word in whole
    assert re.findall(r'<rect width="([^"]+)"', whole) == ["40", "24", "21", "9"]
    assert " style=" not in whole


def test_the_jobs_summary_has_a_short_table() -> None:
    runs = [RunReport("decode", None, bricks=shown_bricks()), RunReport("other", None)]
    section = markdown.step_summary(runs).partition("### Bricks of ")[2]
    assert section.startswith("decode\n")
    assert "Self µs/token" in section
    assert "Layer 0" not in section
    assert "### Bricks" not in section

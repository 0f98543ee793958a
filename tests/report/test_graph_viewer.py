"""The viewer, driven without a screen; and what is told of a critical path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static, Tree

from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import Brick, ExecutionGraph
from pytest_flamegate.report import graph_viewer
from pytest_flamegate.report.bricks import graph_text
from pytest_flamegate.report.graph_viewer import Viewer
from tests.graph.graphs import calls_in_a_row, every_kind


def driven(graph: ExecutionGraph, steps: Callable[[Pilot[None], Viewer], Awaitable[None]]) -> None:
    async def drive() -> None:
        app = Viewer(graph, find_critical_path(graph))
        async with app.run_test() as pilot:
            await pilot.pause()
            await steps(pilot, app)

    asyncio.run(drive())


def lines(app: Viewer) -> list[str]:
    tree: Tree[Any] = app.query_one("#tree", Tree)
    nodes = [tree.get_node_at_line(line) for line in range(tree.last_line + 1)]
    return [str(node.label) for node in nodes if node is not None]


def told(app: Viewer) -> str:
    return str(app.query_one("#node", Static).render())


def test_a_node_opens_and_tells_of_itself() -> None:
    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        assert lines(app) == ["Step  240.0µs"]
        assert "critical path 239.0µs, 99.6 %" in str(app.query_one("#path", Static).render())
        await pilot.press("down", "space")
        await pilot.pause()
        assert lines(app)[1:] == ["Layer 0", "Prefetch  239.0µs", "Sampling  10.0µs"]
        await pilot.press("end")
        await pilot.pause()
        assert told(app) == "Sampling  10.0µs  self 10.0µs  slack 9.0µs"
        await pilot.press("c")
        await pilot.pause()
        assert told(app).startswith("Step")
        await pilot.press("c")
        await pilot.pause()
        assert told(app) == "Prefetch  239.0µs  self 239.0µs  on the critical path"
        await pilot.press("q")

    driven(every_kind(), steps)


def test_of_many_nodes_more_come_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_viewer, "_MANY", 2)

    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        await pilot.press("down", "space")
        await pilot.pause()
        assert lines(app)[1:] == ["Brick0  0.1µs", "Brick1  0.1µs", "… 3 more: press enter"]
        await pilot.press("end", "enter")
        await pilot.pause()
        assert lines(app)[3:] == ["Brick2  0.1µs", "Brick3  0.1µs", "… 1 more: press enter"]
        await pilot.press("end", "enter")
        await pilot.pause()
        assert lines(app)[5:] == ["Brick4  0.1µs"]

    driven(build_graph(calls_in_a_row([100] * 5)), steps)


def test_a_name_is_no_markup() -> None:
    graph = ExecutionGraph()
    graph.add_node(Brick("[red]a[/red]\x1b[2J", 0, 1000))

    async def steps(pilot: Pilot[None], app: Viewer) -> None:
        assert lines(app) == ["[red]a[/red]\\x1b[2J  1.0µs"]
        assert told(app).startswith("[red]a[/red]\\x1b[2J  1.0µs")

    driven(graph, steps)


def test_the_text_has_the_tree_and_what_the_path_is_spent_in() -> None:
    graph = build_graph(calls_in_a_row([50_000, 200_000, 100_000]))
    assert graph_text(graph, find_critical_path(graph)).splitlines()[5:] == [
        "critical path 350.0µs, 100.0 % of the wall time of 350.0µs; most of it in:",
        "  200.0µs   57.1 %   Brick1",
        "  100.0µs   28.6 %   Brick2",
        "   50.0µs   14.3 %   Brick0",
    ]


def test_many_names_are_told_in_short() -> None:
    graph = build_graph(calls_in_a_row([1000] * 12))
    assert graph_text(graph, find_critical_path(graph)).endswith("\n  and 2 other names")


def test_a_path_of_no_time_is_told_as_such() -> None:
    graph = build_graph(calls_in_a_row([0]))
    shown = graph_text(graph, find_critical_path(graph)).splitlines()[-1]
    assert shown == "critical path 0.0µs, 0.0 % of the wall time of 0.0µs"

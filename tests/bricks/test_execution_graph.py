"""The graph's builder: what it takes, and what it refuses by code."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.graph import graph as graph_graph
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Function, Kernel, Layer, Transfer
from pytest_flamegate.graph.text import draw_tree


def graph_with(*nodes: Any) -> ExecutionGraph:
    graph = ExecutionGraph()
    for node in nodes:
        graph.add_node(node)
    return graph


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("RmsNorm", "no node but str"),
        (Brick(""), "name"),
        (Brick("x" * 1001), "name"),
        (Brick("\ud800"), "name"),
        (Brick("a", 5, 4), "ends before"),
        (Brick("a", 5), "one without the other"),
        (Brick("a", -1, 4), "start_ns"),
        (Brick("a", True, 4), "start_ns"),
        (Brick("a", elements=-1), "elements"),
        (Brick("a", elements=1 << 63), "elements"),
        (Layer(-1), "number"),
        (Kernel("k", (0, 1, 1), (1, 1, 1)), "grid"),
        (Kernel("k", (1, 1, 1), (1, 1)), "block"),  # type: ignore[arg-type]
        (Kernel("k", source_hash=1 << 64), "source_hash"),
        (Transfer("P2P", 1), "direction"),  # type: ignore[arg-type]
        (Function("f", line=-1), "line"),
    ],
)
def test_a_malformed_node_is_refused(node: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        ExecutionGraph().add_node(node)
    assert refused.value.code == "E_GRAPH_NODE"


@pytest.mark.parametrize(
    ("edge", "code"),
    [
        ((0, 3, "Calls"), "E_GRAPH_EDGE"),
        ((-1, 0, "Calls"), "E_GRAPH_EDGE"),
        ((True, 0, "Calls"), "E_GRAPH_EDGE"),
        (("0", 1, "Calls"), "E_GRAPH_EDGE"),
        ((1, 1, "DependsOn"), "E_GRAPH_EDGE"),
        ((0, 1, "Follows"), "E_GRAPH_EDGE"),
        ((0, 1, "Transfer"), "E_GRAPH_EDGE"),
        ((0, 2, "Launches"), "E_GRAPH_PARENT"),
    ],
)
def test_an_edge_that_fits_no_nodes_is_refused(edge: Any, code: str) -> None:
    graph = graph_with(Brick("a"), Brick("b"), Kernel("k"))
    graph.add_edge(1, 2, "Launches")
    with pytest.raises(UsageError) as refused:
        graph.add_edge(*edge)
    assert refused.value.code == code
    assert list(graph.edges) == [(1, 2, "Launches")]


def test_a_copy_stands_in_what_started_it_and_leads_to_what_uses_it() -> None:
    graph = graph_with(Kernel("k"), Transfer("D2H", 64), Function("uses"), Function("starts"))
    graph.add_edge(0, 1, "Transfer")
    graph.add_edge(1, 2, "Transfer")
    graph.add_edge(3, 1, "Transfer")
    assert [graph.parent(each) for each in range(4)] == [None, 0, None, None]
    assert graph.children[0] == [1]


def test_the_graph_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_graph, "MAX_NODES", 2)
    monkeypatch.setattr(graph_graph, "MAX_EDGES", 1)
    graph = graph_with(Brick("a"), Brick("b"))
    graph.add_edge(0, 1, "Sequence")
    for add in (lambda: graph.add_node(Brick("c")), lambda: graph.add_edge(1, 0, "Calls")):
        with pytest.raises(UsageError) as refused:
            add()
        assert refused.value.code == "E_GRAPH_SIZE"
    assert graph.parent(0) is None


@pytest.mark.parametrize("use", [draw_tree, find_critical_path])
def test_nodes_that_stand_in_themselves_are_named(use: Any) -> None:
    graph = graph_with(Brick("root", 0, 1), Brick("a"), Brick("b"), Brick("c"), Brick("beneath"))
    for source, target in ((1, 2), (2, 3), (3, 1), (3, 4)):
        graph.add_edge(source, target, "Calls")
    with pytest.raises(UndecidedError) as refused:
        use(graph)
    assert refused.value.code == "E_GRAPH_CYCLE"
    told = (
        refused.value.problem.removeprefix("The graph goes in a circle: ").rstrip(".").split(" → ")
    )
    assert told[0] == told[-1]
    assert {*told} == {"'a'", "'b'", "'c'"}
    assert "".join(told).replace("'", "") in ("abca", "bcab", "cabc")


def test_a_long_circle_is_told_in_short() -> None:
    graph = graph_with(*(Brick(f"b{each}", 0, 0) for each in range(20)))
    for each in range(20):
        graph.add_edge(each, (each + 1) % 20, "Sequence")
    with pytest.raises(UndecidedError, match="→ 12 more →"):
        find_critical_path(graph)

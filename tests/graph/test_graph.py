"""ExecutionGraph: what can be added to it, and the error for everything else."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.graph import graph as graph_graph
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Kernel, Layer, Transfer
from pytest_flamegate.graph.text import draw_tree


def graph_with(*nodes: Any) -> ExecutionGraph:
    graph = ExecutionGraph()
    for node in nodes:
        graph.add_node(node)
    return graph


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("RmsNorm", "is a str"),
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
        (Transfer("P2P", 1), "direction"),  # type: ignore[arg-type]
        (Transfer("H2D", -1), "bytes"),
    ],
)
def test_invalid_node_raises(node: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        ExecutionGraph().add_node(node)
    assert error.value.code == "E_GRAPH_NODE"


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
        ((0, 2, "Launches"), "E_GRAPH_EDGE"),
    ],
)
def test_invalid_edge_raises_and_is_not_added(edge: Any, code: str) -> None:
    graph = graph_with(Brick("a"), Brick("b"), Kernel("k"))
    graph.add_edge(1, 2, "Launches")
    with pytest.raises(UsageError) as error:
        graph.add_edge(*edge)
    assert error.value.code == code
    assert list(graph.edges) == [(1, 2, "Launches")]


def test_copy_is_nested_in_its_first_starter() -> None:
    graph = graph_with(Kernel("k"), Transfer("D2H", 64), Brick("uses"), Brick("starts"))
    graph.add_edge(0, 1, "Transfer")
    graph.add_edge(1, 2, "Transfer")
    graph.add_edge(3, 1, "Transfer")
    assert [graph.parent(each) for each in range(4)] == [None, 0, None, None]
    assert graph.children[0] == [1]


def test_number_of_nodes_and_edges_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_graph, "MAX_NODES", 2)
    monkeypatch.setattr(graph_graph, "MAX_EDGES", 1)
    graph = graph_with(Brick("a"), Brick("b"))
    graph.add_edge(0, 1, "Sequence")
    for add in (lambda: graph.add_node(Brick("c")), lambda: graph.add_edge(1, 0, "Calls")):
        with pytest.raises(UsageError) as error:
            add()
        assert error.value.code == "E_GRAPH_SIZE"
    assert graph.parent(0) is None


@pytest.mark.parametrize("use", [draw_tree, find_critical_path])
def test_nodes_nested_in_themselves_are_named(use: Any) -> None:
    graph = graph_with(Brick("root", 0, 1), Brick("a"), Brick("b"), Brick("c"), Brick("beneath"))
    for source, target in ((1, 2), (2, 3), (3, 1), (3, 4)):
        graph.add_edge(source, target, "Calls")
    with pytest.raises(UndecidedError) as error:
        use(graph)
    assert error.value.code == "E_GRAPH_CYCLE"
    told = error.value.problem.removeprefix("The graph has a cycle: ").rstrip(".").split(" → ")
    assert told[0] == told[-1]
    assert {*told} == {"'a'", "'b'", "'c'"}
    assert "".join(told).replace("'", "") in ("abca", "bcab", "cabc")


def test_long_cycle_is_shortened() -> None:
    graph = graph_with(*(Brick(f"b{each}", 0, 0) for each in range(20)))
    for each in range(20):
        graph.add_edge(each, (each + 1) % 20, "Sequence")
    with pytest.raises(UndecidedError, match="→ 12 more →"):
        find_critical_path(graph)

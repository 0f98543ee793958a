"""The execution graph and its document: invalid nodes, edges and documents, cycles, limits."""

import json
from typing import Any

import pytest
from hypothesis import given

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.graph import graph as graph_graph
from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import (
    Brick,
    ExecutionGraph,
    Kernel,
    Transfer,
    from_document,
    to_document,
)
from pytest_flamegate.graph.text import draw_tree
from tests.graph.graphs import every_kind, graph_with, recorded


@pytest.mark.parametrize("times", [(5, 4), (5, None), (None, 5)])
def test_invalid_times_raise(times: Any) -> None:
    with pytest.raises(UsageError, match="E_GRAPH_NODE"):
        ExecutionGraph().add_node(Brick("a", *times))


@pytest.mark.parametrize(
    "edge",
    [
        *((0, 3, "Calls"), (-1, 0, "Calls"), (1, 1, "DependsOn")),
        *((0, 1, "Follows"), (0, 1, "Transfer"), (0, 2, "Launches")),
    ],
)
def test_invalid_edge_raises_and_is_not_added(edge: Any) -> None:
    graph = graph_with([Brick("a"), Brick("b"), Kernel("k")], [(1, 2, "Launches")])
    with pytest.raises(UsageError, match="E_GRAPH_EDGE"):
        graph.add_edge(*edge)
    assert graph.edges == [(1, 2, "Launches")]


def test_copy_is_nested_in_its_first_starter() -> None:
    nodes = [Kernel("k"), Transfer("D2H", 64), Brick("uses"), Brick("starts")]
    graph = graph_with(nodes, [(0, 1, "Transfer"), (1, 2, "Transfer"), (3, 1, "Transfer")])
    assert [graph.parent(each) for each in range(4)] == [None, 0, None, None]
    assert graph.children[0] == [1]


def test_number_of_nodes_and_edges_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_graph, "MAX_NODES", 2)
    monkeypatch.setattr(graph_graph, "MAX_EDGES", 1)
    graph = graph_with([Brick("a"), Brick("b")], [(0, 1, "Sequence")])
    with pytest.raises(UsageError, match="E_GRAPH_SIZE"):
        graph.add_node(Brick("c"))
    with pytest.raises(UsageError, match="E_GRAPH_SIZE"):
        graph.add_edge(1, 0, "Calls")
    assert graph.parent(0) is None


@pytest.mark.parametrize("use", [draw_tree, find_critical_path])
def test_nodes_nested_in_themselves_are_named(use: Any) -> None:
    nodes = [Brick("root", 0, 1), *map(Brick, ("a", "b", "c", "beneath"))]
    edges = [(1, 2, "Calls"), (2, 3, "Calls"), (3, 1, "Calls"), (3, 4, "Calls")]
    with pytest.raises(UndecidedError, match="E_GRAPH_CYCLE") as error:
        use(graph_with(nodes, edges))
    names = error.value.problem.removeprefix("The graph has a cycle: ").rstrip(".").split(" → ")
    assert "".join(names).replace("'", "") in ("abca", "bcab", "cabc")


def test_long_cycle_is_shortened() -> None:
    nodes = [Brick(f"b{each}", 0, 0) for each in range(20)]
    edges = [(each, (each + 1) % 20, "Sequence") for each in range(20)]
    with pytest.raises(UndecidedError, match="→ 12 more →"):
        find_critical_path(graph_with(nodes, edges))


@given(recorded(lanes=3))
def test_graph_survives_encoding(calls: list[BrickCall]) -> None:
    for graph in (every_kind(), build_graph(calls)):
        again = from_document(json.loads(encode_json(to_document(graph))))
        assert (again.nodes, again.edges) == (graph.nodes, graph.edges)


def test_document_of_every_kind_leaves_defaults_out() -> None:
    document = to_document(every_kind())
    shape = {"grid": (32, 1, 1), "block": (256, 1, 1), "shared_memory_bytes": 4096}
    assert document["nodes"][2] == {"kind": "Kernel", "name": "batched_gemv", **shape}
    assert document["edges"][0] == (4, 0, "Contains")


@pytest.mark.parametrize(
    ("steps", "value", "problem"),
    [
        ((), [], "Expected `object`"),
        (("kind",), "graph", "graph"),
        (("schema_version",), "2.0.0", "2.0.0"),
        (("extra",), 1, "extra"),
        (("nodes",), None, "nodes"),
        (("nodes", 1), [], r"nodes\[1\]"),
        (("nodes", 1, "kind"), "Thing", r"nodes\[1\]"),
        (("nodes", 1, "name"), "", "name"),
        (("nodes", 1, "name"), "x" * 1001, "name"),
        (("nodes", 1, "colour"), "red", "colour"),
        (("nodes", 1, "start_ns"), -1, "start_ns"),
        (("nodes", 1, "start_ns"), 300_000, r"QkvProjection.*nodes\[1\]"),
        (("nodes", 1, "elements"), "7", "elements"),
        (("nodes", 2, "grid"), [0, 1, 1], "grid"),
        (("nodes", 3, "direction"), "P2P", "direction"),
        (("edges", 0), [0, 99, "Calls"], r"edges\[0\]"),
        (("edges", 0), [0, 1, "Follows"], r"edges\[0\]"),
        (("edges", 0), [True, 1, "Calls"], r"edges\[0\]"),
        (("edges", 1), [4, 0, "Contains"], "nested in 'Step' already"),
    ],
)
def test_invalid_document_raises(steps: tuple[Any, ...], value: object, problem: str) -> None:
    whole = {"document": json.loads(encode_json(to_document(every_kind())))}
    *above, last = ("document", *steps)
    place: Any = whole
    for step in above:
        place = place[step]
    place[last] = value
    document = whole["document"]
    with pytest.raises(ReceiptError, match=f"E_GRAPH_DOCUMENT.*{problem}"):
        from_document(document)


def test_document_with_nodes_nested_in_themselves_raises() -> None:
    nodes = [{"kind": "Brick", "name": "a"}, {"kind": "Brick", "name": "b"}]
    edges = [[0, 1, "Calls"], [1, 0, "Calls"]]
    document = {**to_document(ExecutionGraph()), "nodes": nodes, "edges": edges}
    with pytest.raises(ReceiptError, match=r"E_GRAPH_DOCUMENT.*cycle"):
        from_document(document)

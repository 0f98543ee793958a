"""The execution graph and its document: invalid nodes, edges and documents, cycles, limits."""

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.graph import graph as graph_graph
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import (
    DIRECTIONS,
    EDGE_KINDS,
    Brick,
    ExecutionGraph,
    Kernel,
    Layer,
    Transfer,
    from_document,
    to_document,
)
from pytest_flamegate.graph.text import draw_tree
from tests.graph.graphs import every_kind


def graph_with(*nodes: Any) -> ExecutionGraph:
    graph = ExecutionGraph()
    for node in nodes:
        graph.add_node(node)
    return graph


@pytest.mark.parametrize("times", [(5, 4), (5, None), (None, 5)])
def test_invalid_times_raise(times: Any) -> None:
    with pytest.raises(UsageError) as error:
        ExecutionGraph().add_node(Brick("a", *times))
    assert error.value.code == "E_GRAPH_NODE"


@pytest.mark.parametrize(
    "edge",
    [
        (0, 3, "Calls"),
        (-1, 0, "Calls"),
        (1, 1, "DependsOn"),
        (0, 1, "Follows"),
        (0, 1, "Transfer"),
        (0, 2, "Launches"),
    ],
)
def test_invalid_edge_raises_and_is_not_added(edge: Any) -> None:
    graph = graph_with(Brick("a"), Brick("b"), Kernel("k"))
    graph.add_edge(1, 2, "Launches")
    with pytest.raises(UsageError) as error:
        graph.add_edge(*edge)
    assert error.value.code == "E_GRAPH_EDGE"
    assert graph.edges == [(1, 2, "Launches")]


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
    names = error.value.problem.removeprefix("The graph has a cycle: ").rstrip(".").split(" → ")
    assert "".join(names).replace("'", "") in ("abca", "bcab", "cabc")


def test_long_cycle_is_shortened() -> None:
    graph = graph_with(*(Brick(f"b{each}", 0, 0) for each in range(20)))
    for each in range(20):
        graph.add_edge(each, (each + 1) % 20, "Sequence")
    with pytest.raises(UndecidedError, match="→ 12 more →"):
        find_critical_path(graph)


_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_counts = st.integers(0, (1 << 63) - 1)
_three = st.tuples(*[st.integers(1, 1 << 31)] * 3)
_times = st.one_of(
    st.just((None, None)), st.tuples(_counts, _counts).map(lambda pair: tuple(sorted(pair)))
)


@st.composite
def nodes(draw: st.DrawFn) -> Any:
    start, end = draw(_times)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return Layer(draw(_counts), start, end)
    if kind == 1:
        return Brick(draw(_names), start, end, draw(_counts), draw(_counts), draw(_counts))
    if kind == 2:
        shape = st.one_of(st.none(), _three)
        return Kernel(draw(_names), draw(shape), draw(shape), draw(_counts), start, end)
    return Transfer(draw(st.sampled_from(DIRECTIONS)), draw(_counts), start, end)


@st.composite
def graphs(draw: st.DrawFn) -> ExecutionGraph:
    graph = ExecutionGraph()
    for node in draw(st.lists(nodes(), max_size=6)):
        graph.add_node(node)
    number = st.integers(0, 6)
    for source, target, kind in draw(
        st.lists(st.tuples(number, number, st.sampled_from(EDGE_KINDS)), max_size=10)
    ):
        try:
            graph.add_edge(source, target, kind)
        except UsageError:
            continue
    try:
        graph.sort_as_tree()
    except UndecidedError:
        reject()
    return graph


@given(graphs())
def test_graph_survives_encoding(graph: ExecutionGraph) -> None:
    again = from_document(json.loads(encode_json(to_document(graph))))
    assert (again.nodes, again.edges) == (graph.nodes, graph.edges)


def test_document_of_every_kind_leaves_defaults_out() -> None:
    document = to_document(every_kind())
    assert document["nodes"][2] == {
        "kind": "Kernel",
        "name": "batched_gemv",
        "grid": (32, 1, 1),
        "block": (256, 1, 1),
        "shared_memory_bytes": 4096,
    }
    assert document["edges"][0] == (4, 0, "Contains")


@pytest.mark.parametrize(
    ("steps", "value", "problem"),
    [
        (("kind",), "graph", "graph"),
        (("schema_version",), "2.0.0", "2.0.0"),
        (("extra",), 1, "extra"),
        (("nodes",), None, "nodes"),
        (("nodes",), {}, "nodes"),
        (("nodes", 1), [], r"nodes\[1\]"),
        (("nodes", 1, "kind"), "Thing", r"nodes\[1\]"),
        (("nodes", 1, "name"), None, "name"),
        (("nodes", 1, "name"), "", "name"),
        (("nodes", 1, "name"), "x" * 1001, "name"),
        (("nodes", 1, "colour"), "red", "colour"),
        (("nodes", 1, "start_ns"), 1.5, "start_ns"),
        (("nodes", 1, "start_ns"), -1, "start_ns"),
        (("nodes", 1, "start_ns"), 300_000, r"QkvProjection.*nodes\[1\]"),
        (("nodes", 1, "elements"), "7", "elements"),
        (("nodes", 1, "elements"), 1 << 63, "elements"),
        (("nodes", 2, "grid"), [1, 2], "grid"),
        (("nodes", 2, "grid"), [0, 1, 1], "grid"),
        (("nodes", 3, "direction"), "P2P", "direction"),
        (("edges", 0), [0, 1], r"edges\[0\]"),
        (("edges", 0), [0, 99, "Calls"], r"edges\[0\]"),
        (("edges", 0), [0, 1, "Follows"], r"edges\[0\]"),
        (("edges", 0), [True, 1, "Calls"], r"edges\[0\]"),
        (("edges", 1), [4, 0, "Contains"], "nested in 'Step' already"),
    ],
)
def test_invalid_document_raises(steps: tuple[Any, ...], value: object, problem: str) -> None:
    document = json.loads(encode_json(to_document(every_kind())))
    place = document
    for step in steps[:-1]:
        place = place[step]
    if value is None:
        del place[steps[-1]]
    else:
        place[steps[-1]] = value
    with pytest.raises(ReceiptError, match=problem) as error:
        from_document(document)
    assert error.value.code == "E_GRAPH_DOCUMENT"


@pytest.mark.parametrize("document", [None, [], "graph", 7, {}])
def test_other_values_are_no_document(document: object) -> None:
    with pytest.raises(ReceiptError, match="E_GRAPH_DOCUMENT"):
        from_document(document)


def test_document_with_nodes_nested_in_themselves_raises() -> None:
    nodes = [{"kind": "Brick", "name": "a"}, {"kind": "Brick", "name": "b"}]
    edges = [[0, 1, "Calls"], [1, 0, "Calls"]]
    document = {**to_document(ExecutionGraph()), "nodes": nodes, "edges": edges}
    with pytest.raises(ReceiptError, match=r"E_GRAPH_DOCUMENT.*cycle"):
        from_document(document)

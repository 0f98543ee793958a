"""The graph as a document comes back as it was; anything else is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from pytest_flamegate.core.errors import ReceiptError, UndecidedError, UsageError
from pytest_flamegate.graph import document
from pytest_flamegate.graph.document import from_document, to_document
from pytest_flamegate.graph.graph import (
    DIRECTIONS,
    EDGE_KINDS,
    Brick,
    ExecutionGraph,
    Kernel,
    Layer,
    Transfer,
)
from tests.graph.graphs import every_kind

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
    again = from_document(json.loads(json.dumps(to_document(graph))))
    assert (list(again.nodes), list(again.edges)) == (list(graph.nodes), list(graph.edges))
    assert to_document(again) == to_document(graph)


def set_or_delete(document: Any, steps: tuple[Any, ...], value: object) -> None:
    for step in steps[:-1]:
        document = document[step]
    if value is None:
        del document[steps[-1]]
    else:
        document[steps[-1]] = value


@pytest.mark.parametrize(
    ("steps", "value", "why"),
    [
        (("kind",), "graph", "its kind"),
        (("schema_version",), "2.0.0", "'2.0.0'"),
        (("extra",), 1, "not just"),
        (("nodes",), None, "not just"),
        (("nodes",), {}, "are not a list"),
        (("nodes", 1), [], r"nodes\[1\]: it is not an object"),
        (("nodes", 1, "kind"), "Thing", r"nodes\[1\]"),
        (("nodes", 1, "kind"), ["Brick"], r"nodes\[1\]"),
        (("nodes", 1, "name"), None, r"nodes\[1\]: it has no name"),
        (("nodes", 1, "colour"), "red", "unknown field 'colour'"),
        (("nodes", 1, "start_ns"), 1.0, "start_ns"),
        (("nodes", 1, "elements"), "7", "elements"),
        (("nodes", 2, "grid"), [1, 2], "grid"),
        (("nodes", 2, "grid"), [[1], 2, 3], "grid"),
        (("edges", 0), [0, 1], r"edges\[0\]"),
        (("edges", 0), "abc", r"edges\[0\]"),
        (("edges", 0), [0, 99, "Calls"], r"edges\[0\]"),
        (("edges", 0), [0, 1, []], r"edges\[0\]"),
        (("edges", 0), [[], 1, "Calls"], r"edges\[0\]"),
        (("edges", 1), [4, 0, "Contains"], "nested in 'Step' already"),
    ],
)
def test_invalid_document_raises(steps: tuple[Any, ...], value: object, why: str) -> None:
    document = to_document(every_kind())
    set_or_delete(document, steps, value)
    with pytest.raises(ReceiptError, match=why) as error:
        from_document(document)
    assert error.value.code == "E_GRAPH_DOCUMENT"


@pytest.mark.parametrize("document", [None, [], "graph", 7, {}])
def test_other_values_raise(document: object) -> None:
    with pytest.raises(ReceiptError) as error:
        from_document(document)
    assert error.value.code == "E_GRAPH_DOCUMENT"


@pytest.mark.parametrize("what", ["MAX_NODES", "MAX_EDGES"])
def test_size_is_limited(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, what, 6)
    with pytest.raises(ReceiptError, match="more than the 6 allowed"):
        from_document(to_document(every_kind()))


def test_nodes_nested_in_themselves_raise() -> None:
    document = {
        **to_document(ExecutionGraph()),
        "nodes": [{"kind": "Brick", "name": "a"}, {"kind": "Brick", "name": "b"}],
        "edges": [[0, 1, "Calls"], [1, 0, "Calls"]],
    }
    with pytest.raises(ReceiptError, match=r"edges: .*('a' → 'b' → 'a'|'b' → 'a' → 'b')") as error:
        from_document(document)
    assert error.value.code == "E_GRAPH_DOCUMENT"

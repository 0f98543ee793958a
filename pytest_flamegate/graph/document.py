"""The execution graph as a JSON document, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.graph.graph import MAX_EDGES, MAX_NODES, NODE_TYPES, ExecutionGraph, Node

KIND = "execution-graph"
SCHEMA_VERSION = "1.0.0"

_TYPES: Mapping[str, type[Node]] = {kind.__name__: kind for kind in NODE_TYPES}
_FIELDS = {
    name: {field.name: field.default for field in fields(kind)} for name, kind in _TYPES.items()
}
_REQUIRED = {
    name: {field for field, default in defaults.items() if default is MISSING}
    for name, defaults in _FIELDS.items()
}


def to_document(graph: ExecutionGraph) -> dict[str, Any]:
    """Return the graph as dicts, lists and scalars, without fields that hold their default.

    ``nodes`` are objects with a ``kind``; ``edges`` are lists of source, target and kind, in which
    a node's number is its index in ``nodes``.

    Raises:
        UndecidedError: ``E_GRAPH_CYCLE`` if nodes are nested in themselves.
    """
    graph.sort_as_tree()
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "nodes": [_encode_node(node) for node in graph.nodes],
        "edges": [list(edge) for edge in graph.edges],
    }


def is_document(document: object) -> bool:
    """Whether ``document`` has the kind of an execution graph."""
    return isinstance(document, dict) and document.get("kind") == KIND


def from_document(document: object) -> ExecutionGraph:
    """Return the graph of a document that ``to_document`` wrote.

    Raises:
        ReceiptError: ``E_GRAPH_DOCUMENT`` for another kind or version, a missing, unknown or
            invalid field, an edge that does not fit its nodes, too many nodes or edges, or nodes
            that are nested in themselves.
    """
    if not isinstance(document, dict) or not is_document(document):
        raise _malformed(f'its kind is not "{KIND}"')
    if document.get("schema_version") != SCHEMA_VERSION:
        version = str(document.get("schema_version"))[:40]
        raise _malformed(f"its schema_version is {version!a} and not {SCHEMA_VERSION}")
    if document.keys() != {"kind", "schema_version", "nodes", "edges"}:
        raise _malformed("its fields are not just kind, schema_version, nodes and edges")
    graph = ExecutionGraph()
    path = ""
    try:
        for number, value in enumerate(_get_list(document, "nodes", MAX_NODES)):
            path = f"nodes[{number}]: "
            graph.add_node(_decode_node(value))
        for number, value in enumerate(_get_list(document, "edges", MAX_EDGES)):
            path = f"edges[{number}]: "
            _add_edge(graph, value)
        path = "edges: "
        graph.sort_as_tree()
    except FlamegateError as error:
        if error.code == "E_GRAPH_DOCUMENT":
            raise
        raise _malformed(path + error.problem.rstrip(".")) from None
    except ValueError as error:
        raise _malformed(f"{path}{error}") from None
    return graph


def _encode_node(node: Node) -> dict[str, Any]:
    name = type(node).__name__
    encoded: dict[str, Any] = {"kind": name}
    for field, default in _FIELDS[name].items():
        value = getattr(node, field)
        if value != default:
            encoded[field] = list(value) if isinstance(value, tuple) else value
    return encoded


def _get_list(document: Mapping[str, object], name: str, limit: int) -> list[object]:
    value = document[name]
    if not isinstance(value, list):
        raise _malformed(f"its {name} are not a list")
    if len(value) > limit:
        raise _malformed(f"it has {len(value):,} {name}, more than the {limit:,} allowed")
    return value


def _decode_node(value: object) -> Node:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"it is not an object of the kind {', '.join(_TYPES)}")
    given = {
        name: tuple(each) if isinstance(each, list) else each
        for name, each in value.items()
        if name != "kind"
    }
    if unknown := given.keys() - _FIELDS[kind].keys():
        raise ValueError(f"it has the unknown field {min(map(str, unknown))[:80]!a}")
    if missing := _REQUIRED[kind] - given.keys():
        raise ValueError(f"it has no {min(missing)}")
    make: Any = _TYPES[kind]  # the graph checks the values
    node: Node = make(**given)
    return node


def _add_edge(graph: ExecutionGraph, value: object) -> None:
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[2], str):
        raise ValueError("it is not a list of source, target and kind")
    source, target, kind = value
    graph.add_edge(source, target, kind)


def _malformed(why: str) -> ReceiptError:
    return ReceiptError(
        "E_GRAPH_DOCUMENT",
        f"The execution graph is malformed: {why}.",
        "Write it again with flamegate bricks PATH --json; do not edit it by hand.",
    )

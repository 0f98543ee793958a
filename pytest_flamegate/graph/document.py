"""The execution graph as plain data for JSON, and strictly back."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.graph.graph import MAX_EDGES, MAX_NODES, NODE_TYPES, ExecutionGraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.graph.graph import Node


KIND = "execution-graph"
SCHEMA_VERSION = "1.0.0"
_MALFORMED = "The execution graph is malformed: "

_TYPES: Mapping[str, type[Node]] = {each.__name__: each for each in NODE_TYPES}
_FIELDS = {
    name: {field.name: field.default for field in fields(each)} for name, each in _TYPES.items()
}
_REQUIRED = {
    name: {field for field, default in told.items() if default is MISSING}
    for name, told in _FIELDS.items()
}


def to_document(graph: ExecutionGraph) -> dict[str, Any]:
    """Return the graph as dicts, lists and scalars; what a field holds by default is left out.

    ``nodes`` are objects with their ``kind``, ``edges`` lists of source, target and kind, where
    a node's number is its place. Raises ``UndecidedError`` ``E_GRAPH_CYCLE`` where nodes stand in
    themselves.
    """
    graph.outside_in()
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "nodes": [_plain(node) for node in graph.nodes],
        "edges": [list(edge) for edge in graph.edges],
    }


def is_document(document: object) -> bool:
    """Whether ``document`` says that it is an execution graph."""
    return isinstance(document, dict) and document.get("kind") == KIND


def from_document(document: object) -> ExecutionGraph:
    """Return the graph that ``to_document`` gave.

    Raises ``ReceiptError`` ``E_GRAPH_DOCUMENT`` for anything else: another kind or version, a
    field that is missing, unknown or wrong, an edge that does not fit its nodes, more nodes or
    edges than ``MAX_NODES`` and ``MAX_EDGES``, nodes that stand in themselves.
    """
    if not isinstance(document, dict) or not is_document(document):
        raise _malformed(f"It does not say that its kind is {KIND}.")
    if document.get("schema_version") != SCHEMA_VERSION:
        said = str(document.get("schema_version"))[:40]
        raise _malformed(f"Its schema_version is {said!a} and not {SCHEMA_VERSION}.")
    if document.keys() != {"kind", "schema_version", "nodes", "edges"}:
        raise _malformed("It must have the fields kind, schema_version, nodes and edges alone.")
    graph = ExecutionGraph()
    for number, told in enumerate(_listed(document, "nodes", MAX_NODES)):
        with _Place(f"nodes[{number}]"):
            graph.add_node(_node(told))
    for number, told in enumerate(_listed(document, "edges", MAX_EDGES)):
        with _Place(f"edges[{number}]"):
            _add_edge(graph, told)
    with _Place("edges"):
        graph.outside_in()
    return graph


def _plain(node: Node) -> dict[str, Any]:
    name = type(node).__name__
    told: dict[str, Any] = {"kind": name}
    for field, default in _FIELDS[name].items():
        value = getattr(node, field)
        if value != default:
            told[field] = list(value) if isinstance(value, tuple) else value
    return told


def _listed(document: Mapping[str, object], name: str, most: int) -> list[object]:
    found = document[name]
    if not isinstance(found, list):
        raise _malformed(f"Its {name} are no list.")
    if len(found) > most:
        raise _malformed(f"It has {len(found):,} {name}, more than the {most:,} allowed.")
    return found


def _node(told: object) -> Node:
    kind = told.get("kind") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(kind, str) or kind not in _TYPES:
        raise _malformed(f"is no object whose kind is one of {', '.join(_TYPES)}")
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in told.items()
        if name != "kind"
    }
    if unknown := given.keys() - _FIELDS[kind].keys():
        raise _malformed(f"has the unknown field {min(map(str, unknown))[:80]!a}")
    if missing := _REQUIRED[kind] - given.keys():
        raise _malformed(f"has no {min(missing)}")
    made: Any = _TYPES[kind]  # whatever the fields hold: the graph looks at them
    node: Node = made(**given)
    return node


def _add_edge(graph: ExecutionGraph, told: object) -> None:
    if not isinstance(told, list) or len(told) != 3:
        raise _malformed("is no list of source, target and kind")
    source, target, kind = told
    if not isinstance(kind, str):
        raise _malformed("is no list of source, target and kind")
    graph.add_edge(source, target, kind)  # type: ignore[arg-type]  # any text: it is looked at


class _Place:
    """Tells with each refusal within which entry of the document it was."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return

    def __exit__(self, _type: object, error: object, _trace: object) -> None:
        if isinstance(error, FlamegateError):
            what = error.problem.removeprefix(_MALFORMED).rstrip(".")
            raise _malformed(f"{self._place}: {what}.") from None


def _malformed(what: str) -> ReceiptError:
    return ReceiptError(
        "E_GRAPH_DOCUMENT",
        _MALFORMED + what,
        "Write it again with flamegate bricks PATH --json; do not edit it by hand.",
    )

"""The execution graph: layers, bricks, kernels and copies, nested in each other and in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, NamedTuple, TypeGuard, get_args

from pytest_flamegate.core.errors import UndecidedError, UsageError

Direction = Literal["H2D", "D2H", "D2D"]
"""From host to device, back, or from device to device."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
EdgeKind = Literal["Calls", "Contains", "Launches", "Sequence", "DependsOn", "Transfer"]
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
Dimensions = tuple[int, int, int]
"""x, y and z, each at least 1."""
MAX_NAME = 1000
"""Characters of a name."""
MAX_NODES = 500_000
MAX_EDGES = 2_000_000
_COUNT_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the model, which contains bricks. It has no self time."""

    number: int
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Brick:
    """One call of a brick; ``lane`` is the number of its thread or task."""

    name: str
    start_ns: int | None = None
    end_ns: int | None = None
    elements: int = 0
    bytes: int = 0
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of a kernel; grid and block are None if they are not known."""

    name: str
    grid: Dimensions | None = None
    block: Dimensions | None = None
    shared_memory_bytes: int = 0
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy of ``bytes``."""

    direction: Direction
    bytes: int
    start_ns: int | None = None
    end_ns: int | None = None


Node = Layer | Brick | Kernel | Transfer
"""Times are nanoseconds of one clock; a node has both or neither."""
NODE_TYPES: tuple[type[Node], ...] = get_args(Node)


class Edge(NamedTuple):
    """An edge between two nodes, by their numbers.

    The target of ``Contains``, ``Calls`` and ``Launches`` is nested in the source. ``Sequence``:
    the source ended before the target began. ``DependsOn``: the target ended before the source
    began. ``Transfer`` leads from the node that starts a copy to the copy, or from a copy to the
    node that uses its data.
    """

    source: int
    target: int
    kind: EdgeKind


def get_node_name(node: Node) -> str:
    """Return the name of a node as it was recorded; a copy is named by its direction."""
    if isinstance(node, Layer):
        return f"Layer {node.number}"
    return node.direction if isinstance(node, Transfer) else node.name


def check_node(node: Node) -> None:
    """Raise ``UsageError`` ``E_GRAPH_NODE`` unless all fields of a node are valid."""
    if type(node) not in NODE_TYPES:
        raise _node_error(node, f"is a {type(node).__name__}")
    for name, is_valid in _CHECKED[type(node)]:
        if not is_valid(getattr(node, name)):
            raise _node_error(node, f"has a wrong {name}")
    start_ns, end_ns = node.start_ns, node.end_ns
    if start_ns is None and end_ns is None:
        return
    if not (_is_count(start_ns) and _is_count(end_ns)):
        raise _node_error(node, "has a wrong start_ns or end_ns, or one without the other")
    if end_ns < start_ns:
        raise _node_error(node, "ends before it starts")


def _node_error(node: Any, what: str) -> UsageError:
    return UsageError(
        "E_GRAPH_NODE",
        f"The node {repr(node)[:200]!a} {what}.",
        "Pass a Layer, Brick, Kernel or Transfer with names as text and counts from 0.",
    )


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _COUNT_LIMIT


def _is_name(value: object) -> bool:
    if type(value) is not str or not 0 < len(value) <= MAX_NAME:
        return False
    # Half a surrogate pair has no place in JSON.
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _is_dimensions(value: object) -> bool:
    if value is None:
        return True
    return (
        type(value) is tuple and len(value) == 3 and all(_is_count(each) and each for each in value)
    )


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("number", "elements", "bytes", "lane", "shared_memory_bytes"), _is_count),
    "name": _is_name,
    "grid": _is_dimensions,
    "block": _is_dimensions,
    "direction": DIRECTIONS.__contains__,
}
"""The valid values of each field, whichever kind of node has it; times are checked in pairs."""
_CHECKED = {
    kind: [(field.name, _CHECKS[field.name]) for field in fields(kind) if field.name in _CHECKS]
    for kind in NODE_TYPES
}

_NESTING = frozenset({"Contains", "Calls", "Launches"})
_SHOWN_IN_CYCLE = 8


class ExecutionGraph:
    """Nodes, numbered by their index in ``nodes``, and edges between them.

    A node is nested in at most one other, its parent: the source of its ``Contains``, ``Calls``
    or ``Launches`` edge, or for a copy without one, of its first ``Transfer`` edge::

        graph = ExecutionGraph()
        block, kernel = graph.add_node(Brick("Block", 0, 90)), graph.add_node(Kernel("gemv"))
        graph.add_edge(block, kernel, "Launches")
    """

    __slots__ = ("_children", "_edges", "_nodes", "_parents")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._parents: list[int | None] = []
        self._children: list[list[int]] = []

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes, in the order in which they were added."""
        return self._nodes

    @property
    def edges(self) -> Sequence[Edge]:
        """All edges, in the order in which they were added."""
        return self._edges

    @property
    def children(self) -> Sequence[Sequence[int]]:
        """For each node, the numbers of the nodes nested in it, in the order of edges."""
        return self._children

    def parent(self, number: int) -> int | None:
        """Return the number of the node that a node is nested in; None for a root."""
        return self._parents[number]

    def add_node(self, node: Node) -> int:
        """Add a node and return its number.

        Raises:
            UsageError: ``E_GRAPH_NODE`` if a field is invalid, ``E_GRAPH_SIZE`` beyond
                ``MAX_NODES``.
        """
        check_node(node)
        if len(self._nodes) >= MAX_NODES:
            raise _size_error("nodes", MAX_NODES)
        self._nodes.append(node)
        self._parents.append(None)
        self._children.append([])
        return len(self._nodes) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind) -> None:
        """Add an edge from one node to another, by their numbers.

        Raises:
            UsageError: ``E_GRAPH_EDGE`` if a node does not exist, source and target are the same,
                the kind does not exist or does not fit the nodes, or the target is nested in
                another node already; ``E_GRAPH_SIZE`` beyond ``MAX_EDGES``.
        """
        self._check_ends(source, target, kind)
        if len(self._edges) >= MAX_EDGES:
            raise _size_error("edges", MAX_EDGES)
        if kind in _NESTING:
            self._check_root(target)
            self._set_parent(target, source)
        elif kind == "Transfer":
            if isinstance(self._nodes[target], Transfer):
                if self._parents[target] is None:
                    self._set_parent(target, source)
            elif not isinstance(self._nodes[source], Transfer):
                raise _edge_error("neither end of its Transfer edge is a copy")
        self._edges.append(Edge(source, target, kind))

    def is_nesting(self, edge: Edge) -> bool:
        """Whether the target of ``edge`` is nested in its source."""
        return edge.kind in _NESTING or (
            edge.kind == "Transfer" and self._parents[edge.target] == edge.source
        )

    def sort_as_tree(self) -> list[int]:
        """Return all numbers in the order of a drawn tree: each node before those nested in it.

        Raises:
            UndecidedError: ``E_GRAPH_CYCLE`` if nodes are nested in themselves; it names them.
        """
        order: list[int] = []
        left = [number for number, parent in enumerate(self._parents) if parent is None][::-1]
        while left:
            number = left.pop()
            order.append(number)
            left.extend(reversed(self._children[number]))
        if len(order) < len(self._nodes):
            # Nodes of a cycle cannot be reached from a root.
            self.sort_after(
                [[] if parent is None else [parent] for parent in self._parents],
                range(len(self._nodes)),
            )
        return order

    def sort_after(self, waits_for: Sequence[Sequence[int]], nodes: Sequence[int]) -> list[int]:
        """Sort items so that each comes after those that it waits for, by index.

        ``nodes`` holds the number of each item's node, for the error.

        Raises:
            UndecidedError: ``E_GRAPH_CYCLE`` if items wait for themselves; it names their nodes.
        """
        try:
            return list(TopologicalSorter(dict(enumerate(waits_for))).static_order())
        except CycleError as error:
            cycle = [nodes[item] for item in error.args[1]]
        # One node has several items in a row if its own parts are in the cycle.
        names = [
            repr(get_node_name(self._nodes[number])[:80])
            for place, number in enumerate(cycle)
            if not place or number != cycle[place - 1]
        ]
        if len(names) > _SHOWN_IN_CYCLE + 1:
            names[_SHOWN_IN_CYCLE:-1] = [f"{len(names) - 1 - _SHOWN_IN_CYCLE:,} more"]
        raise UndecidedError(
            "E_GRAPH_CYCLE",
            f"The graph has a cycle: {' → '.join(names)}.",
            "Remove the edge that leads back: no node can come before itself.",
        )

    def _check_ends(self, source: int, target: int, kind: EdgeKind) -> None:
        count = len(self._nodes)
        for number in (source, target):
            if type(number) is not int or not 0 <= number < count:
                raise _edge_error(f"there is no node {str(number)[:40]!a}, only {count:,}")
        if source == target:
            raise _edge_error(f"{get_node_name(self._nodes[source])[:80]!a} would lead to itself")
        if kind not in EDGE_KINDS:
            raise _edge_error(f"its kind {str(kind)[:40]!a} is not one of {', '.join(EDGE_KINDS)}")

    def _check_root(self, target: int) -> None:
        parent = self._parents[target]
        if parent is not None:
            inner, outer = (get_node_name(self._nodes[each])[:80] for each in (target, parent))
            raise _edge_error(f"{inner!a} is nested in {outer!a} already")

    def _set_parent(self, inner: int, outer: int) -> None:
        self._parents[inner] = outer
        self._children[outer].append(inner)


def _edge_error(what: str) -> UsageError:
    return UsageError(
        "E_GRAPH_EDGE",
        f"The edge cannot be added: {what}.",
        "Add both nodes first, nest each node in one other, and use Sequence or DependsOn for a "
        "node that only waits for another.",
    )


def _size_error(items: str, limit: int) -> UsageError:
    return UsageError(
        "E_GRAPH_SIZE", f"The graph has more than {limit:,} {items}.", "Record fewer tokens."
    )

"""The execution graph: layers, bricks, kernels and copies, nested in each other and in order."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UndecidedError, UsageError
from pytest_flamegate.core.text import escape_name

Direction = Literal["H2D", "D2H", "D2D"]
"""From host to device, back, or from device to device."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
EdgeKind = Literal["Calls", "Contains", "Launches", "Sequence", "DependsOn", "Transfer"]
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)
MAX_NODES = 500_000
MAX_EDGES = 2_000_000
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Size = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Dimensions = tuple[_Size, _Size, _Size]
"""x, y and z, each at least 1."""
Name = Annotated[str, Meta(min_length=1, max_length=1000)]


class _Node(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=True,
):
    """A node of a document has its class name as ``kind`` and no fields that hold a default."""


class Layer(_Node, frozen=True):
    """A layer of the model, which contains bricks. It has no self time."""

    number: _Count
    start_ns: _Count | None = None
    end_ns: _Count | None = None


class Brick(_Node, frozen=True):
    """One call of a brick; ``lane`` is the number of its thread or task."""

    name: Name
    start_ns: _Count | None = None
    end_ns: _Count | None = None
    elements: _Count = 0
    bytes: _Count = 0
    lane: _Count = 0


class Kernel(_Node, frozen=True):
    """One launch of a kernel; grid and block are None if they are not known."""

    name: Name
    grid: Dimensions | None = None
    block: Dimensions | None = None
    shared_memory_bytes: _Count = 0
    start_ns: _Count | None = None
    end_ns: _Count | None = None


class Transfer(_Node, frozen=True):
    """One copy of ``bytes``."""

    direction: Direction
    bytes: _Count
    start_ns: _Count | None = None
    end_ns: _Count | None = None


Node = Layer | Brick | Kernel | Transfer
"""Times are nanoseconds of one clock; a node has both or neither."""


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


_NESTING = frozenset({"Contains", "Calls", "Launches"})
_SHOWN_IN_CYCLE = 8


class ExecutionGraph:
    """Nodes, numbered by their index in ``nodes``, and edges between them.

    A node is nested in at most one other, its parent: the source of its ``Contains``, ``Calls``
    or ``Launches`` edge, or for a copy without one, of its first ``Transfer`` edge. ``children``
    holds, for each node, the numbers of the nodes nested in it, in the order of edges::

        graph = ExecutionGraph()
        block, kernel = graph.add_node(Brick("Block", 0, 90)), graph.add_node(Kernel("gemv"))
        graph.add_edge(block, kernel, "Launches")
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.children: list[list[int]] = []
        self._parents: list[int | None] = []

    def parent(self, number: int) -> int | None:
        """Return the number of the node that a node is nested in; None for a root."""
        return self._parents[number]

    def add_node(self, node: Node) -> int:
        """Add a node and return its number. Raises ``E_GRAPH_NODE`` or ``E_GRAPH_SIZE``."""
        start_ns, end_ns = node.start_ns, node.end_ns
        if (start_ns is None) != (end_ns is None) or (start_ns or 0) > (end_ns or 0):
            raise UsageError(
                "E_GRAPH_NODE",
                f"The node {get_node_name(node)[:80]!a} ends before it starts, or has one time "
                "without the other.",
                "Pass both start_ns and end_ns, or neither.",
            )
        if len(self.nodes) >= MAX_NODES:
            raise _size_error("nodes", MAX_NODES)
        self.nodes.append(node)
        self._parents.append(None)
        self.children.append([])
        return len(self.nodes) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind) -> None:
        """Add an edge from one node to another, by their numbers.

        Raises ``UsageError``: ``E_GRAPH_EDGE`` for an edge that does not fit its nodes or nests
        the target a second time, ``E_GRAPH_SIZE`` beyond ``MAX_EDGES``.
        """
        count = len(self.nodes)
        for number in (source, target):
            if not 0 <= number < count:
                raise _edge_error(f"there is no node {number}, only {count:,}")
        if source == target:
            raise _edge_error(f"{self._name(source)} would lead to itself")
        if kind not in EDGE_KINDS:
            raise _edge_error(f"its kind {str(kind)[:40]!a} is not one of {', '.join(EDGE_KINDS)}")
        if len(self.edges) >= MAX_EDGES:
            raise _size_error("edges", MAX_EDGES)
        parent = self._parents[target]
        if kind in _NESTING and parent is not None:
            raise _edge_error(f"{self._name(target)} is nested in {self._name(parent)} already")
        ends_in_copy = kind == "Transfer" and isinstance(self.nodes[target], Transfer)
        if kind == "Transfer" and not ends_in_copy and not isinstance(self.nodes[source], Transfer):
            raise _edge_error("neither end of its Transfer edge is a copy")
        if kind in _NESTING or (ends_in_copy and parent is None):
            self._parents[target] = source
            self.children[source].append(target)
        self.edges.append(Edge(source, target, kind))

    def is_nesting(self, edge: Edge) -> bool:
        """Whether the target of ``edge`` is nested in its source."""
        return edge.kind in _NESTING or (
            edge.kind == "Transfer" and self._parents[edge.target] == edge.source
        )

    def sort_as_tree(self) -> list[int]:
        """Return all numbers in the order of a drawn tree: each node before those nested in it.

        Raises ``UndecidedError`` ``E_GRAPH_CYCLE``, which names nodes nested in themselves.
        """
        order: list[int] = []
        left = [number for number, parent in enumerate(self._parents) if parent is None][::-1]
        while left:
            number = left.pop()
            order.append(number)
            left.extend(reversed(self.children[number]))
        if len(order) < len(self.nodes):
            # Nodes of a cycle cannot be reached from a root.
            self.sort_after(
                [[] if parent is None else [parent] for parent in self._parents],
                range(len(self.nodes)),
            )
        return order

    def sort_after(self, waits_for: Sequence[Sequence[int]], nodes: Sequence[int]) -> list[int]:
        """Sort items so that each comes after those that it waits for, by index.

        Raises ``UndecidedError`` ``E_GRAPH_CYCLE``, which names the ``nodes`` of the items.
        """
        try:
            return list(TopologicalSorter(dict(enumerate(waits_for))).static_order())
        except CycleError as error:
            cycle = [nodes[item] for item in error.args[1]]
        # One node has several items in a row if its own parts are in the cycle.
        names = [
            self._name(number)
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

    def _name(self, number: int) -> str:
        return ascii(get_node_name(self.nodes[number])[:80])


def _edge_error(problem: str) -> UsageError:
    return UsageError(
        "E_GRAPH_EDGE",
        f"The edge cannot be added: {problem}.",
        "Add both nodes first, nest each node in one other, and use Sequence or DependsOn for a "
        "node that only waits for another.",
    )


def _size_error(items: str, limit: int) -> UsageError:
    return UsageError(
        "E_GRAPH_SIZE", f"The graph has more than {limit:,} {items}.", "Record fewer tokens."
    )


KIND: Literal["execution-graph"] = "execution-graph"


class GraphDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph as JSON. An edge is a list of source, target and kind."""

    kind: Literal["execution-graph"]
    schema_version: Literal["1.0.0"]
    nodes: list[Node]
    edges: list[Edge]


def to_document(graph: ExecutionGraph) -> Any:
    """Return the graph as dicts, lists and scalars. Raises ``UndecidedError`` ``E_GRAPH_CYCLE``."""
    graph.sort_as_tree()
    return msgspec.to_builtins(GraphDocument(KIND, "1.0.0", graph.nodes, graph.edges))


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
    graph, path = ExecutionGraph(), ""
    try:
        found = msgspec.convert(document, GraphDocument)
        for number, node in enumerate(found.nodes):
            path = f" - at `$.nodes[{number}]`"
            graph.add_node(node)
        for number, edge in enumerate(found.edges):
            path = f" - at `$.edges[{number}]`"
            graph.add_edge(*edge)
        path = ""
        graph.sort_as_tree()
    except (FlamegateError, msgspec.ValidationError) as error:
        problem = error.problem.rstrip(".") if isinstance(error, FlamegateError) else str(error)
        raise ReceiptError(
            "E_GRAPH_DOCUMENT",
            f"The execution graph is malformed: {escape_name(problem, 300)}{path}.",
            "Write it again with flamegate bricks PATH --json; do not edit it by hand.",
        ) from None
    return graph

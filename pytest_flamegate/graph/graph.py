"""The execution graph: layers, bricks, kernels and copies, nested in each other and in order."""

from typing import Any, Literal, NamedTuple, get_args

import msgspec

Direction = Literal["H2D", "D2H", "D2D"]
"""From host to device, back, or from device to device."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
EdgeKind = Literal["Calls", "Contains", "Launches", "Sequence", "Transfer"]
Dimensions = tuple[int, int, int]
"""x, y and z, each at least 1."""


class _Node(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=True):
    """A node of a document has its class name as ``kind`` and no fields that hold a default."""


class Layer(_Node, frozen=True):
    """A layer of the model, which contains bricks. It has no self time."""

    number: int
    start_ns: int
    end_ns: int


class Brick(_Node, frozen=True):
    """One call of a brick; ``lane`` is the number of its thread or task."""

    name: str
    start_ns: int
    end_ns: int
    elements: int = 0
    bytes: int = 0
    lane: int = 0


class Kernel(_Node, frozen=True):
    """One launch of a kernel, without times; grid and block are None if they are not known."""

    name: str
    grid: Dimensions | None = None
    block: Dimensions | None = None
    shared_memory_bytes: int = 0


class Transfer(_Node, frozen=True):
    """One copy of ``bytes``."""

    direction: Direction
    bytes: int
    start_ns: int
    end_ns: int


Node = Layer | Brick | Kernel | Transfer
"""Times are nanoseconds of one clock."""


class Edge(NamedTuple):
    """An edge between two nodes, by their numbers.

    ``Sequence``: the source ended before the target began. By any other kind the target is nested
    in the source; by ``Transfer`` it is a copy.
    """

    source: int
    target: int
    kind: EdgeKind


def get_node_name(node: Node) -> str:
    """Return the name of a node as it was recorded; a copy is named by its direction."""
    if isinstance(node, Layer):
        return f"Layer {node.number}"
    return node.direction if isinstance(node, Transfer) else node.name


class ExecutionGraph:
    """Nodes, numbered by their index in ``nodes``, and edges between them.

    A node is nested in at most one other: ``parents`` holds its number for each node, None for a
    root, and ``children`` the numbers of the nodes within each node, in the order of edges.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.children: list[list[int]] = []
        self.parents: list[int | None] = []

    def add_node(self, node: Node) -> int:
        """Add a node and return its number."""
        self.nodes.append(node)
        self.parents.append(None)
        self.children.append([])
        return len(self.nodes) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind) -> None:
        """Add an edge from one node to another, by their numbers."""
        if kind != "Sequence":
            self.parents[target] = source
            self.children[source].append(target)
        self.edges.append(Edge(source, target, kind))

    def sort_as_tree(self) -> list[int]:
        """Return all numbers in the order of a drawn tree: each node before those nested in it."""
        order: list[int] = []
        left = [number for number, parent in enumerate(self.parents) if parent is None][::-1]
        while left:
            number = left.pop()
            order.append(number)
            left.extend(reversed(self.children[number]))
        return order


def to_document(graph: ExecutionGraph) -> dict[str, Any]:
    """Return the graph as dicts, lists and scalars. An edge is a list of source, target, kind."""
    return {
        "kind": "execution-graph",
        "schema_version": "1.0.0",
        "nodes": msgspec.to_builtins(graph.nodes),
        "edges": msgspec.to_builtins(graph.edges),
    }

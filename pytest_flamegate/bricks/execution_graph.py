"""The execution graph itself: nodes and edges, added one by one and checked as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.graph_nodes import EDGE_KINDS, Edge, Transfer, check, name_of
from pytest_flamegate.errors import UndecidedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.graph_nodes import EdgeKind, Node

MAX_NODES = 500_000
MAX_EDGES = 2_000_000
_NESTING = frozenset({"Contains", "Calls", "Launches"})
_NAMED = 8
"""Names of a cycle that are told."""


class ExecutionGraph:
    """What ran, within what, and after what. A node's number is its place in ``nodes``.

    A node stands in at most one other: the source of its edge ``Contains``, ``Calls`` or
    ``Launches``, else, for a copy, of its first edge ``Transfer``.
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

    def add_node(self, node: Node) -> int:
        """Add a node and return its number.

        Raises ``UsageError`` ``E_GRAPH_NODE`` for a malformed one, ``E_GRAPH_SIZE`` for one more
        than ``MAX_NODES``.
        """
        check(node)
        if len(self._nodes) >= MAX_NODES:
            raise _too_large("nodes", MAX_NODES)
        self._nodes.append(node)
        self._parents.append(None)
        self._children.append([])
        return len(self._nodes) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind) -> None:
        """Add an edge from one node to another, by their numbers.

        Raises ``UsageError`` ``E_GRAPH_EDGE`` where a node is missing, source and target are one,
        the kind is none or does not fit the nodes; ``E_GRAPH_PARENT`` where the target stands in
        another node already; ``E_GRAPH_SIZE`` for one more than ``MAX_EDGES``.
        """
        self._check_ends(source, target, kind)
        if len(self._edges) >= MAX_EDGES:
            raise _too_large("edges", MAX_EDGES)
        if kind in _NESTING:
            self._nest(source, target)
        elif kind == "Transfer":
            self._move(source, target)
        self._edges.append(Edge(source, target, kind))

    def parent(self, number: int) -> int | None:
        """Return the number of the node that a node stands in, None for none."""
        return self._parents[number]

    def is_nesting(self, edge: Edge) -> bool:
        """Whether ``edge`` says where its target stands, and not only what came before what."""
        return edge.kind in _NESTING or (
            edge.kind == "Transfer" and self._parents[edge.target] == edge.source
        )

    @property
    def children(self) -> Sequence[Sequence[int]]:
        """Return for each node the numbers of those that stand in it, in the order of edges."""
        return self._children

    def outside_in(self) -> list[int]:
        """Return all numbers as the tree has them: each node before those that stand in it.

        Raises ``UndecidedError`` ``E_GRAPH_CYCLE``, which names the nodes, where some stand in
        themselves.
        """
        order: list[int] = []
        left = [number for number, parent in enumerate(self._parents) if parent is None][::-1]
        while left:
            number = left.pop()
            order.append(number)
            left.extend(reversed(self._children[number]))
        if len(order) == len(self._nodes):
            return order
        raise self.circle(self._ring(set(order)))

    def circle(self, ring: Sequence[int]) -> UndecidedError:
        """Return the refusal of nodes that come before themselves: each before the next."""
        names = [repr(name_of(self._nodes[each])[:80]) for each in (*ring, ring[0])]
        if len(ring) > _NAMED:
            names[_NAMED:-1] = [f"{len(ring) - _NAMED:,} more"]
        return UndecidedError(
            "E_GRAPH_CYCLE",
            f"The graph goes in a circle: {' → '.join(names)}.",
            "Take out the edge that leads back: nothing comes before itself.",
        )

    def _ring(self, reached: set[int]) -> list[int]:
        """Return nodes each of which stands in the one before; all above those not reached do."""
        number = next(each for each in range(len(self._nodes)) if each not in reached)
        seen: dict[int, None] = {}
        while number not in seen:
            seen[number] = None
            parent = self._parents[number]
            assert parent is not None  # what stands in nothing was reached
            number = parent
        walked = list(seen)
        return walked[walked.index(number) :][::-1]

    def _check_ends(self, source: int, target: int, kind: EdgeKind) -> None:
        count = len(self._nodes)
        for number in (source, target):
            if type(number) is not int or not 0 <= number < count:
                raise _bad_edge(f"there is no node {str(number)[:40]!a}, only {count:,}")
        if source == target:
            raise _bad_edge(f"{name_of(self._nodes[source])[:80]!a} would lead to itself")
        if kind not in EDGE_KINDS:
            raise _bad_edge(f"{str(kind)[:40]!a} is none of {', '.join(EDGE_KINDS)}")

    def _nest(self, source: int, target: int) -> None:
        parent = self._parents[target]
        if parent is not None:
            inner, outer = (name_of(self._nodes[each])[:80] for each in (target, parent))
            raise UsageError(
                "E_GRAPH_PARENT",
                f"{inner!a} stands in {outer!a} already.",
                "Let each node stand in one other; say DependsOn or Sequence for what it waits on.",
            )
        self._stand(target, source)

    def _move(self, source: int, target: int) -> None:
        if isinstance(self._nodes[target], Transfer):
            if self._parents[target] is None:
                self._stand(target, source)
        elif not isinstance(self._nodes[source], Transfer):
            raise _bad_edge("a Transfer edge must lead to a copy or come from one")

    def _stand(self, inner: int, outer: int) -> None:
        self._parents[inner] = outer
        self._children[outer].append(inner)


def _bad_edge(what: str) -> UsageError:
    return UsageError(
        "E_GRAPH_EDGE",
        f"The edge cannot be added: {what}.",
        "Add both nodes first, and take one of the six kinds.",
    )


def _too_large(what: str, most: int) -> UsageError:
    return UsageError(
        "E_GRAPH_SIZE",
        f"The graph has more than the {most:,} {what} allowed.",
        "Record fewer tokens.",
    )

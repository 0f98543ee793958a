"""The critical path: the longest chain of own time that nothing could have run beside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.graph_nodes import name_of
from pytest_flamegate.bricks.precedence import pieces_of
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.execution_graph import ExecutionGraph
    from pytest_flamegate.bricks.precedence import Pieces


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path in the order of time, and of each node its own time and its slack.

    ``steps`` are stretches of nodes' own time, each a node's number and its nanoseconds;
    ``length_ns`` is their sum, ``wall_ns`` from the first start of a node to the last end.
    ``slack_ns``: how much longer a node may take, all else the same, before the path gets longer;
    0 for all that the path leads through.
    """

    length_ns: int
    wall_ns: int
    steps: tuple[tuple[int, int], ...]
    self_ns: tuple[int, ...]
    slack_ns: tuple[int, ...]

    @property
    def share(self) -> float:
        """The part of the wall time that the path explains, 0 to 1."""
        return self.length_ns / max(self.wall_ns, 1)


def critical_path(graph: ExecutionGraph) -> CriticalPath:
    """Return the critical path from real starts, ends and dependencies, on own time.

    In topological order, linear in nodes and edges but for the sorting of what stands within
    one node. Raises ``UndecidedError`` ``E_GRAPH_EMPTY`` where no node has times,
    ``E_GRAPH_CYCLE``, which names the nodes of the circle, and ``E_GRAPH_ORDER`` where times
    contradict the edges.
    """
    times = [
        (node.start_ns, node.end_ns)
        for node in graph.nodes
        if node.start_ns is not None and node.end_ns is not None
    ]
    if not times:
        raise UndecidedError(
            "E_GRAPH_EMPTY",
            "The graph has no node whose start and end are known.",
            "Record the engine's bricks with their times.",
        )
    pieces = pieces_of(graph)
    order = _topological(graph, pieces)
    before, via = _before(pieces, order)
    through = _through(pieces, order, before)
    length_ns = max(through)
    wall_ns = max(end for _, end in times) - min(start for start, _ in times)
    if length_ns > wall_ns:
        raise UndecidedError(
            "E_GRAPH_ORDER",
            f"The longest chain takes {length_ns:,} ns, and all together took {wall_ns:,} ns.",
            "Take out the edge that orders what ran at the same time.",
        )
    self_ns, most = [0] * len(graph.nodes), [0] * len(graph.nodes)
    for node, own, longest in zip(pieces.node, pieces.length_ns, through, strict=True):
        self_ns[node] += own
        most[node] = max(most[node], longest)
    return CriticalPath(
        length_ns,
        wall_ns,
        _steps(pieces, before, via, length_ns),
        tuple(self_ns),
        tuple(length_ns - longest for longest in most),
    )


def by_name(graph: ExecutionGraph, path: CriticalPath) -> list[tuple[str, int, float]]:
    """Return what the path spends in nodes of each name: ns and share of the path, most first."""
    spent: Counter[str] = Counter()
    for node, self_ns in path.steps:
        spent[name_of(graph.nodes[node])] += self_ns
    return [(name, self_ns, self_ns / path.length_ns) for name, self_ns in spent.most_common()]


def _topological(graph: ExecutionGraph, pieces: Pieces) -> list[int]:
    """Return the pieces so that each comes after all that it follows."""
    waits_for = [0] * len(pieces.node)
    for following in pieces.after:
        for piece in following:
            waits_for[piece] += 1
    order = [piece for piece, count in enumerate(waits_for) if not count]
    for piece in order:
        for then in pieces.after[piece]:
            waits_for[then] -= 1
            if not waits_for[then]:
                order.append(then)
    if len(order) < len(waits_for):
        raise _circle(graph, pieces, waits_for)
    return order


def _circle(graph: ExecutionGraph, pieces: Pieces, waits_for: Sequence[int]) -> UndecidedError:
    """Return the refusal of a circle among the pieces that still wait."""
    left = [piece for piece, count in enumerate(waits_for) if count]
    leads: dict[int, int] = {}
    for piece in left:
        leads.update({then: piece for then in pieces.after[piece] if waits_for[then]})
    seen: set[int] = set()
    piece = left[0]
    while piece not in seen:
        seen.add(piece)
        piece = leads[piece]
    ring = [pieces.node[piece]]
    at = leads[piece]
    while at != piece:
        if pieces.node[at] != ring[-1]:
            ring.append(pieces.node[at])
        at = leads[at]
    if len(ring) > 1 and ring[0] == ring[-1]:
        ring.pop()
    return graph.circle(ring[::-1])


def _before(pieces: Pieces, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the longest chain that ends before each piece, and its last piece (-1 for none)."""
    before, via = [0] * len(order), [-1] * len(order)
    for piece in order:
        until = before[piece] + pieces.length_ns[piece]
        for then in pieces.after[piece]:
            if until > before[then]:
                before[then], via[then] = until, piece
    return before, via


def _through(pieces: Pieces, order: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the longest chain that leads through each piece."""
    rest = list(pieces.length_ns)
    for piece in reversed(order):
        longest = 0
        for then in pieces.after[piece]:
            if rest[then] > longest:
                longest = rest[then]
        rest[piece] += longest
    return [ahead + own for ahead, own in zip(before, rest, strict=True)]


def _steps(
    pieces: Pieces, before: Sequence[int], via: Sequence[int], length_ns: int
) -> tuple[tuple[int, int], ...]:
    lengths = pieces.length_ns
    piece = next(piece for piece, ahead in enumerate(before) if ahead + lengths[piece] == length_ns)
    found: list[tuple[int, int]] = []
    while piece >= 0:
        if lengths[piece]:
            found.append((pieces.node[piece], lengths[piece]))
        piece = via[piece]
    return tuple(reversed(found))

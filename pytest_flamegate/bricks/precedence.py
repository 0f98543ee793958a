"""What of a graph came before what: its nodes cut where others start and end within them.

A *piece* is a stretch of one node's own time. A node that nothing stands in is one piece. One
that others stand in is a row of pieces, cut where the first of them starts and each of them
ends: so the time in which something ran within it is never counted as its own, and what outlives
it waits for no more of it than came before. A layer, and a node without times, has pieces of no
length that hold together what stands in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.graph_nodes import Layer, name_of
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.execution_graph import ExecutionGraph
    from pytest_flamegate.bricks.graph_nodes import Node

_END, _MOMENT, _MOMENT_END, _START, _OUTLIVING = range(5)
"""At one time: what ran until then ends, what takes no time starts and ends, the rest starts; last
what is still running when the node around it ends."""


@dataclass(slots=True)
class Pieces:
    """Pieces, by number: the node each is of, its length, and the pieces that follow it.

    ``first`` and ``last`` hold the first and the last piece of each node.
    """

    node: list[int] = field(default_factory=list)
    length_ns: list[int] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)

    def cut(self, node: int) -> int:
        """Add a piece of ``node`` without length, and return its number."""
        self.node.append(node)
        self.length_ns.append(0)
        self.after.append([])
        return len(self.node) - 1


def pieces_of(graph: ExecutionGraph) -> Pieces:
    """Return the pieces of all nodes, linked as the graph says.

    Raises ``UndecidedError`` ``E_GRAPH_CYCLE`` where nodes stand in themselves,
    ``E_GRAPH_ORDER`` where times contradict what stands in what or comes before what.
    """
    order = graph.outside_in()
    spans = _spans(graph, order)
    pieces = Pieces()
    for number, node in enumerate(graph.nodes):
        pieces.cut(number)
        if node.start_ns is not None and node.end_ns is not None and not graph.children[number]:
            pieces.length_ns[number] = 0 if isinstance(node, Layer) else node.end_ns - node.start_ns
    pieces.first, pieces.last = list(range(len(order))), list(range(len(order)))
    within = _hosted(graph, order)
    for number in reversed(order):
        if graph.children[number]:
            if _is_timed(graph.nodes[number]):
                _cut_up(graph, pieces, number, within[number])
            _hold(graph, pieces, number, spans)
    _link(graph, pieces, spans)
    return pieces


def _is_timed(node: Node) -> bool:
    return node.start_ns is not None and not isinstance(node, Layer)


def _spans(graph: ExecutionGraph, order: Sequence[int]) -> list[tuple[int, int] | None]:
    """Return when each node started and ended; of what has no time, what stands in it."""
    spans: list[tuple[int, int] | None] = [None] * len(order)
    for number in reversed(order):
        node = graph.nodes[number]
        if node.start_ns is not None and node.end_ns is not None and _is_timed(node):
            spans[number] = (node.start_ns, node.end_ns)
        span, parent = spans[number], graph.parent(number)
        if span is None or parent is None or _is_timed(graph.nodes[parent]):
            continue
        known = spans[parent] or span
        spans[parent] = (min(known[0], span[0]), max(known[1], span[1]))
    return spans


def _hosted(graph: ExecutionGraph, order: Sequence[int]) -> list[list[int]]:
    """Return for each timed node the next timed ones within it, through what has no time."""
    host: list[int | None] = [None] * len(order)
    hosted: list[list[int]] = [[] for _ in order]
    for number in order:
        parent = graph.parent(number)
        if parent is None:
            continue
        host[number] = parent if _is_timed(graph.nodes[parent]) else host[parent]
        outer = host[number]
        if outer is not None and _is_timed(graph.nodes[number]):
            hosted[outer].append(number)
    return hosted


def _cut_up(graph: ExecutionGraph, pieces: Pieces, outer: int, within: Sequence[int]) -> None:
    """Cut ``outer`` where the nodes within it start, and where those that do not outlive it end."""
    now, ended = _times(graph.nodes[outer])
    lengths, after, first, last = pieces.length_ns, pieces.after, pieces.first, pieces.last
    piece, running, is_closed = first[outer], 0, False
    since: dict[int, int] = {}
    for at, what, number in (*_events(graph, outer, within), (ended, _OUTLIVING, outer)):
        if at > now and not running:
            if is_closed:  # something waits for it as it is
                fresh = pieces.cut(outer)
                after[piece].append(fresh)
                piece, is_closed = fresh, False
            lengths[piece] += at - now
        now = at
        if what in (_END, _MOMENT_END):
            fresh = pieces.cut(outer)
            after[last[number]].append(fresh)
            if since[number] != piece:
                after[piece].append(fresh)
            piece, is_closed = fresh, False
            running -= 1
        elif number != outer:
            after[piece].append(first[number])
            since[number], is_closed = piece, True
            running += what != _OUTLIVING
    last[outer] = piece


def _events(graph: ExecutionGraph, outer: int, within: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return when what happens to which node ``within`` ``outer``, in order."""
    began, ended = _times(graph.nodes[outer])
    events: list[tuple[int, int, int]] = []
    for number in within:
        start, end = _times(graph.nodes[number])
        if start < began:
            raise _order(graph, number, f"stands in {_called(graph, outer)} and began before it")
        if end > ended:
            events.append((min(start, ended), _OUTLIVING, number))
        elif start == end:
            events += (start, _MOMENT, number), (start, _MOMENT_END, number)
        else:
            events += (start, _START, number), (end, _END, number)
    events.sort()
    return events


def _hold(
    graph: ExecutionGraph,
    pieces: Pieces,
    outer: int,
    spans: Sequence[tuple[int, int] | None],
) -> None:
    """Let what has no time of its own, or stands in what has none, begin and end with ``outer``."""
    is_timed = _is_timed(graph.nodes[outer])
    inner = [
        number
        for number in graph.children[outer]
        if not (is_timed and _is_timed(graph.nodes[number]))
    ]
    if not inner:
        return
    piece = pieces.cut(outer)
    pieces.after[pieces.last[outer]].append(piece)
    pieces.last[outer] = piece
    own = spans[outer]
    for number in inner:
        pieces.after[pieces.first[outer]].append(pieces.first[number])
        span = spans[number]
        if span is None or own is None or span[1] <= own[1]:
            pieces.after[pieces.last[number]].append(piece)


def _link(graph: ExecutionGraph, pieces: Pieces, spans: Sequence[tuple[int, int] | None]) -> None:
    """Link what the edges say comes before what."""
    first, last, after = pieces.first, pieces.last, pieces.after
    for edge in graph.edges:
        if graph.is_nesting(edge):
            continue
        source, target, kind = edge
        if kind == "DependsOn":
            source, target = target, source
        before, then = spans[source], spans[target]
        if before is not None and then is not None and then[0] < before[1]:
            what = f"comes after {_called(graph, source)} ({kind}) and began before that ended"
            raise _order(graph, target, what)
        after[last[source]].append(first[target])


def _times(node: Node) -> tuple[int, int]:
    assert node.start_ns is not None
    assert node.end_ns is not None
    return node.start_ns, node.end_ns


def _called(graph: ExecutionGraph, number: int) -> str:
    return ascii(name_of(graph.nodes[number])[:80])


def _order(graph: ExecutionGraph, number: int, what: str) -> UndecidedError:
    return UndecidedError(
        "E_GRAPH_ORDER",
        f"The graph's times contradict its edges: {_called(graph, number)} {what}.",
        "Take the times of all nodes from one clock, or leave out the edge.",
    )

"""What of a graph came before what: its nodes cut where others start and end within them.

A *piece* is a stretch of one node's own time. A node that nothing stands in is one piece. One
that others stand in is a row of pieces, cut where the first of them starts and each of them
ends: so the time in which something ran within it is never counted as its own, and what outlives
it waits for no more of it than came before. A layer, and a node without times, has pieces of no
length that hold together what stands in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.graph_nodes import Layer, name_of
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.execution_graph import ExecutionGraph

_END, _MOMENT, _MOMENT_END, _START, _OUTLIVING = range(5)
"""At one time: what ran until then ends, what takes no time starts and ends, the rest starts; last
what is still running when the node around it ends."""


@dataclass(slots=True)
class Pieces:
    """Pieces, by number: the node each is of, its length, and the pieces that follow it.

    ``first`` and ``last`` hold the first and the last piece of each node.
    """

    node: list[int]
    length_ns: list[int]
    after: list[list[int]]
    first: list[int]
    last: list[int]

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
    cutter = _Cutter(graph)
    cutter.cut_all()
    cutter.link()
    return cutter.pieces


class _Cutter:
    """Own times of nodes (None for a layer and for what has none), and the pieces so far."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.graph = graph
        self.order = graph.outside_in()
        own = [None if isinstance(node, Layer) else node for node in graph.nodes]
        self.starts = [None if node is None else node.start_ns for node in own]
        self.ends = [None if node is None else node.end_ns for node in own]
        count = len(own)
        numbers = range(count)
        self.pieces = Pieces([*numbers], [0] * count, [[] for _ in numbers], [*numbers], [*numbers])
        self.span_starts, self.span_ends = self._spans()

    def cut_all(self) -> None:
        """Cut each node, the innermost first."""
        hosted = self._hosted()
        for number in reversed(self.order):
            start, end = self.starts[number], self.ends[number]
            if start is None or end is None:
                self._hold(number)
            elif self.graph.children[number]:
                self._cut_up(number, start, end, hosted[number])
                self._hold(number)
            else:
                self.pieces.length_ns[number] = end - start

    def link(self) -> None:
        """Link what the edges say comes before what."""
        graph = self.graph
        first, last, after = self.pieces.first, self.pieces.last, self.pieces.after
        for edge in graph.edges:
            source, target, kind = edge
            if kind == "DependsOn":
                source, target = target, source
            elif kind != "Sequence" and graph.is_nesting(edge):
                continue
            ended, began = self.span_ends[source], self.span_starts[target]
            if ended is not None and began is not None and began < ended:
                what = f"comes after {self._called(source)} ({kind}) and began before that ended"
                raise self._order(target, what)
            after[last[source]].append(first[target])

    def _spans(self) -> tuple[list[int | None], list[int | None]]:
        """Return when each node started and ended; of what has no time, what stands in it."""
        starts, ends = list(self.starts), list(self.ends)
        for number in reversed(self.order):
            parent = self.graph.parent(number)
            if parent is None or self.starts[parent] is not None:
                continue
            start, end = starts[number], ends[number]
            if start is not None and end is not None:
                known_start, known_end = starts[parent], ends[parent]
                starts[parent] = start if known_start is None else min(start, known_start)
                ends[parent] = end if known_end is None else max(end, known_end)
        return starts, ends

    def _hosted(self) -> list[list[int]]:
        """Return for each timed node the next timed ones within it, through what has no time."""
        host: list[int | None] = [None] * len(self.order)
        hosted: list[list[int]] = [[] for _ in self.order]
        for number in self.order:
            parent = self.graph.parent(number)
            if parent is None:
                continue
            outer = parent if self.starts[parent] is not None else host[parent]
            host[number] = outer
            if outer is not None and self.starts[number] is not None:
                hosted[outer].append(number)
        return hosted

    def _cut_up(self, outer: int, now: int, ended: int, within: Sequence[int]) -> None:
        """Cut ``outer`` where nodes within it start, and where those that do not outlive it end."""
        pieces = self.pieces
        lengths, after, first, last = pieces.length_ns, pieces.after, pieces.first, pieces.last
        piece, running, is_closed = first[outer], 0, False
        since: dict[int, int] = {}
        for at, what, number in self._events(outer, now, ended, within):
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

    def _events(
        self, outer: int, began: int, ended: int, within: Sequence[int]
    ) -> list[tuple[int, int, int]]:
        """Return when what happens to which node ``within`` ``outer``, in order, and its end."""
        events: list[tuple[int, int, int]] = []
        for number in within:
            start, end = self.starts[number], self.ends[number]
            assert start is not None
            assert end is not None
            if start < began:
                what = f"stands in {self._called(outer)} and began before it"
                raise self._order(number, what)
            if end > ended:
                events.append((min(start, ended), _OUTLIVING, number))
            elif start == end:
                events += (start, _MOMENT, number), (start, _MOMENT_END, number)
            else:
                events += (start, _START, number), (end, _END, number)
        events.sort()
        events.append((ended, _OUTLIVING, outer))
        return events

    def _hold(self, outer: int) -> None:
        """Let what has no time, or stands in what has none, begin and end with ``outer``."""
        inner = self.graph.children[outer]
        if self.starts[outer] is not None:
            inner = [number for number in inner if self.starts[number] is None]
        if not inner:
            return
        pieces, limit = self.pieces, self.span_ends[outer]
        piece = pieces.cut(outer)
        pieces.after[pieces.last[outer]].append(piece)
        pieces.last[outer] = piece
        for number in inner:
            pieces.after[pieces.first[outer]].append(pieces.first[number])
            ended = self.span_ends[number]
            if ended is None or limit is None or ended <= limit:
                pieces.after[pieces.last[number]].append(piece)

    def _called(self, number: int) -> str:
        return ascii(name_of(self.graph.nodes[number])[:80])

    def _order(self, number: int, what: str) -> UndecidedError:
        return UndecidedError(
            "E_GRAPH_ORDER",
            f"The graph's times contradict its edges: {self._called(number)} {what}.",
            "Take the times of all nodes from one clock, or leave out the edge.",
        )

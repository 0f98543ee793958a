"""The critical path: the longest chain of own time that nothing could have run beside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.graph.graph import Layer, get_node_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.graph.graph import ExecutionGraph


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
                if not self._cut_row(number, start, end, hosted[number]):
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

    def _cut_row(self, outer: int, now: int, ended: int, within: Sequence[int]) -> bool:
        """Cut ``outer`` where nearly all is alike: each within it ends before the next starts."""
        times: list[tuple[int, int]] = []
        until = now
        for number in within:
            start, end = self.starts[number], self.ends[number]
            if start is None or end is None or not until <= start < end <= ended:
                return False
            times.append((start, end))
            until = end
        pieces = self.pieces
        lengths, after, piece = pieces.length_ns, pieces.after, pieces.first[outer]
        for number, (start, end) in zip(within, times, strict=True):
            lengths[piece] += start - now
            after[piece].append(pieces.first[number])
            piece = pieces.cut(outer)
            after[pieces.last[number]].append(piece)
            now = end
        lengths[piece] += ended - now
        pieces.last[outer] = piece
        return True

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
        return ascii(get_node_name(self.graph.nodes[number])[:80])

    def _order(self, number: int, what: str) -> UndecidedError:
        return UndecidedError(
            "E_GRAPH_ORDER",
            f"The graph's times contradict its edges: {self._called(number)} {what}.",
            "Take the times of all nodes from one clock, or leave out the edge.",
        )


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


def find_critical_path(graph: ExecutionGraph) -> CriticalPath:
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


def sum_path_by_name(graph: ExecutionGraph, path: CriticalPath) -> list[tuple[str, int, float]]:
    """Return what the path spends in nodes of each name: ns and share of the path, most first."""
    spent: Counter[str] = Counter()
    for node, self_ns in path.steps:
        spent[get_node_name(graph.nodes[node])] += self_ns
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

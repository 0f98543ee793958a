"""The critical path: the longest chain of self time in which each part waits for the one before.

A call is cut into segments of self time wherever a call within it starts or ends::

    outer   ├──0──┐          ┌──2──┤       wait 0 → 1 → 2
    inner         └────1─────┘

Nothing nested counts twice that way. A call that outlives its parent waits for the segment before
its start, and its parent does not wait for it. The ``Sequence`` edges of the graph add more waits.
The critical path is the longest path through the segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Layer, Transfer, get_node_name


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path.

    ``steps`` are its segments in order: a node's number and its nanoseconds, which sum to
    ``length_ns``. ``wall_ns`` is from the first start of a node to the last end.
    """

    length_ns: int
    wall_ns: int
    steps: tuple[tuple[int, int], ...]

    @property
    def share(self) -> float:
        """The part of the wall time that the path explains, 0 to 1."""
        return self.length_ns / max(self.wall_ns, 1)


def find_critical_path(graph: ExecutionGraph) -> CriticalPath:
    """Return the critical path of a graph with at least one call, by real starts, ends and order.

    Takes linear time in nodes and edges, except for sorting the calls within each call.
    """
    segments = _Segments(graph)
    lengths, waits_for = segments.length_ns, segments.waits_for
    chains, previous = [0] * len(lengths), [-1] * len(lengths)
    for segment in TopologicalSorter(dict(enumerate(waits_for))).static_order():
        longest = max(waits_for[segment], key=chains.__getitem__, default=-1)
        previous[segment] = longest
        chains[segment] = lengths[segment] + (chains[longest] if longest >= 0 else 0)
    length_ns = max(chains)
    steps: list[tuple[int, int]] = []
    at = chains.index(length_ns)
    while at >= 0:
        if lengths[at]:
            steps.append((segments.node[at], lengths[at]))
        at = previous[at]
    calls = segments.calls.values()
    wall_ns = max(call.end_ns for call in calls) - min(call.start_ns for call in calls)
    return CriticalPath(length_ns, wall_ns, tuple(reversed(steps)))


def sum_path_by_name(graph: ExecutionGraph, path: CriticalPath) -> list[tuple[str, int, float]]:
    """Return name, nanoseconds and share (0 to 1) of the nodes on the path, longest first."""
    spent_ns: Counter[str] = Counter()
    for node, self_ns in path.steps:
        spent_ns[get_node_name(graph.nodes[node])] += self_ns
    return [(name, ns, ns / path.length_ns) for name, ns in spent_ns.most_common()]


# Events at one time in this order: calls end, calls without duration start and end, calls start;
# then the call around them ends and so does its part in calls that outlive it.
_END, _MOMENT_START, _MOMENT_END, _START, _OUTLIVES = range(5)


class _Segments:
    """The segments of a graph's calls, linked by nesting and by edges.

    ``node``, ``length_ns`` and ``waits_for`` have an entry for each segment. The first segment of
    a call has the call's number; ``last`` holds the number of its last one.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        numbers = range(len(graph.nodes))
        self.node, self.last = [*numbers], [*numbers]
        self.length_ns = [0] * len(numbers)
        self.waits_for: list[list[int]] = [[] for _ in numbers]
        # Layers and kernels have no self time.
        self.calls = {
            number: node
            for number, node in enumerate(graph.nodes)
            if isinstance(node, Brick | Transfer)
        }
        within: dict[int | None, list[int]] = defaultdict(list)
        for number in self.calls:
            outer = graph.parents[number]
            if outer is not None and isinstance(graph.nodes[outer], Layer):
                outer = graph.parents[outer]
            within[outer].append(number)
        for number in reversed(graph.sort_as_tree()):
            if number in self.calls:
                self._cut(number, within[number])
        for earlier, later, kind in graph.edges:
            if kind == "Sequence":
                self.waits_for[later].append(self.last[earlier])

    def _add(self, node: int, *waits_for: int) -> int:
        """Add a segment of ``node`` with no length yet, and return its number."""
        self.node.append(node)
        self.length_ns.append(0)
        self.waits_for.append([*waits_for])
        return len(self.node) - 1

    def _cut(self, outer: int, within: Sequence[int]) -> None:
        """Cut ``outer`` where calls within it start, and where those that do not outlive it end.

        Its self time is the time in which none of them runs.
        """
        segment, running, now, is_awaited = outer, 0, self.calls[outer].start_ns, False
        started_after: dict[int, int] = {}
        events = sorted(self._iter_events(self.calls[outer].end_ns, within))
        for at, event, number in [*events, (self.calls[outer].end_ns, _OUTLIVES, outer)]:
            if at > now and not running:
                if is_awaited:
                    # Calls wait for the segment at its present length.
                    segment, is_awaited = self._add(outer, segment), False
                self.length_ns[segment] += at - now
            now = at
            if event in (_END, _MOMENT_END):
                before = [segment] if started_after[number] != segment else []
                segment, is_awaited = self._add(outer, self.last[number], *before), False
                running -= 1
            elif number != outer:
                self.waits_for[number].append(segment)
                started_after[number], is_awaited = segment, True
                running += event != _OUTLIVES
        self.last[outer] = segment

    def _iter_events(self, ended: int, within: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yield time, event and call of all that happens within a call that ends at ``ended``."""
        for number in within:
            start, end = self.calls[number].start_ns, self.calls[number].end_ns
            if end > ended:
                yield min(start, ended), _OUTLIVES, number
                continue
            is_moment = start == end
            yield start, _MOMENT_START if is_moment else _START, number
            yield end, _MOMENT_END if is_moment else _END, number

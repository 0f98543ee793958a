"""The critical path: the longest chain of self time in which each part waits for the one before.

A node is cut into segments of self time wherever a node within it starts or ends::

    outer   ├──0──┐          ┌──2──┤       wait 0 → 1 → 2
    inner         └────1─────┘

Nothing nested counts twice that way. A node that outlives its parent (a kernel that runs on) waits
for the segment before its launch, and its parent does not wait for it. The edges of the graph add
more waits. The critical path is the longest path through the segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from pytest_flamegate.graph.graph import ExecutionGraph, Layer, get_node_name


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path, with self time and slack of each node.

    ``steps`` are the segments of the path in order: a node's number and its nanoseconds, which
    sum to ``length_ns``. ``wall_ns`` is from the first start of a node to the last end.
    ``slack_ns`` says how much longer a node may take, all else unchanged, before the path gets
    longer; it is 0 for nodes on the path.
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
    """Return the critical path, from real starts, ends and order.

    Takes linear time in nodes and edges, except for sorting the nodes within each node.
    """
    times = [
        (node.start_ns, node.end_ns)
        for node in graph.nodes
        if node.start_ns is not None and node.end_ns is not None
    ]
    segments = Segments(graph)
    lengths = segments.length_ns
    before, previous, after = _measure_chains(segments)
    through = [sum(parts) for parts in zip(before, lengths, after, strict=True)]
    length_ns = max(through)
    wall_ns = max(end for _, end in times) - min(start for start, _ in times)
    self_ns, through_ns = [0] * len(graph.nodes), [0] * len(graph.nodes)
    for node, own, chain in zip(segments.node, lengths, through, strict=True):
        self_ns[node] += own
        through_ns[node] = max(through_ns[node], chain)
    steps: list[tuple[int, int]] = []
    at = next(each for each in range(len(lengths)) if before[each] + lengths[each] == length_ns)
    while at >= 0:
        if lengths[at]:
            steps.append((segments.node[at], lengths[at]))
        at = previous[at]
    slack_ns = tuple(length_ns - chain for chain in through_ns)
    return CriticalPath(length_ns, wall_ns, tuple(reversed(steps)), tuple(self_ns), slack_ns)


def _measure_chains(segments: Segments) -> tuple[list[int], list[int], list[int]]:
    """Return the longest chain before each segment, its last one (-1: none), and that after it."""
    lengths, waits_for = segments.length_ns, segments.waits_for
    order = list(TopologicalSorter(dict(enumerate(waits_for))).static_order())
    count = len(lengths)
    before, previous, after = [0] * count, [-1] * count, [0] * count
    for segment in order:
        for earlier in waits_for[segment]:
            until = before[earlier] + lengths[earlier]
            if until > before[segment]:
                before[segment], previous[segment] = until, earlier
    for segment in reversed(order):
        rest = lengths[segment] + after[segment]
        for earlier in waits_for[segment]:
            after[earlier] = max(after[earlier], rest)
    return before, previous, after


def sum_path_by_name(graph: ExecutionGraph, path: CriticalPath) -> list[tuple[str, int, float]]:
    """Return name, nanoseconds and share (0 to 1) of the nodes on the path, longest first."""
    spent_ns: Counter[str] = Counter()
    for node, self_ns in path.steps:
        spent_ns[get_node_name(graph.nodes[node])] += self_ns
    return [(name, ns, ns / path.length_ns) for name, ns in spent_ns.most_common()]


# Events at one time in this order: nodes end, nodes without duration start and end, nodes start;
# then the node itself ends and so does its part in nodes that outlive it.
_END, _MOMENT_START, _MOMENT_END, _START, _OUTLIVES = range(5)


class Segments:
    """The segments of a graph's nodes, linked by nesting and by edges.

    ``node``, ``length_ns`` and ``waits_for`` have an entry for each segment, ``first`` and
    ``last`` hold the first and the last segment of each node.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        numbers = range(len(graph.nodes))
        self.node, self.first, self.last = [*numbers], [*numbers], [*numbers]
        self.length_ns = [0] * len(numbers)
        self.waits_for: list[list[int]] = [[] for _ in numbers]
        self._graph = graph
        self._order = graph.sort_as_tree()
        # A layer has no self time, so its times do not count.
        timed = [None if isinstance(node, Layer) else node for node in graph.nodes]
        self._starts = [None if node is None else node.start_ns for node in timed]
        self._ends = [None if node is None else node.end_ns for node in timed]
        self._set_span_ends()
        timed_within = self._group_timed()
        for number in reversed(self._order):
            start, end = self._starts[number], self._ends[number]
            if start is not None and end is not None:
                self._cut(number, start, end, timed_within[number])
            self._link_untimed(number)
        for earlier, later, kind in graph.edges:
            if kind == "Sequence":
                self.waits_for[self.first[later]].append(self.last[earlier])

    def _add(self, node: int) -> int:
        """Add a segment of ``node`` with no length yet, and return its number."""
        self.node.append(node)
        self.length_ns.append(0)
        self.waits_for.append([])
        return len(self.node) - 1

    def _set_span_ends(self) -> None:
        """Find when each node ended; if it has no times, from the nodes within."""
        self._span_ends = [*self._ends]
        for number in reversed(self._order):
            parent, end = self._graph.parents[number], self._span_ends[number]
            if parent is not None and self._ends[parent] is None and end is not None:
                self._span_ends[parent] = max(end, self._span_ends[parent] or 0)

    def _group_timed(self) -> list[list[int]]:
        """Return, for each node with times, the nearest nodes with times within it."""
        nearest: list[int | None] = [None] * len(self._order)
        within: list[list[int]] = [[] for _ in self._order]
        for number in self._order:
            parent = self._graph.parents[number]
            if parent is None:
                continue
            outer = parent if self._starts[parent] is not None else nearest[parent]
            nearest[number] = outer
            if outer is not None and self._starts[number] is not None:
                within[outer].append(number)
        return within

    def _cut(self, outer: int, start: int, end: int, within: Sequence[int]) -> None:
        """Cut ``outer`` where nodes within it start, and where those that do not outlive it end.

        Its self time is the time in which none of them runs.
        """
        lengths, waits_for, last = self.length_ns, self.waits_for, self.last
        segment, running, now, is_awaited = self.first[outer], 0, start, False
        started_after: dict[int, int] = {}
        for at, event, number in self._sort_events(outer, end, within):
            if at > now and not running:
                if is_awaited:
                    # Nodes wait for the segment at its present length.
                    following = self._add(outer)
                    waits_for[following].append(segment)
                    segment, is_awaited = following, False
                lengths[segment] += at - now
            now = at
            if event in (_END, _MOMENT_END):
                following = self._add(outer)
                waits_for[following].append(last[number])
                if started_after[number] != segment:
                    waits_for[following].append(segment)
                segment, is_awaited = following, False
                running -= 1
            elif number != outer:
                waits_for[self.first[number]].append(segment)
                started_after[number], is_awaited = segment, True
                running += event != _OUTLIVES
        last[outer] = segment

    def _sort_events(
        self, outer: int, ended: int, within: Sequence[int]
    ) -> list[tuple[int, int, int]]:
        """Return time, event and node of all that happens within ``outer``; its own end is last."""
        events: list[tuple[int, int, int]] = []
        for number in within:
            start, end = self._starts[number], self._ends[number]
            assert start is not None
            assert end is not None
            if end > ended:
                events.append((min(start, ended), _OUTLIVES, number))
            elif start == end:
                events += (start, _MOMENT_START, number), (start, _MOMENT_END, number)
            else:
                events += (start, _START, number), (end, _END, number)
        events.sort()
        events.append((ended, _OUTLIVES, outer))
        return events

    def _link_untimed(self, outer: int) -> None:
        """Give nodes without times of their own the span of ``outer``."""
        inner: Sequence[int] = self._graph.children[outer]
        if self._starts[outer] is not None:
            inner = [number for number in inner if self._starts[number] is None]
        if not inner:
            return
        limit, waits_for, last = self._span_ends[outer], self.waits_for, self.last
        following = self._add(outer)
        waits_for[following].append(last[outer])
        last[outer] = following
        for number in inner:
            waits_for[self.first[number]].append(self.first[outer])
            ended = self._span_ends[number]
            if ended is None or limit is None or ended <= limit:
                waits_for[following].append(last[number])

"""Calls and graphs for tests."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.graph.graph import (
    Brick,
    ExecutionGraph,
    Kernel,
    Layer,
    Transfer,
)


def call(name: str, start_ns: int, end_ns: int, **more: Any) -> BrickCall:
    return BrickCall(name, start_ns, end_ns, end_ns - start_ns, **more)


def graph_with(nodes: Iterable[Any], edges: Iterable[tuple[int, int, Any]] = ()) -> ExecutionGraph:
    graph = ExecutionGraph()
    for node in nodes:
        graph.add_node(node)
    for edge in edges:
        graph.add_edge(*edge)
    return graph


def every_kind() -> ExecutionGraph:
    """Return a graph with every kind of node and of edge, with times."""
    nodes = [
        Layer(0, 0, 230_000),
        Brick("QkvProjection", 0, 200_000, 4096),
        Kernel("batched_gemv", (32, 1, 1), (256, 1, 1), 4096),
        Transfer("D2H", 512, 210_000, 230_000),
        Brick("Step", 0, 240_000),
        Brick("Prefetch", 1_000, 240_000, lane=1),
        Brick("Sampling", 230_000, 240_000),
    ]
    nested = [(4, 0, "Contains"), (0, 1, "Contains"), (1, 2, "Launches"), (2, 3, "Transfer")]
    waits = [(4, 5, "Launches"), (4, 6, "Calls"), (1, 6, "Sequence"), (3, 6, "Sequence")]
    return graph_with(nodes, [*nested, *waits])


@st.composite
def recorded(draw: st.DrawFn, lanes: int = 1) -> list[BrickCall]:
    """Calls as engines make them: in each thread one after the other, some within others."""
    found: list[BrickCall] = []
    for lane in range(lanes):
        now = draw(st.integers(0, 50))
        open_calls: list[tuple[int, int]] = []
        for _ in range(draw(st.integers(1, 12))):
            now += draw(st.integers(0, 20))
            for _ in range(draw(st.integers(0, len(open_calls)))):
                now = _ended(found, open_calls, now)
            parent = open_calls[-1][0] if open_calls else None
            layer = draw(st.one_of(st.none(), st.integers(0, 2)))
            name = draw(st.sampled_from(["RmsNorm", "Activation", "D2H"]))
            kernel = draw(st.sampled_from(["", "", "gemv", "gemv<<<2,3,4>>>"]))
            open_calls.append((len(found), now))
            found.append(call(name, now, now, layer=layer, parent=parent, lane=lane, kernel=kernel))
            now += draw(st.integers(0, 20))
        while open_calls:
            now = _ended(found, open_calls, now) + draw(st.integers(0, 20))
    return found


def _ended(found: list[BrickCall], open_calls: list[tuple[int, int]], now: int) -> int:
    """End the innermost call at ``now``, with its self time."""
    index, start = open_calls.pop()
    old = found[index]
    within = sum(each.end_ns - each.start_ns for each in found if each.parent == index)
    self_ns = now - start - within
    found[index] = replace(old, start_ns=start, end_ns=now, self_ns=self_ns)
    return now

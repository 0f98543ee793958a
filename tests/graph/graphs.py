"""Calls and graphs for tests."""

from collections.abc import Sequence
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


def every_kind() -> ExecutionGraph:
    """Return a graph with every kind of node and of edge, with times."""
    graph = ExecutionGraph()
    layer = graph.add_node(Layer(0, 0, 230_000))
    brick = graph.add_node(Brick("QkvProjection", 0, 200_000, 4096))
    kernel = graph.add_node(Kernel("batched_gemv", (32, 1, 1), (256, 1, 1), 4096))
    copy = graph.add_node(Transfer("D2H", 512, 210_000, 230_000))
    outer = graph.add_node(Brick("Step", 0, 240_000))
    task = graph.add_node(Brick("Prefetch", 1_000, 240_000, lane=1))
    after = graph.add_node(Brick("Sampling", 230_000, 240_000))
    graph.add_edge(outer, layer, "Contains")
    graph.add_edge(layer, brick, "Contains")
    graph.add_edge(brick, kernel, "Launches")
    graph.add_edge(kernel, copy, "Transfer")
    graph.add_edge(outer, task, "Launches")
    graph.add_edge(outer, after, "Calls")
    graph.add_edge(brick, after, "Sequence")
    graph.add_edge(after, copy, "DependsOn")
    return graph


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


def calls_in_a_row(durations_ns: Sequence[int]) -> list[BrickCall]:
    """Return calls of one layer, each right after the one before."""
    ends = [sum(durations_ns[: place + 1]) for place in range(len(durations_ns))]
    return [
        call(f"Brick{place}", end - took, end, layer=0)
        for place, (took, end) in enumerate(zip(durations_ns, ends, strict=True))
    ]

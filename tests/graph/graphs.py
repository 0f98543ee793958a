"""Calls and graphs for tests."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.graph.graph import ExecutionGraph, build_graph


def call(name: str, start_ns: int, end_ns: int, **more: Any) -> BrickCall:
    return BrickCall(name, start_ns, end_ns, end_ns - start_ns, **more)


def every_kind() -> ExecutionGraph:
    """Return a graph with every kind of node and of edge."""
    kernel = "batched_gemv <<<32,256,1>>> smem=4096B"
    return build_graph(
        [
            call("Step", 0, 240_000),
            call("QkvProjection", 0, 200_000, layer=0, parent=0, elements=4096, kernel=kernel),
            call("D2H", 210_000, 230_000, layer=0, parent=1, bytes=512),
            call("Prefetch", 1_000, 240_000, parent=0, lane=1),
            call("Sampling", 230_000, 240_000, parent=0),
        ]
    )


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

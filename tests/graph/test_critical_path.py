"""The critical path, against sums and chains of calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.graph.critical_path import find_critical_path, sum_path_by_name
from pytest_flamegate.graph.graph import build_graph
from tests.graph.graphs import call, every_kind, recorded

MOMENTS = [call(name, 5, 5, parent=0) for name in "cab"]


@pytest.mark.parametrize(
    ("calls", "steps"),
    [
        ([call("a", 0, 50), call("b", 50, 350, layer=0)], ((0, 50), (2, 300))),
        ([call("b", 0, each, lane=each) for each in (50, 200, 100)], ((2, 200),)),
        # A layer and a kernel within a call count once.
        (
            [call("b", 0, 100), call("c", 20, 80, parent=0, layer=0, kernel="k")],
            ((0, 20), (2, 60), (0, 20)),
        ),
        # A call that outlives its parent waits only for its start.
        (
            [call("b", 0, 30), call("k", 10, 100, parent=0), call("next", 30, 60)],
            ((0, 10), (2, 90)),
        ),
        # Its parent works on beside it.
        (
            [call("outer", 0, 10), call("inner", 2, 12, parent=0, lane=1), call("next", 10, 20)],
            ((0, 2), (0, 8), (1, 10)),
        ),
        (
            [call("outer", 0, 100), call("a", 10, 30, parent=0), call("b", 40, 90, parent=0)],
            ((0, 10), (1, 20), (0, 10), (2, 50), (0, 10)),
        ),
        # Calls without duration are no cycle.
        ([call("outer", 0, 10), *MOMENTS], ((0, 5), (0, 5))),
    ],
)
def test_steps_of_the_path(calls: list[BrickCall], steps: tuple[tuple[int, int], ...]) -> None:
    path = find_critical_path(build_graph(calls))
    wall_ns = max(each.end_ns for each in calls)
    assert (path.steps, path.wall_ns) == (steps, wall_ns)
    assert path.length_ns == sum(own_ns for _, own_ns in steps) == path.share * wall_ns


def test_path_of_every_kind_of_node() -> None:
    path = find_critical_path(every_kind())
    # The other chain is the projection and then the sampling: 210 µs.
    assert (path.steps, path.wall_ns) == (((4, 239_000),), 240_000)


@settings(max_examples=60)
@given(recorded(lanes=3))
def test_path_of_threads_side_by_side_is_all_self_time_of_one(calls: list[BrickCall]) -> None:
    graph = build_graph(calls)
    path = find_critical_path(graph)
    threads = [sum(each.self_ns for each in calls if each.lane == lane) for lane in range(3)]
    assert path.length_ns == max(threads) <= path.wall_ns
    assert sum(own for _, own in path.steps) == path.length_ns
    assert sum(own for _, own, _ in sum_path_by_name(graph, path)) == path.length_ns


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12))
def test_path_is_the_longest_of_all_chains(pieces: list[tuple[int, int]]) -> None:
    """Each piece is a thread and how long its next call takes, with a gap of 1 before it."""
    calls, ends = [], dict.fromkeys(range(4), 0)
    for lane, took in pieces:
        calls.append(call("b", ends[lane] + 1, ends[lane] + 1 + took, lane=lane))
        ends[lane] += 1 + took
    graph = build_graph(calls)
    path = find_critical_path(graph)
    took_ns = [sum(took for each, took in pieces if each == lane) for lane in range(4)]
    assert path.length_ns == max(took_ns)
    assert len({getattr(graph.nodes[node], "lane", None) for node, _ in path.steps}) <= 1


def test_depth_is_not_limited_by_recursion() -> None:
    depth = 20_000
    calls = [
        call("Deep", each, 3 * depth - each, parent=each - 1 if each else None)
        for each in range(depth)
    ]
    assert find_critical_path(build_graph(calls)).length_ns == 3 * depth

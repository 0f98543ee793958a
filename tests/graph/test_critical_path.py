"""The critical path and slack, against sums and against every path that there is."""

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.critical_path import find_critical_path, sum_path_by_name
from pytest_flamegate.graph.graph import Brick, Kernel, Layer
from tests.graph.graphs import call, every_kind, graph_with, recorded

Edges = list[tuple[int, int, Any]]


def test_siblings_in_sequence_add_up() -> None:
    calls = [call("a", 0, 50), call("b", 50, 250), call("c", 250, 350)]
    path = find_critical_path(build_graph([replace(each, layer=0) for each in calls]))
    assert (path.length_ns, path.wall_ns, path.share) == (350, 350, 1.0)
    assert path.steps == ((1, 50), (2, 200), (3, 100))
    assert path.slack_ns == (0, 0, 0, 0)


def test_siblings_side_by_side_do_not_add_up() -> None:
    nodes = [Layer(0), *(Brick(f"b{took}", 0, took, lane=took) for took in (50, 200, 100))]
    path = find_critical_path(graph_with(nodes, [(0, each, "Contains") for each in (1, 2, 3)]))
    assert (path.length_ns, path.steps) == (200, ((2, 200),))
    assert path.slack_ns == (0, 150, 0, 100)


@pytest.mark.parametrize("kernel", [Kernel("k", start_ns=20, end_ns=80), Kernel("k")])
def test_nested_kernel_is_not_counted_twice(kernel: Kernel) -> None:
    path = find_critical_path(graph_with([Brick("b", 0, 100), kernel], [(0, 1, "Launches")]))
    assert path.length_ns == 100
    assert sum(path.self_ns) == 100
    assert path.slack_ns == (0, 0)


def test_kernel_that_outlives_its_brick_waits_only_for_its_launch() -> None:
    nodes = [Brick("b", 0, 30), Kernel("k", start_ns=10, end_ns=100), Brick("next", 30, 60)]
    path = find_critical_path(graph_with(nodes, [(0, 1, "Launches"), (0, 2, "Sequence")]))
    assert path.steps == ((0, 10), (1, 90))
    assert path.slack_ns == (0, 0, 40)


def test_self_time_is_before_between_and_after_nested_calls() -> None:
    calls = [call("outer", 0, 100), call("a", 10, 30, parent=0), call("b", 40, 90, parent=0)]
    path = find_critical_path(build_graph(calls))
    assert path.steps == ((0, 10), (1, 20), (0, 10), (2, 50), (0, 10))
    assert path.self_ns == (30, 20, 50)


def test_calls_without_duration_are_no_cycle() -> None:
    nodes = [Brick("outer", 0, 10), *(Brick(name, 5, 5) for name in "abc")]
    edges: Edges = [*((0, inner, "Calls") for inner in (3, 1, 2))]
    edges += [(1, 2, "Sequence"), (2, 3, "Sequence")]
    assert find_critical_path(graph_with(nodes, edges)).length_ns == 10


def test_every_kind_of_edge_is_waited_for() -> None:
    path = find_critical_path(every_kind())
    assert path.steps == ((5, 239_000),)
    assert path.wall_ns == 240_000
    # The other chain is the brick, its kernel's copy and then the sampling: 200 + 20 + 10 µs.
    assert path.slack_ns == (9_000, 9_000, 9_000, 9_000, 0, 0, 9_000)


@settings(max_examples=60)
@given(recorded(lanes=3))
def test_path_of_threads_side_by_side_is_all_self_time_of_one(calls: list[BrickCall]) -> None:
    graph = build_graph(calls)
    path = find_critical_path(graph)
    threads = [sum(each.self_ns for each in calls if each.lane == lane) for lane in range(3)]
    assert path.length_ns == max(threads) <= path.wall_ns
    assert sum(path.self_ns) == sum(threads)
    assert sum(own for _, own in path.steps) == path.length_ns
    assert sum(own for _, own, _ in sum_path_by_name(graph, path)) == path.length_ns


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], set[tuple[int, int]]]:
    """How long nodes take, and which waits for which: the later one for the earlier."""
    durations = draw(st.lists(st.integers(0, 9), min_size=1, max_size=7))
    pairs = [(a, b) for b in range(len(durations)) for a in range(b)]
    return durations, draw(st.sets(st.sampled_from(pairs))) if pairs else set()


@settings(max_examples=60)
@given(plans())
def test_path_is_the_longest_of_all_chains(plan: tuple[list[int], set[tuple[int, int]]]) -> None:
    durations, waits = plan
    ends: list[int] = []
    for number, took in enumerate(durations):
        ends.append(took + max([ends[a] for a, b in waits if b == number], default=0))
    nodes = [
        Brick(f"n{number}", end - took, end)
        for number, (took, end) in enumerate(zip(durations, ends, strict=True))
    ]
    edges: Edges = [(a, b, "Sequence") for a, b in sorted(waits)]
    path = find_critical_path(graph_with(nodes, edges))
    lengths = {
        chain: sum(durations[each] for each in chain)
        for size in range(1, len(durations) + 1)
        for chain in combinations(range(len(durations)), size)
        if all(pair in waits for pair in pairwise(chain))
    }
    assert path.length_ns == max(lengths.values()) == max(ends)
    for number in range(len(durations)):
        through = max(took for chain, took in lengths.items() if number in chain)
        assert path.slack_ns[number] == path.length_ns - through
    assert all((a, b) in waits for (a, _), (b, _) in pairwise(path.steps)) or 0 in durations


def test_depth_is_not_limited_by_recursion() -> None:
    depth = 20_000
    nodes = [Brick("Deep", each, 3 * depth - each) for each in range(depth)]
    graph = graph_with(nodes, ((each, each + 1, "Calls") for each in range(depth - 1)))
    assert find_critical_path(graph).length_ns == 3 * depth

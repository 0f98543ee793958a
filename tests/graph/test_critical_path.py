"""The critical path, against sums and chains of calls."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.graph.critical_path import find_critical_path, sum_path_by_name
from pytest_flamegate.graph.graph import build_graph
from tests.graph.graphs import call, every_kind, recorded


def test_siblings_in_sequence_add_up() -> None:
    calls = [call("a", 0, 50), call("b", 50, 250), call("c", 250, 350)]
    path = find_critical_path(build_graph([replace(each, layer=0) for each in calls]))
    assert (path.length_ns, path.wall_ns, path.share) == (350, 350, 1.0)
    assert path.steps == ((1, 50), (2, 200), (3, 100))


def test_siblings_side_by_side_do_not_add_up() -> None:
    calls = [call(f"b{took}", 0, took, lane=took, layer=0) for took in (50, 200, 100)]
    path = find_critical_path(build_graph(calls))
    assert (path.length_ns, path.steps) == (200, ((3, 200),))


def test_layer_and_kernel_within_a_call_are_not_counted_twice() -> None:
    calls = [call("b", 0, 100), call("c", 20, 80, parent=0, layer=0, kernel="k")]
    path = find_critical_path(build_graph(calls))
    assert (path.length_ns, path.wall_ns) == (100, 100)
    assert path.steps == ((0, 20), (2, 60), (0, 20))


def test_call_that_outlives_its_parent_waits_only_for_its_start() -> None:
    calls = [call("b", 0, 30), call("k", 10, 100, parent=0), call("next", 30, 60)]
    assert find_critical_path(build_graph(calls)).steps == ((0, 10), (2, 90))


def test_self_time_is_before_between_and_after_nested_calls() -> None:
    calls = [call("outer", 0, 100), call("a", 10, 30, parent=0), call("b", 40, 90, parent=0)]
    path = find_critical_path(build_graph(calls))
    assert path.steps == ((0, 10), (1, 20), (0, 10), (2, 50), (0, 10))


def test_calls_without_duration_are_no_cycle() -> None:
    moments = [call(name, 5, 5, parent=0) for name in "cab"]
    assert find_critical_path(build_graph([call("outer", 0, 10), *moments])).length_ns == 10


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

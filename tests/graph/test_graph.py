"""The graph of recorded calls."""

import pytest
from hypothesis import given, settings

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.graph.graph import Brick, Kernel, Layer, Transfer, build_graph, parse_kernel
from tests.graph.graphs import call, recorded


def test_layer_brick_kernel_and_copy() -> None:
    graph = build_graph(
        [
            call("Embedding", 0, 5),
            call("QkvProjection", 10, 30, layer=0, elements=8, kernel="gemv<<<2,64,1>>> smem=16B"),
            call("H2D", 12, 14, layer=0, parent=1, bytes=32),
            call("RmsNorm", 30, 40, layer=0),
            call("LmHead", 41, 50),
        ]
    )
    assert list(graph.nodes) == [
        Brick("Embedding", 0, 5),
        Layer(0, 10, 40),
        Brick("QkvProjection", 10, 30, 8),
        Kernel("gemv", (2, 1, 1), (64, 1, 1), 16),
        Brick("RmsNorm", 30, 40),
        Brick("LmHead", 41, 50),
        Transfer("H2D", 32, 12, 14),
    ]
    assert list(graph.edges) == [
        (1, 2, "Contains"),
        (2, 3, "Launches"),
        (1, 4, "Contains"),
        (0, 2, "Sequence"),
        (2, 4, "Sequence"),
        (4, 5, "Sequence"),
        (2, 6, "Transfer"),
    ]


def test_layer_spans_its_calls_and_is_nested_in_their_caller() -> None:
    graph = build_graph(
        [
            call("Forward", 0, 100),
            call("RmsNorm", 60, 70, layer=1, parent=0),
            call("Attention", 10, 50, layer=1, parent=0),
            call("Softmax", 20, 30, layer=1, parent=2),
            call("Score", 30, 40, parent=2),
        ]
    )
    layers = [node for node in graph.nodes if isinstance(node, Layer)]
    assert layers == [Layer(1, 10, 70)]
    names = {number: getattr(node, "name", "Layer") for number, node in enumerate(graph.nodes)}
    assert {(names[a], names[b], kind) for a, b, kind in graph.edges} == {
        ("Forward", "Layer", "Contains"),
        ("Layer", "Attention", "Contains"),
        ("Layer", "RmsNorm", "Contains"),
        ("Attention", "Softmax", "Calls"),
        ("Attention", "Score", "Calls"),
        ("Attention", "RmsNorm", "Sequence"),
        ("Softmax", "Score", "Sequence"),
    }


def test_only_calls_of_one_thread_that_do_not_overlap_are_in_sequence() -> None:
    graph = build_graph(
        [call("a", 0, 10), call("b", 5, 20, lane=1), call("c", 12, 30), call("d", 15, 16)]
    )
    assert [edge[:2] for edge in graph.edges] == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("gemv", Kernel("gemv")),
        ("gemv<<<32,256,2>>>", Kernel("gemv", (32, 1, 1), (256, 2, 1))),
        ("a b  <<<(1,2,3),(4,5,6)>>> smem=7B", Kernel("a b", (1, 2, 3), (4, 5, 6), 7)),
        ("gemv<<<0,1,1>>>", Kernel("gemv<<<0,1,1>>>")),
        ("<<<1,1,1>>>", Kernel("<<<1,1,1>>>")),
    ],
)
def test_kernel_and_launch_are_parsed(text: str, kernel: Kernel) -> None:
    assert parse_kernel(text) == kernel


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ([], "E_NO_BRICKS"),
        ([call("a", 0, 1, parent=5)], "E_BRICK_CALLS"),
        ([call("a", 0, 1, parent=-1)], "E_BRICK_CALLS"),
        ([call("a", 5, 4)], "E_BRICK_CALLS"),
        ([call("a", 5, 9), call("b", 4, 6, parent=0)], "E_BRICK_CALLS"),
        ([call("a", 0, 1), call("b", 0, 1, parent=2), call("c", 0, 1, parent=1)], "E_BRICK_CALLS"),
    ],
)
def test_contradicting_calls_raise(calls: list[BrickCall], code: str) -> None:
    with pytest.raises(UndecidedError, match=code):
        build_graph(calls)


@settings(max_examples=40)
@given(recorded(lanes=3))
def test_each_call_is_one_node_nested_where_it_ran(calls: list[BrickCall]) -> None:
    graph = build_graph(calls)
    found = [node for node in graph.nodes if isinstance(node, (Brick, Transfer))]
    times = sorted((getattr(node, "name", "D2H"), node.start_ns, node.end_ns) for node in found)
    assert times == sorted((each.name, each.start_ns, each.end_ns) for each in calls)
    kernels = [node for node in graph.nodes if isinstance(node, Kernel)]
    assert len(kernels) == sum(bool(each.kernel) for each in calls)
    for source, target, kind in graph.edges:
        outer, inner = graph.nodes[source], graph.nodes[target]
        if isinstance(outer, Kernel) or isinstance(inner, Kernel):
            continue
        if kind == "Sequence":
            assert outer.end_ns <= inner.start_ns
        else:
            assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def test_parsing_a_long_name_takes_linear_time() -> None:
    """A pattern for the whole text would try each of these spaces, for hours."""
    spaces = " " * 1_000_000
    assert parse_kernel(f"{spaces}x").grid is None
    assert parse_kernel(f"k{spaces}<<<1,2,3>>>").name == "k"
    assert parse_kernel("a<<<b<<<1,2,3>>>").name == "a<<<b"

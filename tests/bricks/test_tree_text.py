"""The tree, byte for byte."""

from __future__ import annotations

import pytest

from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Kernel, Layer, build_graph
from pytest_flamegate.graph.text import draw_tree, format_node
from tests.bricks.graphs import attention, call

TREE = """\
Layer 0
└── QkvProjection  200.0µs (4096 elem)
    └── batched_gemv  <<<32,256,1>>> smem=4096B"""
ALL = """\
step  240.0µs engine.py:7
├── Layer 0
│   └── QkvProjection  200.0µs (4096 elem)
│       └── batched_gemv  <<<32,256,1>>> smem=4096B
│           └── D2H  20.0µs 512B
├── prefetch  239.0µs
└── Sampling  10.0µs"""


def test_the_tree_of_recorded_calls() -> None:
    kernel = "batched_gemv <<<32,256,1>>> smem=4096B"
    calls = [call("QkvProjection", 0, 200_000, layer=0, elements=4096, kernel=kernel)]
    assert draw_tree(build_graph(calls)).encode() == TREE.encode()


def test_the_tree_of_every_kind() -> None:
    assert draw_tree(attention()).encode() == ALL.encode()
    assert draw_tree(ExecutionGraph()) == ""


@pytest.mark.parametrize(
    ("kernel", "line"),
    [
        (Kernel("k"), "k"),
        (Kernel("k", (32, 1, 1), (16, 8, 1)), "k  <<<32,16,8>>> smem=0B"),
        (Kernel("k", (32, 2, 1), (16, 8, 1)), "k  <<<(32,2,1),(16,8,1)>>> smem=0B"),
        (Kernel("k", (32, 1, 1), (16, 8, 4), 9), "k  <<<(32,1,1),(16,8,4)>>> smem=9B"),
        (Kernel("k", (1, 1, 3), (1, 1, 1)), "k  <<<(1,1,3),(1,1,1)>>> smem=0B"),
        (Kernel("k", start_ns=0, end_ns=1500), "k  1.5µs"),
    ],
)
def test_no_number_of_a_launch_is_lost(kernel: Kernel, line: str) -> None:
    assert format_node(kernel) == line


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb\t", "a\\x0ab\\x09"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("\u3164", "\\u3164"),
        ("Größe", "Größe"),
        ("x" * 300, "x" * 200 + "… (300 characters)"),
    ],
)
def test_a_name_steers_no_terminal(name: str, shown: str) -> None:
    assert format_node(Brick(name)) == shown


def test_a_tree_too_deep_for_a_screen_says_what_it_leaves_out() -> None:
    graph = ExecutionGraph()
    graph.add_node(Layer(0))
    for depth in range(1, 50_000):
        graph.add_node(Brick("b"))
        graph.add_edge(depth - 1, depth, "Calls")
    lines = draw_tree(graph).splitlines()
    assert len(lines) == 66
    assert lines[-1].strip() == f"└── … {50_000 - 65:,} deeper"

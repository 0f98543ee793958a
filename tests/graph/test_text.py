"""The graph as a tree and as DOT, byte for byte, and the sentence on its critical path."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Kernel, Layer
from pytest_flamegate.graph.text import draw_dot, draw_tree, format_node, summarize_token
from tests.graph.graphs import call, every_kind
from tests.tools import require

_SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    'end"]; x [label="',
    "back\\slash\\",
    "line\nbreak\\n",
    "a&lt;b&amp;",
    "<b>bold</b>",
    "\x1b]0;title\x07",
    "\\N\\G",
    "größer → 矩陣",
)


def render_svg(graph: ExecutionGraph) -> ET.Element:
    program = shutil.which("dot")
    require(program is not None, "Graphviz's dot is not installed")
    assert program is not None
    ended = subprocess.run(
        [program, "-Tsvg"],
        input=draw_dot(graph).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ET.fromstring(ended.stdout)


def texts(picture: ET.Element, kind: str) -> list[list[str]]:
    groups = [each for each in picture.iter(f"{_SVG}g") if each.get("class") == kind]
    return [[text.text or "" for text in group.iter(f"{_SVG}text")] for group in groups]


def test_graphviz_draws_every_node_and_edge() -> None:
    graph = every_kind()
    picture = render_svg(graph)
    assert sorted(texts(picture, "node")) == [
        ["D2H", "20.0µs 512B"],
        ["Layer 0"],
        ["Prefetch", "239.0µs"],
        ["QkvProjection", "200.0µs (4096 elem)"],
        ["Sampling", "10.0µs"],
        ["Step", "240.0µs"],
        ["batched_gemv", "grid=32,1,1 block=256,1,1", "smem=4096B"],
    ]
    assert len(texts(picture, "edge")) == len(graph.edges)
    fills = [each.get("fill") for each in picture.iter(f"{_SVG}polygon")]
    assert {"lightblue", "lightgreen", "lightyellow", "lightsalmon"} <= set(fills)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_name_is_only_a_label(name: str) -> None:
    graph = ExecutionGraph()
    graph.add_node(Brick(name))
    shown = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in name)
    [[label]] = texts(render_svg(graph), "node")
    assert label.replace("\xa0", " ") == shown


def test_dot_of_every_kind() -> None:
    assert draw_dot(every_kind()).splitlines() == [
        "digraph execution {",
        "  rankdir=TB;",
        "  node [shape=box, style=filled];",
        '  n0 [label="Layer 0", fillcolor=lightblue];',
        '  n1 [label="QkvProjection\\n200.0µs (4096 elem)", fillcolor=lightgreen];',
        '  n2 [label="batched_gemv\\ngrid=32,1,1 block=256,1,1\\nsmem=4096B", '
        "fillcolor=lightyellow];",
        '  n3 [label="D2H\\n20.0µs 512B", fillcolor=lightsalmon];',
        '  n4 [label="Step\\n240.0µs", fillcolor=lightgreen];',
        '  n5 [label="Prefetch\\n239.0µs", fillcolor=lightgreen];',
        '  n6 [label="Sampling\\n10.0µs", fillcolor=lightgreen];',
        "  n4 -> n0 [style=dashed];",
        "  n0 -> n1 [style=dashed];",
        "  n1 -> n2 [style=bold, color=red];",
        "  n2 -> n3 [style=bold, color=orange];",
        "  n4 -> n5 [style=bold, color=red];",
        "  n4 -> n6 [style=solid];",
        "  n1 -> n6 [style=dotted];",
        "  n6 -> n3 [color=blue];",
        "}",
    ]


def test_dot_shows_all_of_a_launch() -> None:
    graph = ExecutionGraph()
    graph.add_node(Kernel("k", (1, 2, 3), (4, 5, 6), 7, 0, 1500))
    assert "k\\ngrid=1,2,3 block=4,5,6\\nsmem=7B\\n1.5µs" in draw_dot(graph)


def test_sentence_names_the_longest_on_the_path() -> None:
    found = summarize_token([call("a", 0, 3000), call("b", 3000, 4000), call("a", 5000, 6000)])
    assert found.tree == ("a  3.0µs", "b  1.0µs", "a  1.0µs")
    assert found.critical_path == "critical path: 5 of 6 µs, of which a 80 %, b 20 %"


def test_sentence_counts_names_beyond_four() -> None:
    found = summarize_token(
        [call(name, 1000 * n, 1000 * n + 1000) for n, name in enumerate("abcdef")]
    )
    assert found.critical_path.endswith("d 17 % and 2 more")


TREE = """\
Layer 0
└── QkvProjection  200.0µs (4096 elem)
    └── batched_gemv  <<<32,256,1>>> smem=4096B"""
ALL = """\
Step  240.0µs
├── Layer 0
│   └── QkvProjection  200.0µs (4096 elem)
│       └── batched_gemv  <<<32,256,1>>> smem=4096B
│           └── D2H  20.0µs 512B
├── Prefetch  239.0µs
└── Sampling  10.0µs"""


def test_tree_of_recorded_calls() -> None:
    kernel = "batched_gemv <<<32,256,1>>> smem=4096B"
    calls = [call("QkvProjection", 0, 200_000, layer=0, elements=4096, kernel=kernel)]
    assert draw_tree(build_graph(calls)).encode() == TREE.encode()


def test_tree_of_every_kind() -> None:
    assert draw_tree(every_kind()).encode() == ALL.encode()
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
def test_tree_loses_no_number_of_a_launch(kernel: Kernel, line: str) -> None:
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
def test_name_cannot_steer_a_terminal(name: str, shown: str) -> None:
    assert format_node(Brick(name)) == shown


def test_deep_tree_counts_what_it_leaves_out() -> None:
    graph = ExecutionGraph()
    graph.add_node(Layer(0))
    for depth in range(1, 5_000):
        graph.add_node(Brick("b"))
        graph.add_edge(depth - 1, depth, "Calls")
    lines = draw_tree(graph).splitlines()
    assert len(lines) == 66
    assert lines[-1].strip() == f"└── … {5_000 - 65:,} deeper"

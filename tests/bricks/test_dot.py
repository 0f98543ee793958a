"""DOT, as Graphviz itself reads it."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Kernel
from pytest_flamegate.graph.text import draw_dot
from tests.bricks.graphs import attention
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


def rendered(graph: ExecutionGraph) -> ET.Element:
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
    graph = attention()
    picture = rendered(graph)
    assert sorted(texts(picture, "node")) == [
        ["D2H", "20.0µs 512B"],
        ["Layer 0"],
        ["QkvProjection", "200.0µs (4096 elem)"],
        ["Sampling", "10.0µs"],
        ["batched_gemv", "grid=32,1,1 block=256,1,1", "smem=4096B"],
        ["prefetch", "239.0µs"],
        ["step", "240.0µs engine.py:7"],
    ]
    assert len(texts(picture, "edge")) == len(graph.edges)
    fills = [each.get("fill") for each in picture.iter(f"{_SVG}polygon")]
    for fill in ("lightblue", "lightgreen", "lightyellow", "lightsalmon", "lightcyan"):
        assert fill in fills
    assert {"lightgray", "lightgrey", "#d3d3d3"} & set(fills)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_a_label_and_nothing_else(name: str) -> None:
    graph = ExecutionGraph()
    graph.add_node(Brick(name))
    shown = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in name)
    [[told]] = texts(rendered(graph), "node")
    assert told.replace("\xa0", " ") == shown


def test_the_text() -> None:
    assert draw_dot(attention()).splitlines() == [
        "digraph execution {",
        "  rankdir=TB;",
        "  node [shape=box, style=filled];",
        '  n0 [label="Layer 0", fillcolor=lightblue];',
        '  n1 [label="QkvProjection\\n200.0µs (4096 elem)", fillcolor=lightgreen];',
        '  n2 [label="batched_gemv\\ngrid=32,1,1 block=256,1,1\\nsmem=4096B", '
        "fillcolor=lightyellow];",
        '  n3 [label="D2H\\n20.0µs 512B", fillcolor=lightsalmon];',
        '  n4 [label="step\\n240.0µs engine.py:7", fillcolor=lightgray];',
        '  n5 [label="prefetch\\n239.0µs", fillcolor=lightcyan];',
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


def test_all_of_a_launch_is_told() -> None:
    graph = ExecutionGraph()
    graph.add_node(Kernel("k", (1, 2, 3), (4, 5, 6), 7, 0xCBF29CE484222325, 0, 1500))
    assert "k\\ngrid=1,2,3 block=4,5,6\\nsmem=7B\\nsource cbf29ce484222325\\n1.5µs" in draw_dot(
        graph
    )

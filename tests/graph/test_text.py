"""The graph as a tree, byte for byte, as DOT, and the sentence on its critical path."""

import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from pytest_flamegate.graph.graph import Brick, ExecutionGraph, Kernel, build_graph, to_document
from pytest_flamegate.graph.text import draw_dot, draw_tree, format_node, summarize_token
from tests.graph.graphs import call, every_kind
from tests.tools import require


def test_sentence_names_the_longest_on_the_path() -> None:
    found = summarize_token([call("a", 0, 3000), call("b", 3000, 4000), call("a", 5000, 6000)])
    assert found == (
        ("a  3.0µs", "b  1.0µs", "a  1.0µs"),
        "critical path: 5 of 6 µs, of which a 80 %, b 20 %",
    )
    six = [call(name, 1000 * n, 1000 * n + 1000) for n, name in enumerate("abcdef")]
    assert summarize_token(six)[1].endswith("d 17 % and 2 more")


ALL = """\
Step  240.0µs
├── Layer 0
│   └── QkvProjection  200.0µs (4096 elem)
│       ├── batched_gemv  <<<32,256,1>>> smem=4096B
│       └── D2H  20.0µs 512B
├── Prefetch  239.0µs
└── Sampling  10.0µs"""


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
    ],
)
def test_tree_loses_no_number_of_a_launch(kernel: Kernel, line: str) -> None:
    assert format_node(kernel) == line


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("Größe", "Größe"),
        ("x" * 300, "x" * 191 + "~0d4e2ca9"),
    ],
)
def test_name_cannot_steer_a_terminal(name: str, shown: str) -> None:
    assert format_node(Brick(name, 0, 100)) == f"{shown}  0.1µs"


def test_document_of_every_kind_leaves_defaults_out() -> None:
    document = to_document(every_kind())
    shape = {"grid": (32, 1, 1), "block": (256, 1, 1), "shared_memory_bytes": 4096}
    assert document["nodes"][3] == {"kind": "Kernel", "name": "batched_gemv", **shape}
    times = {"start_ns": 230_000, "end_ns": 240_000}
    assert document["nodes"][5] == {"kind": "Brick", "name": "Sampling", **times}
    assert (0, 1, "Contains") in document["edges"]


def test_deep_tree_counts_what_it_leaves_out() -> None:
    deep = [call("b", 0, 1, parent=each - 1 if each else None) for each in range(5_000)]
    lines = draw_tree(build_graph(deep)).splitlines()
    assert len(lines) == 66
    assert lines[-1].strip() == f"└── … {5_000 - 65:,} deeper"


_GROUP, _TEXT = "{http://www.w3.org/2000/svg}g", "{http://www.w3.org/2000/svg}text"
HOSTILE = (
    *('end"]; x [label="', "back\\slash\\", "\\N\\G", "line\nbreak", "a&lt;b&amp;"),
    *("<b>bold</b>", "\x1b]0;title\x07"),
)


def labels(graph: ExecutionGraph, kind: str) -> list[list[str]]:
    """Return the texts of each node or edge in the picture that Graphviz draws."""
    program = shutil.which("dot")
    require(program is not None, "Graphviz's dot is not installed")
    drawn = draw_dot(graph).encode()
    ended = subprocess.run([str(program), "-Tsvg"], input=drawn, capture_output=True, check=True)
    assert ended.stderr == b""
    groups = ET.fromstring(ended.stdout).iter(_GROUP)
    found = [group for group in groups if group.get("class") == kind]
    return [[text.text or "" for text in group.iter(_TEXT)] for group in found]


def test_graphviz_draws_every_node_and_edge() -> None:
    graph = every_kind()
    assert sorted(labels(graph, "node")) == [
        ["D2H", "20.0µs 512B"],
        ["Layer 0"],
        ["Prefetch", "239.0µs"],
        ["QkvProjection", "200.0µs (4096 elem)"],
        ["Sampling", "10.0µs"],
        ["Step", "240.0µs"],
        ["batched_gemv", "<<<32,256,1>>> smem=4096B"],
    ]
    assert len(labels(graph, "edge")) == len(graph.edges)
    found = labels(build_graph([call(name, 0, 100) for name in HOSTILE]), "node")
    shown = ["  ".join(label).replace("\xa0", " ") for label in found]
    assert shown == [format_node(Brick(name, 0, 100)) for name in HOSTILE]

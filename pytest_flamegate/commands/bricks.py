"""``flamegate bricks PATH``: an engine's bricks as an execution graph, or a table of sums."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common

if TYPE_CHECKING:
    from pytest_flamegate.graph.graph import ExecutionGraph


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "bricks",
        help="show an engine's bricks: tree, critical path, graph, table",
        description="Reads the bricks of the last generated token (a run's directory, its "
        "bricks.json, a graph that --json wrote, or another profiler's trace) and shows layers, "
        "bricks, kernels and copies as a tree, with the critical path and its share of the wall "
        "time; with --table the sum of each brick.",
    )
    parser.add_argument("path", type=Path, metavar="PATH")
    shape = parser.add_mutually_exclusive_group()
    for name, words in (
        ("tree", "the tree alone"),
        ("dot", "the graph for Graphviz: pipe it to dot -Tsvg"),
        ("json", "the graph as JSON, which this command reads again"),
        ("table", "the sum of each brick over all calls, also of traces that hold only sums"),
    ):
        shape.add_argument(f"--{name}", dest="shape", action="store_const", const=name, help=words)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Show the graph."""
    from pytest_flamegate.receipt import store
    from pytest_flamegate.run.open import open_graph

    if parsed.shape == "table":
        text = _sums(parsed.path)
    else:
        text = _text(open_graph(parsed.path), parsed.shape)
    if parsed.output is None:
        common.print_text(text)
    else:
        store.write_atomic(parsed.output, f"{text}\n".encode())
        common.print_text(str(parsed.output))
    return 0


def _text(graph: ExecutionGraph, shape: str | None) -> str:
    from pytest_flamegate.core.json import encode_json
    from pytest_flamegate.graph.critical_path import find_critical_path
    from pytest_flamegate.graph.document import to_document
    from pytest_flamegate.graph.text import draw_dot, draw_tree
    from pytest_flamegate.report.bricks import graph_text

    if shape == "tree":
        return draw_tree(graph)
    if shape == "dot":
        return draw_dot(graph)
    if shape == "json":
        return encode_json(to_document(graph)).decode().removesuffix("\n")
    return graph_text(graph, find_critical_path(graph))


def _sums(path: Path) -> str:
    from pytest_flamegate.report.bricks import sums_text
    from pytest_flamegate.run.open import open_sums

    found = open_sums(path)
    return sums_text(
        found.name,
        found.table,
        notes=found.notes,
        kernels=found.kernels,
        medians_us=found.medians_us,
        width=common.terminal_width(),
    )

"""What do bricks and traces add up to? The execution graph of an engine and its critical path.

A graph of layers, bricks, kernels and copies is built from recorded calls (``build_graph``) or
node by node (``ExecutionGraph``), drawn as a tree or as DOT, written as a document, and measured
along its critical path. Other files of this room: tables of bricks, rooflines, traces of other
profilers, tiles and tensors.
"""

from __future__ import annotations

from pytest_flamegate.graph.calls import build_graph, parse_kernel
from pytest_flamegate.graph.critical_path import CriticalPath, find_critical_path
from pytest_flamegate.graph.document import from_document, is_document, to_document
from pytest_flamegate.graph.graph import (
    Brick,
    Edge,
    EdgeKind,
    ExecutionGraph,
    Kernel,
    Layer,
    Node,
    Transfer,
)
from pytest_flamegate.graph.text import draw_dot, draw_tree

__all__ = [
    "Brick",
    "CriticalPath",
    "Edge",
    "EdgeKind",
    "ExecutionGraph",
    "Kernel",
    "Layer",
    "Node",
    "Transfer",
    "build_graph",
    "draw_dot",
    "draw_tree",
    "find_critical_path",
    "from_document",
    "is_document",
    "parse_kernel",
    "to_document",
]

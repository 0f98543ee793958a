"""The execution graph of an engine: what ran within what, after what, and on the longest way.

Layer → brick → kernel → transfer, from recorded calls (``graph_of``) or put together node by
node (``ExecutionGraph``); shown as a tree or as DOT, kept as a document, and measured along its
critical path.
"""

from __future__ import annotations

from pytest_flamegate.graph.critical_path import CriticalPath, find_critical_path
from pytest_flamegate.graph.document import from_document, is_document, to_document
from pytest_flamegate.graph.graph import (
    AsyncTask,
    Brick,
    Edge,
    EdgeKind,
    ExecutionGraph,
    Function,
    Kernel,
    Layer,
    Node,
    SourceRegistry,
    Transfer,
    build_graph,
    parse_kernel,
)
from pytest_flamegate.graph.text import draw_dot, draw_tree

__all__ = [
    "AsyncTask",
    "Brick",
    "CriticalPath",
    "Edge",
    "EdgeKind",
    "ExecutionGraph",
    "Function",
    "Kernel",
    "Layer",
    "Node",
    "SourceRegistry",
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

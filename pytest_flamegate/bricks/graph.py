"""The execution graph of an engine: what ran within what, after what, and on the longest way.

Layer → brick → kernel → transfer, from recorded calls (``graph_of``) or put together node by
node (``ExecutionGraph``); shown as a tree or as DOT, kept as a document, and measured along its
critical path.
"""

from pytest_flamegate.bricks.critical_path import CriticalPath, critical_path
from pytest_flamegate.bricks.dot import dot
from pytest_flamegate.bricks.execution_graph import ExecutionGraph
from pytest_flamegate.bricks.graph_build import graph_of, kernel_of
from pytest_flamegate.bricks.graph_document import from_document, is_document, to_document
from pytest_flamegate.bricks.graph_nodes import (
    AsyncTask,
    Brick,
    Edge,
    EdgeKind,
    Function,
    Kernel,
    Layer,
    Node,
    Transfer,
)
from pytest_flamegate.bricks.source_registry import SourceRegistry, fnv1a_64
from pytest_flamegate.bricks.tree_text import ascii_tree

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
    "ascii_tree",
    "critical_path",
    "dot",
    "fnv1a_64",
    "from_document",
    "graph_of",
    "is_document",
    "kernel_of",
    "to_document",
]

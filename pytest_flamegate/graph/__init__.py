"""The execution graph of an engine: what ran within what, after what, and on the longest way.

Layer → brick → kernel → transfer, from recorded calls (``graph_of``) or put together node by
node (``ExecutionGraph``); shown as a tree or as DOT, kept as a document, and measured along its
critical path.
"""

from __future__ import annotations

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
    "from_document",
    "graph_of",
    "is_document",
    "kernel_of",
    "to_document",
]

"""The execution graph in Graphviz's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.graph_nodes import Kernel
from pytest_flamegate.bricks.labels import label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.execution_graph import ExecutionGraph
    from pytest_flamegate.bricks.graph_nodes import EdgeKind, Node

_FILLS: Mapping[str, str] = {
    "Layer": "lightblue",
    "Brick": "lightgreen",
    "Kernel": "lightyellow",
    "Function": "lightgray",
    "Transfer": "lightsalmon",
    "AsyncTask": "lightcyan",
}
_STYLES: Mapping[EdgeKind, str] = {
    "Calls": "style=solid",
    "Contains": "style=dashed",
    "Launches": "style=bold, color=red",
    "Sequence": "style=dotted",
    "DependsOn": "color=blue",
    "Transfer": "style=bold, color=orange",
}
# A backslash begins an escape of DOT, an ampersand an entity of HTML.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def dot(graph: ExecutionGraph) -> str:
    """Return the graph as DOT: a box for each node, filled by its kind, an arrow for each edge."""
    lines = ["digraph execution {", "  rankdir=TB;", "  node [shape=box, style=filled];"]
    for number, node in enumerate(graph.nodes):
        fill = _FILLS[type(node).__name__]
        lines.append(f'  n{number} [label="{_label(node)}", fillcolor={fill}];')
    lines += [
        f"  n{source} -> n{target} [{_STYLES[kind]}];" for source, target, kind in graph.edges
    ]
    return "\n".join([*lines, "}"])


def _label(node: Node) -> str:
    told = label(node)
    lines = [told.name, " ".join(filter(None, (told.time, told.more)))]
    if isinstance(node, Kernel):
        lines[1:1] = _launch(node)
    return "\\n".join(line.translate(_ESCAPES) for line in lines if line)


def _launch(kernel: Kernel) -> list[str]:
    lines = []
    if kernel.grid is not None and kernel.block is not None:
        grid, block = (",".join(map(str, each)) for each in (kernel.grid, kernel.block))
        lines.append(f"grid={grid} block={block}")
    if lines or kernel.shared_memory_bytes:
        lines.append(f"smem={kernel.shared_memory_bytes}B")
    if kernel.source_hash is not None:
        lines.append(f"source {kernel.source_hash:016x}")
    return lines

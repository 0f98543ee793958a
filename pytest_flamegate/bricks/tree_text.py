"""The execution graph as a tree of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.graph_nodes import Kernel
from pytest_flamegate.bricks.labels import label

if TYPE_CHECKING:
    from pytest_flamegate.bricks.execution_graph import ExecutionGraph
    from pytest_flamegate.bricks.graph_nodes import Node

MAX_DEPTH = 64
"""Levels that are drawn; how many nodes stand deeper is told."""


def ascii_tree(graph: ExecutionGraph) -> str:
    """Return the tree, a line for each node, without a newline at its end; "" for no node.

    Raises ``UndecidedError`` ``E_GRAPH_CYCLE`` where nodes stand in themselves.
    """
    order = graph.outside_in()
    beneath = [0] * len(order)
    for number in reversed(order):
        parent = graph.parent(number)
        if parent is not None:
            beneath[parent] += beneath[number] + 1
    lines: list[str] = []
    roots = [number for number in order if graph.parent(number) is None]
    left = [(number, 0, "", "") for number in reversed(roots)]
    while left:
        number, depth, branch, indent = left.pop()
        lines.append(branch + tree_line(graph.nodes[number]))
        children = graph.children[number]
        if depth == MAX_DEPTH and children:
            lines.append(f"{indent}└── … {beneath[number]:,} deeper")
            continue
        last = len(children) - 1
        left.extend(
            (children[place], depth + 1, indent + "└── ", indent + "    ")
            if place == last
            else (children[place], depth + 1, indent + "├── ", indent + "│   ")
            for place in range(last, -1, -1)
        )
    return "\n".join(lines)


def tree_line(node: Node) -> str:
    """Return the line of one node, without its branch."""
    told = label(node)
    if isinstance(node, Kernel):
        shape = _launch(node)
        return "  ".join(filter(None, (told.name, shape, told.time)))
    words = " ".join(filter(None, (told.time, told.more)))
    return f"{told.name}  {words}" if words else told.name


def _launch(kernel: Kernel) -> str:
    """Return grid and block, in full where the short form would lose one of the six numbers."""
    if kernel.grid is None or kernel.block is None:
        return f"smem={kernel.shared_memory_bytes}B" if kernel.shared_memory_bytes else ""
    (x, *others), (block_x, block_y, block_z) = kernel.grid, kernel.block
    if (*others, block_z) == (1, 1, 1):
        shape = f"{x},{block_x},{block_y}"
    else:
        shape = ",".join(f"({','.join(map(str, each))})" for each in (kernel.grid, kernel.block))
    return f"<<<{shape}>>> smem={kernel.shared_memory_bytes}B"

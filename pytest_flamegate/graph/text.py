"""The execution graph as text: a tree, DOT, and one sentence on its critical path."""

from collections.abc import Sequence

from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.core.text import escape_name, list_some
from pytest_flamegate.graph.critical_path import find_critical_path, sum_path_by_name
from pytest_flamegate.graph.graph import (
    Brick,
    EdgeKind,
    ExecutionGraph,
    Kernel,
    Layer,
    Node,
    Transfer,
    build_graph,
    get_node_name,
)

MAX_BYTES = 200
"""Bytes of a name that are shown."""
MAX_DEPTH = 64
"""Levels of a tree that are drawn; deeper nodes are counted."""


def format_microseconds(duration_ns: int) -> str:
    """Return a duration as ``200.0µs``, whatever its size."""
    return f"{duration_ns / 1e3:.1f}µs"


def draw_tree(graph: ExecutionGraph) -> str:
    """Return the nesting of nodes as a tree, one line per node; "" for an empty graph.

    ::

    Layer 0
    └── QkvProjection  200.0µs (4096 elem)
        └── batched_gemv  <<<32,256,1>>> smem=4096B
    """
    order = graph.sort_as_tree()
    beneath = [0] * len(order)
    for number in reversed(order):
        parent = graph.parents[number]
        if parent is not None:
            beneath[parent] += beneath[number] + 1
    lines: list[str] = []
    roots = [number for number in order if graph.parents[number] is None]
    left = [(number, 0, "", "") for number in reversed(roots)]
    while left:
        number, depth, branch, indent = left.pop()
        lines.append(branch + format_node(graph.nodes[number]))
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


def format_node(node: Node) -> str:
    """Return a node's line of the tree, without its branch. A layer has no time of its own."""
    name = escape_name(get_node_name(node), MAX_BYTES)
    if isinstance(node, Layer):
        return name
    if isinstance(node, Kernel):
        return f"{name}  {_format_launch(node)}".rstrip()
    time = format_microseconds(node.end_ns - node.start_ns)
    size = f"{node.bytes}B"
    if isinstance(node, Brick):
        size = f"({node.elements} elem)" if node.elements else ""
    return f"{name}  {time} {size}".rstrip()


def _format_launch(kernel: Kernel) -> str:
    """Return grid and block; all six numbers if the short form would lose one that is not 1."""
    if kernel.grid is None or kernel.block is None:
        return ""
    (x, *others), (block_x, block_y, block_z) = kernel.grid, kernel.block
    if (*others, block_z) == (1, 1, 1):
        shape = f"{x},{block_x},{block_y}"
    else:
        shape = ",".join(f"({','.join(map(str, each))})" for each in (kernel.grid, kernel.block))
    return f"<<<{shape}>>> smem={kernel.shared_memory_bytes}B"


_FILLS = {
    Layer: "lightblue",
    Brick: "lightgreen",
    Kernel: "lightyellow",
    Transfer: "lightsalmon",
}
_STYLES: dict[EdgeKind, str] = {
    "Calls": "style=solid",
    "Contains": "style=dashed",
    "Launches": "style=bold, color=red",
    "Sequence": "style=dotted",
    "Transfer": "style=bold, color=orange",
}
# In DOT a backslash begins an escape and an ampersand an HTML entity.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def draw_dot(graph: ExecutionGraph) -> str:
    """Return the graph in DOT, Graphviz's language: a box per node, an arrow per edge."""
    lines = ["digraph execution {", "  rankdir=TB;", "  node [shape=box, style=filled];"]
    for number, node in enumerate(graph.nodes):
        label = format_node(node).translate(_ESCAPES).replace("  ", "\\n")
        lines.append(f'  n{number} [label="{label}", fillcolor={_FILLS[type(node)]}];')
    lines += (
        f"  n{source} -> n{target} [{_STYLES[kind]}];" for source, target, kind in graph.edges
    )
    return "\n".join([*lines, "}"])


_NAMED = 4


def summarize_token(calls: Sequence[BrickCall]) -> tuple[tuple[str, ...], str]:
    """Return the lines of the execution tree of one token, and a sentence on its critical path.

    The sentence is ``critical path: 5 of 6 µs, of which RmsNorm 80 %, LmHead 20 %``, by self time.
    Raises ``UndecidedError`` as ``build_graph`` and ``find_critical_path`` do.
    """
    graph = build_graph(calls)
    path = find_critical_path(graph)
    names = [f"{name} {100 * share:.0f} %" for name, _, share in sum_path_by_name(graph, path)]
    length = f"critical path: {path.length_ns / 1e3:,.0f} of {path.wall_ns / 1e3:,.0f} µs"
    sentence = f"{length}, of which {list_some(names, _NAMED)}" if names else length
    # Not splitlines(): a name may hold a character that it takes for a line break.
    return tuple(draw_tree(graph).split("\n")), sentence

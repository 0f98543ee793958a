"""What a node of the execution graph is called where it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core.text import INVISIBLE, escape_character
from pytest_flamegate.graph.critical_path import find_critical_path, sum_path_by_name
from pytest_flamegate.graph.graph import Brick, Function, Kernel, Layer, build_graph, get_node_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.record import BrickCall
    from pytest_flamegate.graph.critical_path import CriticalPath
    from pytest_flamegate.graph.graph import EdgeKind, ExecutionGraph, Node


MOST = 200
"""Characters of a name that are shown."""


class Label(NamedTuple):
    """A node's name on one line with nothing hidden in it, its time, and what else it tells."""

    name: str
    time: str = ""
    more: str = ""


def build_label(node: Node) -> Label:
    """Return the label of a node; a layer's is its name alone, for it takes no time itself."""
    name = escape_name(get_node_name(node))
    if isinstance(node, Layer):
        return Label(name)
    time = ""
    if node.start_ns is not None and node.end_ns is not None:
        time = format_microseconds(node.end_ns - node.start_ns)
    if isinstance(node, Brick):
        return Label(name, time, f"({node.elements} elem)" if node.elements else "")
    if isinstance(node, Kernel):
        return Label(name, time)
    if isinstance(node, Function):
        where = f"{node.file}:{node.line}" if node.line else node.file
        return Label(name, time, escape_name(where))
    size = getattr(node, "bytes", None)
    return Label(name, time, "" if size is None else f"{size}B")


def format_microseconds(duration_ns: int) -> str:
    """Return a duration as ``200.0µs``, whatever its size."""
    return f"{duration_ns / 1e3:.1f}µs"


def escape_name(text: str) -> str:
    r"""Return ``text`` on one line: what is hidden or steers a terminal as ``\x1b``, long cut."""
    shown = text[:MOST]
    if not (shown.isprintable() and (shown.isascii() or INVISIBLE.isdisjoint(shown))):
        shown = "".join(
            each if each.isprintable() and each not in INVISIBLE else escape_character(each)
            for each in shown
        )
    return shown if len(text) <= MOST else f"{shown}… ({len(text):,} characters)"


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


def draw_dot(graph: ExecutionGraph) -> str:
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
    told = build_label(node)
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


MAX_DEPTH = 64
"""Levels that are drawn; how many nodes stand deeper is told."""


def draw_tree(graph: ExecutionGraph) -> str:
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
    """Return the line of one node, without its branch."""
    told = build_label(node)
    if isinstance(node, Kernel):
        shape = _launch_tree_text(node)
        return "  ".join(filter(None, (told.name, shape, told.time)))
    words = " ".join(filter(None, (told.time, told.more)))
    return f"{told.name}  {words}" if words else told.name


def _launch_tree_text(kernel: Kernel) -> str:
    """Return grid and block, in full where the short form would lose one of the six numbers."""
    if kernel.grid is None or kernel.block is None:
        return f"smem={kernel.shared_memory_bytes}B" if kernel.shared_memory_bytes else ""
    (x, *others), (block_x, block_y, block_z) = kernel.grid, kernel.block
    if (*others, block_z) == (1, 1, 1):
        shape = f"{x},{block_x},{block_y}"
    else:
        shape = ",".join(f"({','.join(map(str, each))})" for each in (kernel.grid, kernel.block))
    return f"<<<{shape}>>> smem={kernel.shared_memory_bytes}B"


_NAMED = 4


@dataclass(frozen=True, slots=True)
class TokenSummary:
    """One token: the lines of its execution tree, and its critical path in one sentence."""

    tree: tuple[str, ...]
    critical_path: str


def summarize_token(calls: Sequence[BrickCall]) -> TokenSummary:
    """Return what is shown of one token's ``calls``. Raises what ``graph_of`` raises."""
    graph = build_graph(calls)
    path = find_critical_path(graph)
    # A name may hold a line break; what the tree draws as one line stays one.
    return TokenSummary(tuple(draw_tree(graph).split("\n")), describe_path(graph, path))


def describe_path(graph: ExecutionGraph, path: CriticalPath) -> str:
    """Return how long the path is, and which bricks take most of it: own time in µs."""
    named = [f"{name} {100 * share:.0f} %" for name, _, share in sum_path_by_name(graph, path)]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    told = f"critical path: {path.length_ns / 1e3:,.0f} of {path.wall_ns / 1e3:,.0f} µs"
    return f"{told}, of which {', '.join(named[:_NAMED])}{more}" if named else told

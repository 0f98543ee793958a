"""The execution graph as a tree to walk in, in the terminal. Needs the extra ``viewer``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App
from textual.widgets import Footer, Static, Tree

from pytest_flamegate.graph.critical_path import CriticalPath
from pytest_flamegate.graph.graph import ExecutionGraph
from pytest_flamegate.graph.text import format_microseconds, format_node
from pytest_flamegate.report.bricks import path_lines

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets.tree import TreeNode


_MANY = 1000
"""Nodes that are added when a node is opened, and as many again on request."""


class Viewer(App[None]):
    """The tree, a line on the node under the cursor, and the critical path in bold."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("c", "next_critical", "Next on the critical path"),
    ]
    CSS = "Static { height: auto; padding: 0 1; } Tree { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, graph: ExecutionGraph, path: CriticalPath) -> None:
        super().__init__()
        self.graph = graph
        self.path = path
        self.roots = [number for number in range(len(graph.nodes)) if graph.parent(number) is None]

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static(Text("\n".join(path_lines(self.graph, self.path)[:1])), id="path")
        yield Tree[int]("bricks", id="tree")
        yield Static("", id="node")
        yield Footer()

    def on_mount(self) -> None:
        """Show the outermost nodes."""
        tree = self._tree()
        tree.show_root = False
        self._fill(tree.root, self.roots, 0)
        tree.root.expand()
        tree.focus()
        self._show(self.roots[0])

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[int]) -> None:
        """Add the children of a node when it is opened for the first time."""
        node = event.node
        if node.data is not None and not node.children:
            self._fill(node, self.graph.children[node.data], 0)

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[int]) -> None:
        """Describe the node under the cursor."""
        if not event.node.is_root:  # which is not shown
            self._show(event.node.data)

    def on_tree_node_selected(self, event: Tree.NodeSelected[int]) -> None:
        """Add more of many nodes if the user asks for them."""
        node, parent = event.node, event.node.parent
        if node.data is None and parent is not None:
            inner = self.roots if parent.data is None else self.graph.children[parent.data]
            node.remove()
            self._fill(parent, inner, len(parent.children))

    def action_next_critical(self) -> None:
        """Move to the next visible node of the critical path."""
        tree = self._tree()
        lines = range(tree.last_line + 1)
        start = tree.cursor_line + 1
        for line in [*lines[start:], *lines[:start]]:
            node = tree.get_node_at_line(line)
            if node is not None and node.data is not None and self._is_critical(node.data):
                tree.move_cursor(node)
                return

    def describe_node(self, number: int) -> str:
        """Return the own time and the slack of a node."""
        own, slack = self.path.self_ns[number], self.path.slack_ns[number]
        part = f"slack {format_microseconds(slack)}" if slack else "on the critical path"
        return f"{format_node(self.graph.nodes[number])}  self {format_microseconds(own)}  {part}"

    def _show(self, number: int | None) -> None:
        words = "" if number is None else self.describe_node(number)
        self.query_one("#node", Static).update(Text(words))

    def _is_critical(self, number: int) -> bool:
        return not self.path.slack_ns[number]

    def _fill(self, node: TreeNode[int], inner: Sequence[int], done: int) -> None:
        for number in inner[done : done + _MANY]:
            style = "bold" if self._is_critical(number) else ""
            words = Text(format_node(self.graph.nodes[number]), style)
            node.add(words, number, allow_expand=bool(self.graph.children[number]))
        left = len(inner) - done - _MANY
        if left > 0:
            node.add_leaf(Text(f"… {left:,} more: press enter"))

    def _tree(self) -> Tree[int]:
        tree: Tree[int] = self.query_one("#tree", Tree)
        return tree

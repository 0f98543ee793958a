"""The execution graph in a terminal: its tree, and what its critical path leads through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.critical_path import by_name
from pytest_flamegate.bricks.labels import harmless, microseconds
from pytest_flamegate.bricks.tree_text import ascii_tree
from pytest_flamegate.report import figures
from pytest_flamegate.report.text import columns

if TYPE_CHECKING:
    from pytest_flamegate.bricks.critical_path import CriticalPath
    from pytest_flamegate.bricks.execution_graph import ExecutionGraph

_LONGEST = 10


def graph_text(graph: ExecutionGraph, path: CriticalPath) -> str:
    """Return the tree and, below it, the critical path with its share and its costliest bricks."""
    return "\n".join([ascii_tree(graph), "", *path_lines(graph, path)])


def path_lines(graph: ExecutionGraph, path: CriticalPath) -> list[str]:
    """Return the critical path's length and share, and the names that it spends most in."""
    spent = by_name(graph, path)
    head = (
        f"critical path {microseconds(path.length_ns)}, {figures.share(path.share)} of the wall "
        f"time of {microseconds(path.wall_ns)}"
    )
    if not spent:
        return [head]
    rows = [
        (microseconds(self_ns), figures.share(share), harmless(name))
        for name, self_ns, share in spent[:_LONGEST]
    ]
    left = len(spent) - len(rows)
    more = [f"  and {figures.plural(left, 'other name')}"] if left else []
    return [f"{head}; most of it in:", *columns(rows, right=(0, 1), indent=2), *more]

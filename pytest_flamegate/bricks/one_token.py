"""The calls of one token as they are shown: the tree of what ran, and the way that took longest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.critical_path import by_name
from pytest_flamegate.bricks.graph import ascii_tree, critical_path, graph_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.bricks.graph import CriticalPath, ExecutionGraph
    from pytest_flamegate.bricks.record import BrickCall

_NAMED = 4


@dataclass(frozen=True, slots=True)
class OneToken:
    """One token: the lines of its execution tree, and its critical path in one sentence."""

    tree: tuple[str, ...]
    critical_path: str


def one_token(calls: Sequence[BrickCall]) -> OneToken:
    """Return what is shown of one token's ``calls``. Raises what ``graph_of`` raises."""
    graph = graph_of(calls)
    path = critical_path(graph)
    # A name may hold a line break; what the tree draws as one line stays one.
    return OneToken(tuple(ascii_tree(graph).split("\n")), path_sentence(graph, path))


def path_sentence(graph: ExecutionGraph, path: CriticalPath) -> str:
    """Return how long the path is, and which bricks take most of it: own time in µs."""
    named = [f"{name} {100 * share:.0f} %" for name, _, share in by_name(graph, path)]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    told = f"critical path: {path.length_ns / 1e3:,.0f} of {path.wall_ns / 1e3:,.0f} µs"
    return f"{told}, of which {', '.join(named[:_NAMED])}{more}" if named else told

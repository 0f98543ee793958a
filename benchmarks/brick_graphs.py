"""The cost of an execution graph: built, measured along its critical path, shown, kept.

    python -m benchmarks.brick_graphs [--calls 10000 100000] [--rounds 5]

The calls are those of a decoder: 32 layers of a block with nine bricks in it, one of which
launches a kernel, token after token. Each figure is CPU time of one thread, the least of the
rounds; the last column is the critical path's time per node and edge, which stays where it grows
with the graph and no more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.tables import Table, as_text
from pytest_flamegate.bricks.record import BrickCall
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import build_graph, to_document
from pytest_flamegate.graph.text import draw_tree

T = TypeVar("T")
_LAYERS, _BRICKS = 32, 9
_OWN_NS, _BRICK_NS = 5, 100


def calls(count: int) -> list[BrickCall]:
    """Return at least ``count`` calls, in whole blocks."""
    found: list[BrickCall] = []
    now = 0
    while len(found) < count:
        layer, block = len(found) // (_BRICKS + 1) % _LAYERS, len(found)
        length = _BRICKS * (_BRICK_NS + _OWN_NS)
        found.append(BrickCall("Block", now, now + length, _BRICKS * _OWN_NS, layer))
        for number in range(_BRICKS):
            start = now + number * (_BRICK_NS + _OWN_NS)
            end, kernel = start + _BRICK_NS, "" if number else "gemv<<<32,256,1>>>"
            found.append(
                BrickCall(
                    "RmsNorm",
                    start,
                    end,
                    _BRICK_NS,
                    layer,
                    parent=block,
                    elements=64,
                    kernel=kernel,
                )
            )
        now += length + _OWN_NS
    return found


def row(count: int, rounds: int) -> tuple[str, ...]:
    """Return the times of a graph of ``count`` calls."""
    recorded = calls(count)
    graph, built_s = timed(lambda: build_graph(recorded), rounds)
    _, path_s = timed(lambda: find_critical_path(graph), rounds)
    _, tree_s = timed(lambda: draw_tree(graph), rounds)
    _, document_s = timed(lambda: to_document(graph), rounds)
    size = len(graph.nodes) + len(graph.edges)
    took = [f"{1e3 * each:,.0f}" for each in (built_s, path_s, tree_s, document_s)]
    return (f"{len(graph.nodes):,}", f"{len(graph.edges):,}", *took, f"{1e6 * path_s / size:.2f}")


def timed(make: Callable[[], T], rounds: int) -> tuple[T, float]:
    """Return the result, and the least CPU seconds that it took."""
    least = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        made = make()
        least = min(least, time.thread_time() - began)
    return made, least


def table(counts: Sequence[int], rounds: int) -> Table:
    """Return a row for each number of calls."""
    head = (
        *("nodes", "edges", "built ms", "path ms", "tree ms"),
        *("document ms", "path µs each"),
    )
    rows = tuple(row(count, rounds) for count in counts)
    return Table(f"Execution graphs (CPU time, least of {rounds} rounds)", head, rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parsed = parser.parse_args()
    print(as_text(table(parsed.calls, parsed.rounds)))


if __name__ == "__main__":
    main()

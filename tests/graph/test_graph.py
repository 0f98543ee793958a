"""The execution graph and its document: nesting, and cycles by their names."""

from typing import Any

import pytest

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.graph.critical_path import find_critical_path
from pytest_flamegate.graph.graph import (
    Brick,
    Kernel,
    Transfer,
    to_document,
)
from pytest_flamegate.graph.text import draw_tree
from tests.graph.graphs import every_kind, graph_with


def test_copy_is_nested_in_its_first_starter() -> None:
    nodes = [Kernel("k"), Transfer("D2H", 64), Brick("uses"), Brick("starts")]
    graph = graph_with(nodes, [(0, 1, "Transfer"), (1, 2, "Transfer"), (3, 1, "Transfer")])
    assert graph.parents == [None, 0, None, None]
    assert graph.children[0] == [1]


@pytest.mark.parametrize("use", [draw_tree, find_critical_path])
def test_nodes_nested_in_themselves_are_named(use: Any) -> None:
    nodes = [Brick("root", 0, 1), *map(Brick, ("a", "b", "c", "beneath"))]
    edges = [(1, 2, "Calls"), (2, 3, "Calls"), (3, 1, "Calls"), (3, 4, "Calls")]
    with pytest.raises(UndecidedError, match="E_GRAPH_CYCLE") as error:
        use(graph_with(nodes, edges))
    names = error.value.problem.removeprefix("The graph has a cycle: ").rstrip(".").split(" → ")
    assert "".join(names).replace("'", "") in ("abca", "bcab", "cabc")


def test_long_cycle_is_shortened() -> None:
    nodes = [Brick(f"b{each}", 0, 0) for each in range(20)]
    edges = [(each, (each + 1) % 20, "Sequence") for each in range(20)]
    with pytest.raises(UndecidedError, match="→ 12 more →"):
        find_critical_path(graph_with(nodes, edges))


def test_document_of_every_kind_leaves_defaults_out() -> None:
    document = to_document(every_kind())
    shape = {"grid": (32, 1, 1), "block": (256, 1, 1), "shared_memory_bytes": 4096}
    assert document["nodes"][2] == {"kind": "Kernel", "name": "batched_gemv", **shape}
    assert document["edges"][0] == (4, 0, "Contains")

from __future__ import annotations

from benchmarks.brick_graphs import calls, table
from pytest_flamegate.graph.calls import build_graph
from pytest_flamegate.graph.critical_path import find_critical_path


def test_the_calls_are_a_decoder_s() -> None:
    made = calls(640)
    assert len(made) == 640
    assert {each.layer for each in made} == set(range(32))
    path = find_critical_path(build_graph(made))
    assert path.length_ns == sum(each.self_ns for each in made)


def test_each_size_has_a_row() -> None:
    made = table([10, 20], 1)
    assert [line[:2] for line in made.rows] == [("12", "19"), ("24", "39")]
    assert all(float(cell) >= 0 for line in made.rows for cell in line[2:])

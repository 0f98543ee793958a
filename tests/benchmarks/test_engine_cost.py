from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.engine_cost import Pair, added_pct, cost, row
from benchmarks.told_or_kept import SOURCE, TakesTurns, order
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.clocks import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.measures


def generate(prompt: str, max_tokens: int) -> Iterator[int]:
    yield from range(max_tokens)


def test_one_of_each_two_sequences_is_told() -> None:
    drawn = order(0, 50)
    assert len(drawn) == 100
    assert all(a != b for a, b in zip(drawn[::2], drawn[1::2], strict=True))
    assert len({*drawn[::2]}) == 2


def test_a_sequence_that_is_not_told_is_clocked_and_told_afterwards() -> None:
    engine = TakesTurns(generate, [True, False])
    told: list[Any] = []
    engine.stream("", 3, told.append)
    assert (told, engine.reports()) == ([0, 1, 2], [])
    engine.stream("", 3, told.append)
    (report,) = engine.reports()
    assert told == [0, 1, 2] * 2
    assert report["source"] == SOURCE
    assert report["figures"]["wall_ns"] > 0
    assert engine.reports() == []


def test_what_the_gate_judges_is_without_the_wait_for_a_core() -> None:
    pair = Pair(Interval(3_000_000, 1_010_000, 1_980_000), Interval(1_000_000, 1_000_000, 0), 10)
    shown = row("x", [pair])
    assert shown[:3] == ("x", "9,803.9", "10,000.0")
    assert [cell.split()[0] for cell in shown[3:6]] == ["+2.00", "+1.00", "+200.00"]
    assert shown[6:] == ("+2.0", "1")


def test_what_is_added_has_an_interval_of_the_median() -> None:
    assert added_pct([1.0 + n / 100 for n in range(101)]) == "+50.00 (+40.00 … +60.00)"


def test_both_loops_of_the_embedded_engine_are_clocked() -> None:
    found = cost(Workload("x", "embedded", "2+2=", 1, "benchmark"), 1)
    assert len(found) == 4  # one pair of each process
    assert {pair.tokens for pair in found} == {1}
    assert all(pair.told.wall_ns > 0 and pair.bare.wall_ns > 0 for pair in found)

"""Categories sum to the total, and nothing recorded is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks import BrickProfiler, brick
from pytest_flamegate.bricks.names import KNOWN
from pytest_flamegate.bricks.totals import self_ns_by_category
from pytest_flamegate.errors import UndecidedError
from tests.bricks.clocks import FakeClock


@given(st.lists(st.tuples(st.sampled_from([*KNOWN, "Mine"]), st.integers(0, 99)), min_size=1))
def test_categories_sum_to_the_self_time_of_all(calls: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    with BrickProfiler(clock=clock) as profiler:
        for name, ns in calls:
            with brick("Layer", category="Other"), brick(name):
                clock.pass_(ns)
    recorded = profiler.recorded()
    sums = self_ns_by_category(recorded.totals)
    assert sum(sums.values()) == recorded.lanes[0].self_ns == recorded.wall_ns
    assert sums["Norm"] == sum(ns for name, ns in calls if KNOWN.get(name) == "Norm")


def test_an_empty_run_has_no_figures() -> None:
    with BrickProfiler() as profiler:
        pass
    with pytest.raises(UndecidedError, match="E_NO_BRICKS"):
        self_ns_by_category(profiler.recorded().totals)

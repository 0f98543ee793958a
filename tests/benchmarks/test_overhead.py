from __future__ import annotations

import pytest

from benchmarks.overhead import SETTINGS, Cost, Setting, cost, quartiles, table
from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.profile.profilers.base import Probe

pytestmark = pytest.mark.measures


def test_cost_is_profiled_over_untouched() -> None:
    found = cost(Interval(wall_ns=300, cpu_ns=220, run_delay_ns=None), Interval(200, 200, None))
    assert found == Cost(cpu=1.1, wall=1.5)


def test_quartiles_are_what_was_added_in_percent() -> None:
    assert quartiles([1.0, 1.02, 1.04]) == "+2.0 (+0.0 … +4.0)"


def test_settings_are_told_apart_and_can_be_made() -> None:
    assert len({str(each) for each in SETTINGS}) == len(SETTINGS) == 12
    assert [each.made().rate_hz for each in SETTINGS] == [each.rate_hz for each in SETTINGS]


def test_what_cannot_be_used_is_in_the_table() -> None:
    probe = Probe("perf", "", usable=False, sees_python=False, sees_native=False, reason="absent")
    shown = table({Setting("py-spy", 50): [Cost(1.0, 1.0), Cost(1.1, 1.1)]}, {"perf": probe})
    assert [line[0] for line in shown.rows] == ["py-spy 50 Hz", "perf"]
    assert shown.rows[1][1] == "not usable: absent"

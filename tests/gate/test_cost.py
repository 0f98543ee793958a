from __future__ import annotations

import math

import pytest

from pytest_flamegate.gate import CostChange, ErrorRates, Measurement, read_measurement
from pytest_flamegate.gate.costs import WAITING, cost_changes
from pytest_flamegate.gate.shares import share_changes
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import PROFILE, QUIET, baseline, evidence, moved, scaled

RATES = ErrorRates()


def costs(old: Evidence, new: Evidence, *, whole_changed: bool = True) -> dict[str, CostChange]:
    before, after = read_measurement(old), read_measurement(new)
    found = rows(before, after, whole_changed=whole_changed)
    return {cost.name: cost for cost in found}


def rows(before: Measurement, after: Measurement, *, whole_changed: bool) -> tuple[CostChange, ...]:
    shares = share_changes(before.profiled, after.profiled, (), RATES.alpha)
    return cost_changes(shares, before, after, RATES, whole_changed=whole_changed)


def grown(frame: str, extra_us: float) -> Evidence:
    """``frame`` costs ``extra_us`` more per token of 1000 µs, all else as it was."""
    factor = 1.0 + extra_us / 1000.0
    counts = [
        {name: round((n + extra_us * (name == frame)) / factor) for name, n in each.items()}
        for each in PROFILE
    ]
    return evidence(scaled(QUIET, factor), counts)


def test_the_frame_that_grew_explains_the_change_and_the_others_did_not() -> None:
    found = costs(baseline(profile=PROFILE), grown("rms_norm", 120.0))
    norm, gemv = found["rms_norm"], found["gemv"]
    assert norm.baseline_us == pytest.approx(60.5, abs=0.5)
    assert norm.change_us == pytest.approx(120.0, abs=3.0)
    assert norm.ci_low_us < norm.change_us < norm.ci_high_us
    assert norm.ci_low_us > 0.0
    assert norm.p_adjusted < 0.01
    assert norm.explains == pytest.approx(1.0, abs=0.03)
    assert gemv.change_us == pytest.approx(0.0, abs=3.0)
    assert gemv.p_adjusted > 0.5
    assert gemv.ci_low_us < 0.0 < gemv.ci_high_us


def test_rows_add_up_to_the_whole() -> None:
    found = costs(baseline(profile=PROFILE), grown("attention", 300.0))
    assert math.fsum(c.explains or 0.0 for c in found.values()) == pytest.approx(1.0)
    assert sum(c.current_us for c in found.values()) == pytest.approx(1300.25, rel=1e-3)
    assert sum(c.baseline_us for c in found.values()) == pytest.approx(1000.0, rel=1e-3)


def test_the_largest_change_stands_first() -> None:
    before = read_measurement(baseline(profile=PROFILE))
    after = read_measurement(grown("attention", 300.0))
    found = rows(before, after, whole_changed=True)
    assert found[0].name == "attention"
    sizes = [abs(cost.change_us) for cost in found]
    assert sizes == sorted(sizes, reverse=True)


def test_nothing_is_explained_where_the_whole_did_not_change() -> None:
    found = costs(
        baseline(profile=PROFILE), evidence(scaled(QUIET, 1.0), PROFILE), whole_changed=False
    )
    assert {cost.explains for cost in found.values()} == {None}


def test_a_share_may_move_while_the_cost_does_not() -> None:
    # gemv fell from 700 to 350 µs: attention's share rises from 20 to 31 %.
    faster = [
        {name: round(n * (0.5 if name == "gemv" else 1.0) / 0.65) for name, n in each.items()}
        for each in PROFILE
    ]
    found = costs(baseline(profile=PROFILE), evidence(scaled(QUIET, 0.65), faster))
    assert found["attention"].change_us == pytest.approx(0.0, abs=3.0)
    assert found["gemv"].change_us == pytest.approx(-349.0, abs=5.0)
    assert found["gemv"].p_adjusted < 0.01


def test_the_machine_speed_is_taken_out_of_costs_too() -> None:
    slow_machine = evidence(scaled(QUIET, 1.08), PROFILE, process={"reference_us": 5400.0})
    found = costs(baseline(profile=PROFILE), slow_machine)
    assert all(abs(cost.change_us) < 2.0 for cost in found.values())


def test_waiting_has_a_row_of_its_own() -> None:
    waiting = evidence(scaled(QUIET, 1.2), PROFILE, process={"waiting_us": 200.0})
    found = costs(baseline(profile=PROFILE), waiting)
    assert found[WAITING].baseline_us == 0.0
    assert found[WAITING].change_us == pytest.approx(200.0)
    assert found[WAITING].explains == pytest.approx(1.0, abs=0.02)
    assert abs(found["gemv"].change_us) < 3.0


def test_the_one_sided_bound_is_tighter_than_the_interval() -> None:
    found = costs(
        baseline(profile=PROFILE), evidence(scaled(QUIET, 1.0), moved(PROFILE, "a", 5, "gemv"))
    )
    assert all(c.change_us < c.no_more_than_us < c.ci_high_us for c in found.values())

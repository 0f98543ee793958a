"""Budgets of bricks on machines of known truth. Seeded: each figure here is reproducible."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.gate import ErrorRates, Signal
from pytest_flamegate.gate.bricks import judge_bricks
from tests.gate.bricked import allowing, drawn, passes
from tests.gate.factory import baseline, evidence

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence


BRICKS = {"RmsNorm": 3.0, "QkvProjection": 20.0, "DownProjection": 40.0, "LmHead": 60.0}
TEN_EACH = allowing(every=(None, 10.0))
BUDGETS = allowing(**{name: (cost, None) for name, cost in BRICKS.items()})
RATES = ErrorRates(analyses=2)
QUIET, BUSY, WORST = 0.03, 0.08, 0.17
"""Spread of log cost between fresh processes: the last two were measured on a busy machine."""
BATCH = 0.02


def outcomes(
    spread: float,
    trials: int,
    *,
    dearer: float = 1.0,
    batch: float = BATCH,
    drift_sd: float = BATCH,
    over: float | None = None,
) -> dict[str, float]:
    """Share of the trials in which any brick was judged each way, first regressed, then open.

    One brick costs ``dearer`` times as much. ``over`` holds every call to that many times its
    budget, in place of growths.
    """
    random = Random(7)
    asked = TEN_EACH if over is None else BUDGETS
    found: Counter[str] = Counter()

    def side(first_pid: int, costs: dict[str, float]) -> Evidence:
        level = math.exp(random.gauss(0.0, batch))
        made = passes(costs, drawn(random, spread, by=level), first_pid=first_pid, durations={})
        return evidence(bricks=made)

    now = {name: cost * (over or 1.0) for name, cost in BRICKS.items()}
    now["RmsNorm"] *= dearer
    for _ in range(trials):
        old, new = side(800, BRICKS), side(700, now)
        judged = judge_bricks(old, new, asked, RATES, drift_sd=drift_sd)
        decisions = {signal.decision for signal in judged.signals}
        assert len(judged.signals) == len(BRICKS)
        for name in ("regressed", "inconclusive", "pass"):
            if name in decisions:
                found[name] += 1
                break
        found["improved"] += "improved" in decisions
    return {name: count / trials for name, count in found.items()}


@pytest.mark.parametrize("spread", [0.001, QUIET, BUSY, WORST])
def test_nothing_changed_false_alarms_stay_below_one_percent(spread: float) -> None:
    found = outcomes(spread, 600)
    assert found.get("regressed", 0.0) <= 0.01
    assert found["improved"] <= 0.01


@pytest.mark.parametrize("spread", [QUIET, BUSY])
def test_nothing_changed_in_pairs(spread: float) -> None:
    found = outcomes(spread, 500, batch=0.0, drift_sd=0.0)
    assert found.get("regressed", 0.0) <= 0.01


def test_nothing_changed_passes_on_a_quiet_machine() -> None:
    assert outcomes(0.015, 200, batch=0.0, drift_sd=0.0)["pass"] >= 0.95


@pytest.mark.parametrize(
    ("spread", "dearer", "found"), [(QUIET, 1.3, 0.95), (BUSY, 1.5, 0.9), (WORST, 3.0, 0.95)]
)
def test_a_dearer_brick_is_found_and_never_passed(
    spread: float, dearer: float, found: float
) -> None:
    said = outcomes(spread, 200, dearer=dearer)
    assert said["regressed"] >= found
    assert said.get("pass", 0.0) == 0.0


def test_a_call_at_its_budget_is_hardly_ever_over_it() -> None:
    assert outcomes(BUSY, 600, over=1.0).get("regressed", 0.0) <= 0.01
    assert outcomes(BUSY, 200, over=1.5)["regressed"] >= 0.95
    assert outcomes(BUSY, 200, over=0.7)["pass"] >= 0.95


factors = st.lists(st.floats(0.7, 1.4), min_size=5, max_size=7, unique=True)


def growth(before: list[float], after: list[float], unit: float) -> Signal:
    old = baseline(bricks=passes({"RmsNorm": unit}, before, first_pid=800, durations={}))
    new = evidence(bricks=passes({"RmsNorm": unit}, after, durations={}))
    (signal,) = judge_bricks(old, new, allowing(RmsNorm=(None, 10.0)), RATES).signals
    return signal


@settings(deadline=None, max_examples=60)
@given(factors, factors, st.floats(100.0, 1e6))
def test_the_unit_of_time_changes_nothing(
    before: list[float], after: list[float], unit: float
) -> None:
    one, other = growth(before, after, 1000.0), growth(before, after, unit)
    assert one.change_pct == pytest.approx(other.change_pct, abs=0.1)
    assert one.ci_low_pct == pytest.approx(other.ci_low_pct, abs=0.1)


@settings(deadline=None, max_examples=60)
@given(factors, factors)
def test_swapping_the_sides_mirrors(before: list[float], after: list[float]) -> None:
    forth, back = growth(before, after, 1000.0), growth(after, before, 1000.0)
    assert forth.change_pct is not None
    assert back.change_pct is not None
    assert math.isclose(
        math.log1p(forth.change_pct / 100.0), -math.log1p(back.change_pct / 100.0), abs_tol=1e-9
    )
    mirrored = {"regressed": "improved", "improved": "regressed"}
    if forth.decision in mirrored:
        assert back.decision == mirrored[forth.decision]


@settings(deadline=None, max_examples=60)
@given(factors, st.floats(1.05, 3.0))
def test_more_for_the_same_is_never_called_cheaper(before: list[float], by: float) -> None:
    after = [by * factor for factor in before]
    signal = growth(before, after, 1000.0)
    assert signal.decision != "improved"
    assert signal.change_pct == pytest.approx(100.0 * (by - 1.0), abs=0.1)

"""The whole rule on machines of known truth. Seeded: each figure here is reproducible."""

import pytest

from tests.gate.simulation import Machine, gate_outcomes, rate_outcomes

QUIET = Machine(0.017)
MIXED = Machine(0.028)
CONTENDED = Machine(0.036)
MISPLACED = Machine(0.017, misplaced=0.1)
OFTEN_MISPLACED = Machine(0.017, misplaced=0.2)
HEAVY_TAILED = Machine(0.017, tail_df=3)
TRIALS = 500


@pytest.mark.parametrize(
    "machine",
    [QUIET, MIXED, CONTENDED, MISPLACED, OFTEN_MISPLACED, HEAVY_TAILED, Machine(0.001)],
    ids=str,
)
def test_nothing_changed_false_alarms_stay_below_one_percent(machine: Machine) -> None:
    found = rate_outcomes(machine, 0.0, TRIALS)
    assert found.get("regressed", 0.0) <= 0.01
    assert found.get("improved", 0.0) <= 0.01


@pytest.mark.parametrize(
    ("machine", "passing"),
    [(QUIET, 0.97), (MIXED, 0.88), (CONTENDED, 0.7), (MISPLACED, 0.8), (HEAVY_TAILED, 0.8)],
    ids=str,
)
def test_nothing_changed_passes_as_often_as_the_noise_allows(
    machine: Machine, passing: float
) -> None:
    assert rate_outcomes(machine, 0.0, TRIALS)["pass"] >= passing


@pytest.mark.parametrize(
    ("machine", "slowdown", "found", "missed"),
    [
        (QUIET, 0.053, 0.93, 0.05),  # 5 % fewer tokens per second is 5.3 % more time
        (QUIET, 0.10, 0.99, 0.0),
        (QUIET, 0.20, 1.0, 0.0),
        (MIXED, 0.053, 0.7, 0.05),
        (MIXED, 0.10, 0.99, 0.0),
        (MIXED, 0.20, 1.0, 0.0),
        (CONTENDED, 0.053, 0.45, 0.05),
        (CONTENDED, 0.10, 0.95, 0.0),
        (CONTENDED, 0.20, 0.99, 0.0),
        (MISPLACED, 0.10, 0.9, 0.001),
        (MISPLACED, 0.20, 0.99, 0.0),
        (OFTEN_MISPLACED, 0.10, 0.85, 0.001),
        (OFTEN_MISPLACED, 0.20, 0.99, 0.0),
        (HEAVY_TAILED, 0.10, 0.85, 0.005),
        (HEAVY_TAILED, 0.20, 0.97, 0.0),
    ],
    ids=str,
)
def test_a_slowdown_is_found_and_hardly_ever_passed(
    machine: Machine, slowdown: float, found: float, missed: float
) -> None:
    outcomes = rate_outcomes(machine, slowdown, TRIALS)
    assert outcomes.get("regressed", 0.0) >= found
    # What is neither found nor passed stays open, and that is said.
    assert outcomes.get("pass", 0.0) + outcomes.get("improved", 0.0) <= missed


def test_a_speedup_is_found() -> None:
    assert rate_outcomes(QUIET, -0.1, TRIALS)["improved"] >= 0.99


def test_a_drop_within_what_is_allowed_is_no_alarm_where_it_can_be_told() -> None:
    outcomes = rate_outcomes(Machine(0.004), 0.02, TRIALS)
    assert outcomes["pass"] >= 0.97
    assert outcomes.get("regressed", 0.0) <= 0.03


def test_a_tighter_threshold_costs_certainty_not_false_alarms() -> None:
    outcomes = rate_outcomes(QUIET, 0.0, TRIALS, drop_pct=1.0)
    assert outcomes.get("regressed", 0.0) <= 0.015
    assert outcomes["inconclusive"] >= 0.7


def test_drift_as_measured_raises_no_alarm_and_unaccounted_drift_would() -> None:
    assert rate_outcomes(Machine(0.003), 0.0, TRIALS).get("regressed", 0.0) <= 0.002
    # What the drift variance guards against: batches that differ far more than assumed.
    assert rate_outcomes(Machine(0.003, drift=0.02), 0.0, TRIALS)["regressed"] >= 0.05


GATED = 100


@pytest.mark.parametrize(
    ("factors", "verdict", "least"),
    [
        ({}, "pass", 0.95),
        ({"gemv": 1.2}, "regressed", 0.99),
        ({"rms_norm": 2.0}, "regressed", 0.99),
        ({"gemv": 0.7}, "improved", 0.97),
        ({"gemv": 0.8, "attention": 1.44}, "regressed", 0.95),  # the whole stays as fast
    ],
    ids=str,
)
def test_the_whole_gate_finds_the_truth(
    factors: dict[str, float], verdict: str, least: float
) -> None:
    assert gate_outcomes(QUIET, factors, GATED)[verdict] >= least


def test_the_whole_gate_raises_no_alarm_over_nothing() -> None:
    assert gate_outcomes(MIXED, {}, 200, share_spread=0.12).get("regressed", 0.0) <= 0.01

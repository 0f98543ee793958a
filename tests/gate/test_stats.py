from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.gate.statistics import (
    Estimate,
    combine,
    holm,
    log_odds,
    log_odds_variance,
    mean,
    median,
    student_t_sf,
    variance,
    welch,
)

# Two batches of different spread, and Welch's t for them worked out by hand.
A = (27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4)
B = (27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.0, 23.9)


def test_welch_against_a_worked_example() -> None:
    estimate = welch(A, B)
    va, vb = statistics.variance(A) / 15, statistics.variance(B) / 15
    assert estimate.mean_diff == pytest.approx(statistics.fmean(B) - statistics.fmean(A))
    assert estimate.standard_error == pytest.approx(math.sqrt(va + vb))
    assert estimate.df == pytest.approx((va + vb) ** 2 / (va**2 / 14 + vb**2 / 14))
    t = estimate.mean_diff / estimate.standard_error
    assert estimate.p_two_sided == pytest.approx(2 * student_t_sf(t, estimate.df))
    assert 0.001 < estimate.p_two_sided < 0.05


def test_a_known_variance_widens_and_adds_degrees_of_freedom() -> None:
    plain, drifting = welch(A, B), welch(A, B, extra_variance=1.0)
    assert drifting.standard_error == pytest.approx(math.hypot(plain.standard_error, 1.0))
    assert drifting.df > plain.df
    assert drifting.mean_diff == plain.mean_diff


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ([(2.0, 5.0)], (2.0, 5.0)),
        ([(1.0, 4.0), (1.0, 4.0)], (2.0, 8.0)),
        ([(1.0, 4.0), (0.0, 1.0)], (1.0, 4.0)),
        ([(3.0, math.inf)], (3.0, math.inf)),
        ([(0.0, 2.0), (0.0, 2.0)], (0.0, math.inf)),
        ([(1e-300, 4.0), (1e-300, 4.0)], (2e-300, 8.0)),
    ],
)
def test_combine(components: list[tuple[float, float]], expected: tuple[float, float]) -> None:
    assert combine(components) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ((), ()),
        ((0.02,), (0.02,)),
        ((0.01, 0.04, 0.03), (0.03, 0.06, 0.06)),
        ((0.001, 0.001, 0.9), (0.003, 0.003, 0.9)),
        ((0.5, 0.6), (1.0, 1.0)),
        ((0.04, 0.01), (0.04, 0.02)),
    ],
)
def test_holm(p_values: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert holm(p_values) == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= a <= 1.0 for p, a in zip(p_values, adjusted, strict=True))
    by_p = sorted(zip(p_values, adjusted, strict=True))
    assert [a for _, a in by_p] == sorted(adjusted)


@pytest.mark.parametrize(("difference", "p"), [(0.0, 1.0), (0.1, 0.0)])
def test_an_exact_difference_is_certain(difference: float, p: float) -> None:
    assert Estimate(difference, 0.0, math.inf).p_two_sided == p


def test_log_odds_of_nothing_and_of_everything_are_finite() -> None:
    assert log_odds(0, 100) == pytest.approx(-log_odds(100, 100))
    assert log_odds(50, 100) == 0.0
    assert log_odds(0, 100) == pytest.approx(math.log(0.5 / 100.5))
    assert log_odds_variance(0, 100) == pytest.approx(2.0 + 1.0 / 100.5)
    assert log_odds_variance(500, 1000) == pytest.approx(4 / 1000, rel=1e-2)


@pytest.mark.parametrize(
    ("values", "middle"), [([3.0], 3.0), ([3.0, 1.0], 2.0), ([5.0, 1.0, 2.0], 2.0)]
)
def test_median(values: list[float], middle: float) -> None:
    assert median(values) == middle


def test_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        mean([])
    with pytest.raises(ValueError, match="at least two"):
        variance([1.0])

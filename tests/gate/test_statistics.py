"""Estimates, Student's t, Holm's correction and exact bounds, against known values."""

import math
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.gate.statistics import (
    Count,
    Estimate,
    clopper_pearson_upper,
    combine,
    holm,
    log_odds,
    log_odds_variance,
    pct,
    student_t_sf,
    student_t_upper,
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
    # A known variance widens and adds degrees of freedom.
    drifting = estimate.widen(1.0)
    assert drifting.standard_error == pytest.approx(math.hypot(estimate.standard_error, 1.0))
    assert drifting.df > estimate.df
    assert drifting.mean_diff == estimate.mean_diff
    with pytest.raises(ValueError, match="at least two"):
        welch([1.0], B)


def test_bounds_of_an_estimate() -> None:
    estimate = Estimate(1.0, 2.0, 10.0)
    t = student_t_upper(0.025, 10.0)
    assert (estimate.lower(0.025), estimate.upper(0.025)) == (1.0 - 2.0 * t, 1.0 + 2.0 * t)
    assert Estimate(-1.0, 2.0, 10.0).p_two_sided == estimate.p_two_sided
    assert Estimate(0.0, 2.0, 10.0).p_two_sided == 1.0
    assert Estimate(0.0, 0.0, math.inf).p_two_sided == 1.0
    assert Estimate(0.1, 0.0, math.inf).p_two_sided == 0.0


@pytest.mark.parametrize(
    ("components", "expected"),
    [
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
        ((0.02,), (0.02,)),
        ((0.01, 0.04, 0.03), (0.03, 0.06, 0.06)),
        ((0.001, 0.001, 0.9), (0.003, 0.003, 0.9)),
        ((0.5, 0.6), (1.0, 1.0)),
        ((0.04, 0.01), (0.04, 0.02)),
    ],
)
def test_holm(p_values: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert holm(p_values) == pytest.approx(expected)


def test_log_odds_of_nothing_and_of_everything_are_finite() -> None:
    assert log_odds(0, 100) == pytest.approx(-log_odds(100, 100))
    assert log_odds(50, 100) == 0.0
    assert log_odds(0, 100) == pytest.approx(math.log(0.5 / 100.5))
    assert log_odds_variance(0, 100) == pytest.approx(2.0 + 1.0 / 100.5)
    assert log_odds_variance(500, 1000) == pytest.approx(4 / 1000, rel=1e-2)


# --- Student's t ---------------------------------------------------------------------------


def closed_form_cdf(t: float, df: int) -> float:
    """The finite trigonometric sum that holds for whole degrees of freedom."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df % 2 == 0:
        term = total = 1.0
        for k in range(1, df // 2):
            term *= (2 * k - 1) / (2 * k) * cosine**2
            total += term
        return 0.5 + 0.5 * sine * total
    term, total = cosine, 0.0
    for k in range(1, (df - 1) // 2 + 1):
        total += term
        term *= 2 * k / (2 * k + 1) * cosine**2
    return 0.5 + (theta + sine * total) / math.pi


@pytest.mark.parametrize("df", [1, 2, 5, 30, 119, 120, 121, 1001])
def test_tail_equals_the_closed_form(df: int) -> None:
    for t in (-4.0, -0.7, 0.0, 1e-9, 0.01, 0.5, 1.0, 2.0, 3.3, 9.0):
        assert student_t_sf(-t, df) == pytest.approx(closed_form_cdf(t, df), abs=1e-12)


@given(st.floats(1e-12, 0.49), st.floats(1.0, 1e12) | st.just(math.inf))
def test_quantile_inverts_the_tail(tail: float, df: float) -> None:
    t = student_t_upper(tail, df)
    assert student_t_sf(t, df) == pytest.approx(tail, rel=1e-9)
    assert student_t_sf(-t, df) == pytest.approx(1.0 - student_t_sf(t, df), abs=1e-12)


def test_tail_for_broken_df_lies_between_those_of_whole_ones() -> None:
    assert student_t_sf(2.5, 3.0) < student_t_sf(2.5, 2.37) < student_t_sf(2.5, 2.0)
    # By numerical integration of the density.
    assert student_t_sf(2.5, 2.37) == pytest.approx(0.05505132980, abs=1e-11)


def test_ends() -> None:
    assert student_t_upper(0.025, math.inf) == pytest.approx(1.959963984540054, abs=1e-12)
    normal = student_t_upper(0.025, math.inf)
    for df in (9e7, 1.1e8):  # on both sides of the limit from which on a series is exact
        t = student_t_upper(0.025, df)
        assert t == pytest.approx(normal + (normal**3 + normal) / (4 * df), rel=1e-9)
        assert student_t_sf(t, df) == pytest.approx(0.025, rel=1e-9)
    assert (student_t_sf(math.inf, 3), student_t_sf(-math.inf, 3)) == (0.0, 1.0)
    assert student_t_upper(0.5, 3) == 0.0


# --- bounds of a rate ----------------------------------------------------------------------


@given(st.data(), st.integers(1, 60), st.sampled_from((0.9, 0.95, 0.99)))
def test_so_few_failures_are_just_unlikely_at_the_bound(
    data: st.DataObject, trials: int, confidence: float
) -> None:
    failures = data.draw(st.integers(0, trials - 1))
    bound = clopper_pearson_upper(failures, trials, confidence)
    p = Fraction(bound)
    at_most = sum(
        math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(failures + 1)
    )
    assert math.isclose(float(at_most), 1.0 - confidence, rel_tol=1e-9)


def test_bounds_of_counts_at_the_ends() -> None:
    # So many quiet gates prove a rate of 1 %, and one less does not.
    assert clopper_pearson_upper(0, 299) <= 0.01 < clopper_pearson_upper(0, 298)
    assert clopper_pearson_upper(7, 7) == 1.0
    assert clopper_pearson_upper(0, 0) == 1.0
    assert math.isnan(Count(0, 0).rate)
    assert Count(2, 2000).words == "0.10 % (≤ 0.31 %)"
    assert [pct(rate) for rate in (0.0, 0.0015, 0.005, 0.5)] == ["0.0", "0.15", "0.5", "50.0"]

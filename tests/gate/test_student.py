from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_flamegate.gate.statistics import student_t_sf, student_t_upper


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


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 8, 10, 29, 30, 59, 60, 61, 100, 1001])
@pytest.mark.parametrize("t", [-4.0, -0.7, 0.0, 1e-9, 0.01, 0.5, 1.0, 2.0, 3.3, 9.0])
def test_cdf_equals_the_closed_form(t: float, df: int) -> None:
    assert student_t_sf(-(t), df) == pytest.approx(closed_form_cdf(t, df), abs=1e-12)


@pytest.mark.parametrize("p", [0.001, 0.05, 0.3, 0.8, 0.95, 0.99, 0.9999])
def test_quantile_equals_the_closed_form(p: float) -> None:
    assert student_t_upper(1 - p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
    assert student_t_upper(1 - p, 2) == pytest.approx(
        (2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-9
    )


@pytest.mark.parametrize(
    ("p", "df", "printed"),
    [
        (0.975, 10, 2.228),
        (0.99, 5, 3.365),
        (0.95, 7, 1.895),
        (0.995, 20, 2.845),
        (0.9995, 3, 12.924),
        (0.99, 120, 2.358),
    ],
)
def test_quantile_equals_the_printed_tables(p: float, df: int, printed: float) -> None:
    assert student_t_upper(1 - p, df) == pytest.approx(printed, abs=5e-4)


@pytest.mark.parametrize("df", [2.37, 11.9, 47.25])
def test_cdf_equals_the_integral_of_the_density_for_broken_df(df: float) -> None:
    constant = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    steps, end = 20_000, 2.5
    width = end / steps
    weights = [1, *([4, 2] * (steps // 2))[:-1], 1]
    integral = sum(
        weight * constant * (1 + (i * width) ** 2 / df) ** (-(df + 1) / 2)
        for i, weight in enumerate(weights)
    )
    assert student_t_sf(-(end), df) == pytest.approx(0.5 + integral * width / 3, abs=1e-11)


@settings(deadline=None)
@given(
    st.floats(1e-12, 0.49),
    st.floats(1.0, 1e12) | st.just(math.inf),
)
def test_quantile_inverts_the_tail(tail: float, df: float) -> None:
    assert student_t_sf(student_t_upper(tail, df), df) == pytest.approx(tail, rel=1e-9)


@settings(deadline=None)
@given(st.floats(-50, 50), st.floats(1.0, 1e6))
def test_the_two_sides_mirror(t: float, df: float) -> None:
    assert student_t_sf(-(t), df) + student_t_sf(t, df) == pytest.approx(1.0, abs=1e-12)


def test_infinite_df_is_the_normal_distribution() -> None:
    assert student_t_upper(0.025, math.inf) == pytest.approx(1.959963984540054, abs=1e-12)
    assert student_t_upper(0.025, 9e7) == pytest.approx(student_t_upper(0.025, 1.1e8), rel=1e-7)


def test_ends() -> None:
    assert student_t_sf(math.inf, 3) == 0.0
    assert student_t_sf(-math.inf, 3) == 1.0
    assert student_t_upper(0.5, 3) == 0.0


@pytest.mark.parametrize(
    ("p", "df"), [(0.0, 3), (1.0, 3), (-0.1, 3), (math.nan, 3), (0.9, 0), (0.9, math.nan)]
)
def test_quantile_refuses_what_has_none(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="t quantile needs"):
        student_t_upper(1 - p, df)


@pytest.mark.parametrize(("t", "df"), [(math.nan, 3), (1.0, 0.0), (1.0, -1.0), (1.0, math.nan)])
def test_tail_refuses_what_has_none(t: float, df: float) -> None:
    with pytest.raises(ValueError, match="t distribution needs"):
        student_t_sf(t, df)

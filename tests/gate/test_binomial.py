"""Exact bounds of a rate, held against the binomial distribution itself."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.gate.statistics import Count, clopper_pearson_upper, pct

trials = st.integers(1, 60)
confidences = st.sampled_from((0.9, 0.95, 0.99))


def at_most(failures: int, trials: int, rate: float) -> float:
    """The probability of at most ``failures``, in exact arithmetic."""
    p = Fraction(rate)
    return float(
        sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(failures + 1))
    )


@given(st.data(), trials, confidences)
def test_the_bound_is_where_so_few_failures_become_unlikely(
    data: st.DataObject, trials: int, confidence: float
) -> None:
    failures = data.draw(st.integers(0, trials - 1))
    bound = clopper_pearson_upper(failures, trials, confidence)
    assert math.isclose(at_most(failures, trials, bound), 1.0 - confidence, rel_tol=1e-9)


@given(st.data(), st.integers(1, 100_000))
def test_order(data: st.DataObject, trials: int) -> None:
    failures = data.draw(st.integers(0, trials))
    count = Count(failures, trials)
    assert 0.0 <= count.lower <= count.rate <= count.upper <= 1.0
    assert clopper_pearson_upper(failures, trials + 1) <= count.upper
    if failures < trials:
        assert clopper_pearson_upper(failures + 1, trials) > count.upper
        assert count.upper > count.rate


@pytest.mark.parametrize(("trials", "rate"), [(299, 0.01), (2995, 0.001)])
def test_so_many_quiet_gates_prove_a_rate_and_one_less_does_not(trials: int, rate: float) -> None:
    assert clopper_pearson_upper(0, trials) <= rate < clopper_pearson_upper(0, trials - 1)


def test_all_failed_or_nothing_was_tried() -> None:
    assert clopper_pearson_upper(7, 7) == 1.0
    assert math.isclose(Count(7, 7).lower, 0.05 ** (1 / 7))
    assert (Count(0, 0).lower, clopper_pearson_upper(0, 0)) == (0.0, 1.0)
    assert math.isnan(Count(0, 0).rate)


@pytest.mark.parametrize(
    ("failures", "trials", "confidence"),
    [(-1, 3, 0.95), (4, 3, 0.95), (0, 3, 0.0), (0, 3, 1.0), (0, 3, math.nan)],
)
def test_what_cannot_be(failures: int, trials: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="no bound"):
        clopper_pearson_upper(failures, trials, confidence)


def test_words() -> None:
    assert Count(2, 2000).words == "0.10 % (≤ 0.31 %)"
    assert [pct(rate) for rate in (0.0, 0.0015, 0.01, 0.5)] == ["0.0", "0.15", "1.0", "50.0"]

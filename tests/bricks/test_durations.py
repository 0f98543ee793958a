"""Buckets of durations are contiguous, in order and as fine as promised."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks.record import bucket, middle_ns, quantile_ns

DURATIONS = st.integers(0, 10**15)


@given(DURATIONS)
def test_the_middle_of_a_bucket_is_near(duration_ns: int) -> None:
    number = bucket(duration_ns)
    assert bucket(middle_ns(number)) == number
    assert abs(middle_ns(number) - duration_ns) <= 0.008 * duration_ns


@given(DURATIONS)
def test_the_next_nanosecond_has_this_bucket_or_the_next(duration_ns: int) -> None:
    assert bucket(duration_ns + 1) - bucket(duration_ns) in (0, 1)


@given(st.lists(DURATIONS, min_size=1))
def test_the_median_is_that_of_the_durations(durations_ns: list[int]) -> None:
    counts = Counter(map(bucket, durations_ns))
    low, high = statistics.median_low(durations_ns), statistics.median_high(durations_ns)
    assert 0.992 * low - 1 <= quantile_ns(counts, 0.5) <= 1.008 * high + 1
    assert quantile_ns(counts, 1.0) == middle_ns(bucket(max(durations_ns)))
    assert quantile_ns(counts, 0.0) == middle_ns(bucket(min(durations_ns)))


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no call"):
        quantile_ns({}, 0.5)

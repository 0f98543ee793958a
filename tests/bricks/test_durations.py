"""Buckets of durations are contiguous, in order and as fine as promised."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks.record import (
    compute_bucket_middle_ns,
    compute_quantile_ns,
    find_bucket,
)

DURATIONS = st.integers(0, 10**15)


@given(DURATIONS)
def test_the_middle_of_a_bucket_is_near(duration_ns: int) -> None:
    number = find_bucket(duration_ns)
    assert find_bucket(compute_bucket_middle_ns(number)) == number
    assert abs(compute_bucket_middle_ns(number) - duration_ns) <= 0.008 * duration_ns


@given(DURATIONS)
def test_the_next_nanosecond_has_this_bucket_or_the_next(duration_ns: int) -> None:
    assert find_bucket(duration_ns + 1) - find_bucket(duration_ns) in (0, 1)


@given(st.lists(DURATIONS, min_size=1))
def test_the_median_is_that_of_the_durations(durations_ns: list[int]) -> None:
    counts = Counter(map(find_bucket, durations_ns))
    low, high = statistics.median_low(durations_ns), statistics.median_high(durations_ns)
    assert 0.992 * low - 1 <= compute_quantile_ns(counts, 0.5) <= 1.008 * high + 1
    assert compute_quantile_ns(counts, 1.0) == compute_bucket_middle_ns(
        find_bucket(max(durations_ns))
    )
    assert compute_quantile_ns(counts, 0.0) == compute_bucket_middle_ns(
        find_bucket(min(durations_ns))
    )


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no call"):
        compute_quantile_ns({}, 0.5)

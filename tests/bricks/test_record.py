"""Known bricks have categories and aliases; buckets of durations are as fine as promised."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks.record import (
    ALIASES,
    CATEGORIES,
    KNOWN_BRICKS,
    compute_bucket_bounds_ns,
    compute_bucket_middle_ns,
    compute_quantile_ns,
    find_bucket,
    find_category,
    parse_durations,
    resolve_alias,
)


def test_fifteen_known_bricks_in_four_categories() -> None:
    assert Counter(KNOWN_BRICKS.values()) == {"Norm": 2, "Attention": 6, "FFN": 4, "Other": 3}
    assert set(CATEGORIES) == set(KNOWN_BRICKS.values())


def test_aliases_resolve_to_known_bricks() -> None:
    for alias, name in ALIASES.items():
        assert alias not in KNOWN_BRICKS
        assert resolve_alias(alias) == name
        assert find_category(alias) == KNOWN_BRICKS[name]


def test_other_names_stay() -> None:
    assert resolve_alias("Quantize") == "Quantize"
    assert find_category("Quantize") == "Other"


DURATIONS = st.integers(0, 10**15)


@given(DURATIONS)
def test_middle_of_a_bucket_is_within_one_percent(duration_ns: int) -> None:
    number = find_bucket(duration_ns)
    assert find_bucket(compute_bucket_middle_ns(number)) == number
    assert abs(compute_bucket_middle_ns(number) - duration_ns) <= 0.008 * duration_ns
    low, high = compute_bucket_bounds_ns(number)
    assert low <= duration_ns <= high
    assert find_bucket(low) == find_bucket(high) == number


@given(DURATIONS)
def test_buckets_are_contiguous(duration_ns: int) -> None:
    assert find_bucket(duration_ns + 1) - find_bucket(duration_ns) in (0, 1)


@given(st.lists(DURATIONS, min_size=1))
def test_quantiles_are_those_of_the_durations(durations_ns: list[int]) -> None:
    counts = Counter(map(find_bucket, durations_ns))
    low, high = statistics.median_low(durations_ns), statistics.median_high(durations_ns)
    assert 0.992 * low - 1 <= compute_quantile_ns(counts, 0.5) <= 1.008 * high + 1
    assert compute_quantile_ns(counts, 1.0) == compute_bucket_middle_ns(
        find_bucket(max(durations_ns))
    )
    assert compute_quantile_ns(counts, 0.0) == compute_bucket_middle_ns(
        find_bucket(min(durations_ns))
    )


def test_no_call_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no call"):
        compute_quantile_ns({}, 0.5)


def test_durations_with_an_invalid_bucket_are_left_out() -> None:
    assert parse_durations({"7": 1, "129": 2}) == {7: 1, 129: 2}
    for name in ("-1", "4096", "01", "\u0661", ""):
        assert parse_durations({"7": 1, name: 2}) == {}

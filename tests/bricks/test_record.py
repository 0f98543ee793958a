"""Known bricks have categories and aliases; buckets of durations are as fine as promised."""

import json
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.bricks import BrickProfiler, brick, record, start, stop
from pytest_flamegate.core.errors import ToolError


def test_aliases_resolve_to_known_bricks() -> None:
    for alias, name in record.ALIASES.items():
        assert alias not in record.KNOWN_BRICKS
        assert record.resolve_alias(alias) == name
        assert record.find_category(alias) == record.KNOWN_BRICKS[name]
    assert record.resolve_alias("Quantize") == "Quantize"
    assert record.find_category("Quantize") == "Other"


DURATIONS = st.integers(0, 10**15)


@given(DURATIONS)
def test_middle_of_a_bucket_is_within_one_percent(duration_ns: int) -> None:
    number = record.find_bucket(duration_ns)
    assert record.find_bucket(record.compute_bucket_middle_ns(number)) == number
    assert abs(record.compute_bucket_middle_ns(number) - duration_ns) <= 0.008 * duration_ns
    low, high = record.compute_bucket_bounds_ns(number)
    assert low <= duration_ns <= high
    assert record.find_bucket(low) == record.find_bucket(high) == number
    assert record.find_bucket(high + 1) == number + 1


@given(st.lists(DURATIONS, min_size=1))
def test_quantiles_are_those_of_the_durations(durations_ns: list[int]) -> None:
    counts = Counter(map(record.find_bucket, durations_ns))
    low, high = statistics.median_low(durations_ns), statistics.median_high(durations_ns)
    assert 0.992 * low - 1 <= record.compute_quantile_ns(counts, 0.5) <= 1.008 * high + 1
    for part, extreme_ns in ((0.0, min(durations_ns)), (1.0, max(durations_ns))):
        found = record.compute_quantile_ns(counts, part)
        assert found == record.compute_bucket_middle_ns(record.find_bucket(extreme_ns))
    with pytest.raises(ValueError, match="no call"):
        record.compute_quantile_ns({}, 0.5)


def test_durations_with_an_invalid_bucket_are_left_out() -> None:
    assert record.parse_durations({"7": 1, "129": 2}) == {7: 1, 129: 2}
    for name in ("-1", "4096", "01", "\u0661", ""):
        assert record.parse_durations({"7": 1, name: 2}) == {}


with BrickProfiler(keep_calls=2) as profiler, brick("RmsNorm", elements=8, layer=3, kernel="gemv"):
    stop(start("LmHead"))
RECORDED = profiler.recorded()


def test_report_survives_encoding() -> None:
    for recorded in (RECORDED, replace(RECORDED, calls_left_out=True, unended=1)):
        assert record.decode_recorded(record.encode_recorded(recorded)) == recorded


SPOILED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a missing field": lambda it: it.pop("wall_ns"),
    "beyond 63 bits": lambda it: it["totals"][0].update(total_ns=2**63),
    "an unknown sync mode": lambda it: it.update(sync="always"),
    "a long kernel": lambda it: it["calls"][0].update(kernel="x" * 300),
    "a bucket beyond the last": lambda it: it["totals"][0].update(durations={"4096": 1}),
    "two rows of one brick": lambda it: it["totals"].append(it["totals"][0]),
    "too many calls": lambda it: it.update(calls=it["calls"] * record.MAX_TOKEN_CALLS),
    "a call within itself": lambda it: it["calls"][0].update(parent=0),
    "a parent that is missing": lambda it: it["calls"][0].update(parent=2),
    "an end before the start": lambda it: it["calls"][0].update(end_ns=9),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_invalid_report_raises(spoil: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(record.encode_recorded(RECORDED))
    spoil(document)
    for text in (json.dumps(document), "", "[]", "[" * 100_000):
        with pytest.raises(ToolError, match="E_BAD_BRICKS"):
            record.decode_recorded(text)

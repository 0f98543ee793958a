from __future__ import annotations

import math

import pytest

from pytest_flamegate.core import text as core_text
from pytest_flamegate.report import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 s"),
        (12.0, "12.0 s"),
        (0.9996, "1.00 s"),
        (0.9994, "999 ms"),
        (1.95e-3, "1.95 ms"),
        (0.99996e-3, "1.00 ms"),
        (62e-6, "62.0 µs"),
        (181.4e-6, "181 µs"),
        (9.2e-9, "9.20 ns"),
        (-3e-3, "-3.00 ms"),
        (math.nan, "not finite"),
    ],
)
def test_seconds_take_the_unit_that_reads_best(value: float, shown: str) -> None:
    assert text.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.716, "71.6 %"),
        (1.0, "100.0 %"),
        (0.0, "0.0 %"),
        (0.0004, "< 0.1 %"),
        (0.0005, "0.1 %"),
        (math.inf, "not finite"),
    ],
)
def test_shares(value: float, shown: str) -> None:
    assert text.share(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5126, "0.513"),
        (518.2, "518"),
        (48.07, "48.1"),
        (0, "0"),
        (12345.6, "12,346"),
        (9.996, "10.0"),
        (99.96, "100"),
        (1.0e17, "100,000,000,000,000,000"),
        (1.0e300, "1.00e+300"),
        (5e-324, "4.94e-324"),
        (math.nan, "not finite"),
    ],
)
def test_significant_digits(value: float, shown: str) -> None:
    assert core_text.significant(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(6.2, "6.2"), (5.0, "5"), (-0.01, "0"), (1000.0, "1,000"), (60.0, "60")]
)
def test_tidy(value: float, shown: str) -> None:
    assert text.tidy(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(1383.4e-6, "1,383"), (62e-6, "62"), (9.87e-6, "9.9"), (0.0, "0")]
)
def test_micros(value: float, shown: str) -> None:
    assert text.micros(value) == shown


def test_plural() -> None:
    assert text.plural(1, "sample") == "1 sample"
    assert text.plural(1312, "sample") == "1,312 samples"
    assert text.plural(8, "process", "processes") == "8 processes"

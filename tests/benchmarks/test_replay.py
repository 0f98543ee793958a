import math

import pytest

from benchmarks.replay import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    drawn,
)
from tests.benchmarks.made import pairs


def test_sides_are_exchanged_only_where_they_are_the_same_code() -> None:
    def slower(effect_pct: float) -> float:
        made = pairs(*[10.0] * 20, effect_pct=effect_pct)
        found = [each.difference > 0 for sample in drawn(made, 10, 100) for each in sample]
        return sum(found) / len(found)

    assert slower(10.0) == 1.0
    assert 0.4 < slower(0.0) < 0.6


def test_bounds_of_some_hits() -> None:
    # The tables: 3 of 20 is at most 34.4 %, at least 4.2 %, each with 95 % confidence.
    assert clopper_pearson_upper(3, 20) == pytest.approx(0.34366, abs=1e-5)
    assert clopper_pearson_lower(3, 20) == pytest.approx(0.04217, abs=1e-5)
    assert clopper_pearson_upper(5, 5) == 1.0
    assert clopper_pearson_lower(0, 5) == 0.0
    assert clopper_pearson_lower(5, 5) == pytest.approx(math.pow(0.05, 0.2))

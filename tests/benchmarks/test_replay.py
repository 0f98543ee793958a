import itertools
import math
from collections.abc import Sequence

import pytest

from benchmarks.replay import (
    BLOCK,
    ENOUGH,
    Method,
    Outcome,
    clopper_pearson_lower,
    clopper_pearson_upper,
    drawn,
    in_order,
    replay,
)
from benchmarks.streams import Pair
from tests.benchmarks.made import pair, pairs


def seen(most: int, uses: int) -> tuple[Method, list[list[float]]]:
    """A method that notes what it was given and uses the first ``uses`` pairs of it."""
    given: list[list[float]] = []

    def judge(of: Sequence[Pair]) -> Outcome:
        given.append([each.took_s for each in of])
        return Outcome("pass", uses, sum(each.took_s for each in of[:uses]))

    return Method("noting", most, judge), given


def numbered(count: int) -> list[Pair]:
    return [pair(took_s=1.0 + i, effect_pct=1.0) for i in range(count)]


def test_gates_in_order_share_no_pair_and_are_never_cut_short() -> None:
    method, given = seen(most=4, uses=3)
    assert [each.pairs for each in in_order(method, numbered(9))] == [3, 3]
    assert given == [[1, 2, 3, 4], [4, 5, 6, 7]]


def test_draws_repeat_and_come_in_blocks() -> None:
    made = numbered(20)
    once = [[each.took_s for each in sample] for sample in drawn(made, 12, 50)]
    again = [[each.took_s for each in sample] for sample in drawn(made, 12, 50)]
    assert once == again
    assert len(once) == 50
    for sample in once:
        assert len(sample) == 12
        steps = [(b - a) % 20 for a, b in itertools.pairwise(sample)]
        assert all(step == 1 for i, step in enumerate(steps) if (i + 1) % BLOCK)
    assert len({sample[0] for sample in once}) > 5


def test_sides_are_exchanged_only_where_they_are_the_same_code() -> None:
    def slower(effect_pct: float) -> float:
        made = pairs(*[10.0] * 20, effect_pct=effect_pct)
        found = [each.difference > 0 for sample in drawn(made, 10, 100) for each in sample]
        return sum(found) / len(found)

    assert slower(10.0) == 1.0
    assert 0.4 < slower(0.0) < 0.6


def test_a_long_cell_is_replayed_in_order_and_a_short_one_drawn() -> None:
    method, _ = seen(most=3, uses=2)
    long = replay(method, numbered(2 * ENOUGH + 1))
    assert (long.drawn, len(long.outcomes)) == (False, ENOUGH)
    short = replay(method, numbered(2 * ENOUGH))
    assert (short.drawn, len(short.outcomes)) == (True, method.draws)


def test_bounds_of_some_hits() -> None:
    # The tables: 3 of 20 is at most 34.4 %, at least 4.2 %, each with 95 % confidence.
    assert clopper_pearson_upper(3, 20) == pytest.approx(0.34366, abs=1e-5)
    assert clopper_pearson_lower(3, 20) == pytest.approx(0.04217, abs=1e-5)
    assert clopper_pearson_upper(5, 5) == 1.0
    assert clopper_pearson_lower(0, 5) == 0.0
    assert clopper_pearson_lower(5, 5) == pytest.approx(math.pow(0.05, 0.2))

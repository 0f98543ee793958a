import random
from collections.abc import Callable, Sequence

import pytest

from benchmarks.replay import Method
from benchmarks.textbook import (
    FIRST,
    mann_whitney_fixed,
    mann_whitney_peeking,
    mann_whitney_says_slower,
    welch_fixed,
    welch_peeking,
    welch_says_slower,
)
from tests.benchmarks.made import pair

Says = Callable[[Sequence[float], Sequence[float]], bool]


def test_welch_at_its_bound() -> None:
    # Variance 1 and 3 a side: t = d / sqrt(4/3), df 4; the bound at 1 % is 3.747 of that.
    base, head = [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]
    bound = 3.746947 * (2 / 3) ** 0.5
    assert welch_says_slower(base, [each + bound * 1.001 for each in head])
    assert not welch_says_slower(base, [each + bound * 0.999 for each in head])
    assert not welch_says_slower([each + 9.0 for each in base], head)


@pytest.mark.parametrize(
    ("count", "least"),
    # Counted by hand: of 252 orders of five a side one has U = 25, one 24, two 23, so 24 has
    # 0.8 % and 23 has 1.6 %; of 70 of four a side each has 1.4 %.
    [(5, 24), (4, None), (3, None)],
)
def test_mann_whitney_counts_small_samples_out(count: int, least: int | None) -> None:
    for lost in range(3):  # so many bases above the smallest head
        base = [float(i) for i in range(count)]
        head = [100.0 + i for i in range(count)]
        head[0] = base[count - lost] - 0.5 if lost else head[0]
        expected = least is not None and count * count - lost >= least
        assert mann_whitney_says_slower(base, head) is expected


def test_mann_whitney_counts_a_tie_half() -> None:
    assert not mann_whitney_says_slower([1.0] * 10, [1.0] * 10)
    assert mann_whitney_says_slower([1.0] * 10, [1.0, *[2.0] * 9])


@pytest.mark.parametrize(
    ("says", "peeking"),
    [(welch_says_slower, welch_peeking), (mann_whitney_says_slower, mann_whitney_peeking)],
)
def test_peeking_stops_at_the_first_yes_of_the_test(
    says: Says, peeking: Callable[[int], Method]
) -> None:
    rng = random.Random(5)
    most, stopped = 24, set()
    for trial in range(60):
        made = [
            pair(rng.gauss(100.0, 4.0), rng.gauss(101.0 + trial / 15, 4.0)) for _ in range(2 * most)
        ]
        base = [each.base.cpu_s for each in made[::2]]
        head = [each.head.cpu_s for each in made[1::2]]
        yes = (k for k in range(FIRST, most + 1) if says(base[:k], head[:k]))
        expected = next(yes, None)
        found = peeking(most).judge(made)
        assert found.decision == ("regressed" if expected else "pass")
        assert found.pairs == 2 * (expected or most)
        assert found.took_s == pytest.approx(2.0 * (expected or most))
        stopped.add(expected)
    assert len(stopped) > 5


def test_sides_that_alternate_and_sides_of_pairs() -> None:
    # Only every second head is slow, and those are the ones that alternating processes meet.
    made = [pair(1.0 + i / 1000, (2.0 if i % 2 else 1.0) + i / 1000) for i in range(20)]
    for method, given, most, part, decision in (
        (welch_fixed(10), made, 20, 0.5, "regressed"),
        (mann_whitney_fixed(10, paired=True), made[:10], 10, 1.0, "pass"),
    ):
        assert (method.most, method.part) == (most, part)
        found = method.judge(given)
        assert found.decision == decision
        assert found.took_s == pytest.approx(20.0)

from collections.abc import Callable, Sequence

import pytest

from benchmarks.textbook import (
    mann_whitney_says_slower,
    welch_says_slower,
)

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

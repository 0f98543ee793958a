import pytest

from benchmarks.textbook import mann_whitney_says_slower, welch_says_slower


def test_welch_at_its_bound() -> None:
    # Variance 1 and 3 a side: t = d / sqrt(4/3), df 4; the bound at 1 % is 3.747 of that.
    base, head = [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]
    bound = 3.746947 * (2 / 3) ** 0.5
    assert welch_says_slower(base, [each + bound * 1.001 for each in head])
    assert not welch_says_slower(base, [each + bound * 0.999 for each in head])


# Counted by hand: of 252 orders of five a side one has U = 25, one 24, two 23, so 24 has 0.8 %
# and 23 has 1.6 %; of 70 of four a side each has 1.4 %.
@pytest.mark.parametrize(
    ("count", "lost", "expected"), [(5, 0, True), (5, 1, True), (5, 2, False), (4, 0, False)]
)
def test_mann_whitney_at_its_bound(count: int, lost: int, expected: bool) -> None:
    base = [float(i) for i in range(count)]
    head = [100.0 + i for i in range(count)]
    if lost:
        head[0] = base[count - lost] - 0.5
    assert mann_whitney_says_slower(base, head) is expected
    assert not mann_whitney_says_slower([1.0] * 10, [1.0] * 10)

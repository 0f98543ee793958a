import pytest

from benchmarks.aa import Counted, allowed, deviates, inclusive, itself
from tests.profile.profiles import native, profile

A, B, C = (native(name, "lib.so") for name in "abc")


def test_a_deviate_is_the_difference_in_binomial_standard_errors() -> None:
    # Shares of 60 % and 50 % of 100: 0.1 over sqrt(0.55 · 0.45 · 2 / 100), and its mirror.
    found = deviates(Counted({A: 60, B: 40}, 100), Counted({A: 50, B: 50}, 100))
    assert found == pytest.approx([1.42134, -1.42134], abs=1e-5)
    assert allowed(3.0) == pytest.approx(0.0027, abs=1e-5)


def test_frames_with_few_samples_or_with_all_of_them_are_left_out() -> None:
    one, other = Counted({A: 100, B: 9}, 100), Counted({A: 100, B: 9, C: 20}, 100)
    assert len(deviates(one, other)) == 1
    assert deviates(one, other)[0] < -4
    assert deviates(Counted({A: 12}, 100), Counted({A: 10}, 90))
    assert not deviates(Counted({A: 9}, 100), Counted({A: 10}, 90))


def test_recursion_counts_once() -> None:
    taken = profile({(A, B, B): 3, (A, A): 2})
    assert itself(taken) == Counted({B: 3, A: 2}, 5)
    assert inclusive(taken) == Counted({A: 5, B: 3}, 5)

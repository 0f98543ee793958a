import pytest

from benchmarks.peers import (
    WARM_UP,
    pytest_benchmark,
)
from benchmarks.streams import Pair, Process


def of_walls(base: list[float], head: list[float]) -> list[Pair]:
    """The pair before, with its base's rounds, and the one judged, with its head's."""
    warm = [9.0] * WARM_UP
    stored, now = Process(1.0, 1.0, (*warm, *base)), Process(1.0, 1.0, (*warm, *head))
    other = Process(1.0, 1.0, (5.0,) * 6)
    before = Pair(0.0, "quiet", 0.0, 2.0, stored, other)
    return [before, Pair(0.0, "quiet", 2.0, 3.0, other, now)]


@pytest.mark.parametrize(
    ("check", "head", "decision"),
    [
        ("mean:5%", [1.04, 2.08], "pass"),
        ("mean:5%", [1.06, 2.12], "regressed"),
        ("mean:5%", [1.0, 2.5], "regressed"),
        ("min:5%", [1.0, 2.5], "pass"),
        ("min:5%", [1.06, 1.94], "regressed"),
        ("mean:5%", [1.06, 1.94], "pass"),
        ("mean:5%", [0.5, 0.5], "pass"),
    ],
)
def test_pytest_benchmark_compares_one_process_with_the_stored_one(
    check: str, head: list[float], decision: str
) -> None:
    method = pytest_benchmark(check)
    found = method.judge(of_walls([1.0, 2.0], head))
    assert found.decision == decision
    assert (method.most, found.pairs, found.took_s) == (2, 2, 1.5)

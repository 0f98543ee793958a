import pytest

from benchmarks.peers import (
    HISTORY,
    RUNS,
    WARM_UP,
    inference_doctor,
    perfguard,
    pytest_benchmark,
)
from benchmarks.replay import Method
from benchmarks.streams import Pair, Process
from tests.benchmarks.made import pairs

QUIET = [0.1, -0.1, 0.2, -0.2, 0.0] * 8
"""Percent by which heads of unchanged code differ here."""


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


@pytest.mark.parametrize(("pct", "decision"), [(14.0, "pass"), (16.0, "regressed")])
def test_perfguard_fails_above_fifteen_percent(pct: float, decision: str) -> None:
    pytest.importorskip("pytest_perfguard", reason="pip install pytest-perfguard")
    method = perfguard()
    assert isinstance(method, Method)
    found = method.judge(pairs(*QUIET[:HISTORY], pct))
    assert (found.decision, found.took_s) == (decision, 1.0)


@pytest.mark.parametrize("clock", ["wall", "cpu"])
@pytest.mark.parametrize(("pct", "decision"), [(0.0, "pass"), (20.0, "regressed")])
def test_inference_doctor_judges_rates(clock: str, pct: float, decision: str) -> None:
    pytest.importorskip("inference_doctor", reason="pip install inference-doctor")
    method = inference_doctor(5.0, clock=clock)
    assert isinstance(method, Method)
    found = method.judge(pairs(*(pct + each for each in QUIET[: 2 * RUNS])))
    assert (found.decision, found.pairs, found.took_s) == (decision, 2 * RUNS, 10.0)

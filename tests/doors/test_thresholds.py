"""Thresholds from the project's configuration, the workload's declaration and the marker."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import BrickBudget, Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.pytest_.gatekeeper import Gatekeeper
from tests.doors.project import Project, workload

KEYS = "[pytest]\nflamegate_tokens_per_second = 7%\nflamegate_hotspots = a=1pp, *=4pp\n"
OWN = {
    "tokens_per_second": '"9%"',
    "hotspots": '{ a = "2pp" }',
    "bricks": '{ RmsNorm = "1us", LmHead = "9%" }',
}
TESTS = """
import pytest
import toy

def test_measured(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens=1)

def test_run(flamegate):
    flamegate.run("own")

@pytest.mark.flamegate(tokens_per_second="2%", hotspots={"b": "3pp"})
class TestMarked:
    def test_measured(self, flamegate):
        flamegate.measure(toy.generate, prompt="x", max_tokens=1)

    @pytest.mark.flamegate(bricks={"RmsNorm": ["2us", "5%"], "*": "20%"})
    def test_run(self, flamegate):
        flamegate.run("own")
"""


def test_the_marker_wins_over_the_workload_and_that_over_the_project(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated: dict[str, Thresholds] = {}

    def gate(keeper: Gatekeeper, item: pytest.Item, workload: Workload, call: Any = None) -> Any:
        gated[item.nodeid] = workload.thresholds
        return SimpleNamespace(receipt=None)

    monkeypatch.setattr(Gatekeeper, "gate", gate)
    # Nothing was gated, and nobody is to complain of it.
    monkeypatch.setattr(Gatekeeper, "pytest_runtest_call", lambda _: None)
    project.write("pytest.ini", KEYS)
    project.declare(workload("silent"), workload("own", **OWN))
    project.write("test_a.py", TESTS)
    project.ask("--flamegate", ".", "embedded::1tok").assert_outcomes(passed=7)
    of_the_project = Thresholds(7.0, {"a": 1.0, "*": 4.0})
    budgets = {"RmsNorm": BrickBudget(1.0), "LmHead": BrickBudget(growth_pct=9.0)}
    own = Thresholds(9.0, {"a": 2.0, "*": 4.0}, budgets)
    marked = {**budgets, "RmsNorm": BrickBudget(2.0, 5.0), "*": BrickBudget(growth_pct=20.0)}
    assert gated == {
        "flamegate.toml::silent": of_the_project,
        "flamegate.toml::own": own,
        "embedded::1tok": of_the_project,
        "test_a.py::test_measured": of_the_project,
        "test_a.py::test_run": own,
        "test_a.py::TestMarked::test_measured": Thresholds(2.0, {"a": 1.0, "*": 4.0, "b": 3.0}),
        "test_a.py::TestMarked::test_run": Thresholds(2.0, {"a": 2.0, "*": 4.0, "b": 3.0}, marked),
    }

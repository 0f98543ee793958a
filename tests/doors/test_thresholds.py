"""Thresholds from the project's configuration, the workload's declaration and the marker."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import BrickBudget, Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.pytest_.gatekeeper import Gatekeeper
from tests.doors.project import Project, workload

KEYS = "[pytest]\nflamegate_tokens_per_second = 7%\nflamegate_hotspots = a=1pp, *=4pp\n"
OF_THE_PROJECT = Thresholds(7.0, {"a": 1.0, "*": 4.0})
OF_THE_MARKER = Thresholds(2.0, {"a": 1.0, "*": 4.0, "b": 3.0})
TESTS = """
import pytest
import toy

def test_measured(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens=1, name="measured")

def test_run(flamegate):
    flamegate.run("own")

@pytest.mark.flamegate(tokens_per_second="2%", hotspots={"b": "3pp"})
class TestMarked:
    def test_measured(self, flamegate):
        flamegate.measure(toy.generate, prompt="x", max_tokens=1, name="measured-marked")

    def test_run(self, flamegate):
        flamegate.run("silent")
"""


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> dict[str, Thresholds]:
    """The thresholds of every workload, by its name; nothing is measured."""
    found: dict[str, Thresholds] = {}

    def gate(keeper: Gatekeeper, item: pytest.Item, workload: Workload, call: Any = None) -> Any:
        found[workload.name] = workload.thresholds
        return SimpleNamespace(receipt=None)

    monkeypatch.setattr(Gatekeeper, "gate", gate)
    # Nothing was gated, and nobody is to complain of it.
    monkeypatch.setattr(Gatekeeper, "pytest_runtest_call", lambda _: None)
    return found


def test_items_have_those_of_the_project_where_they_declare_none(
    project: Project, gated: dict[str, Thresholds]
) -> None:
    project.write("pytest.ini", KEYS)
    own = workload("own", tokens_per_second='"9%"', hotspots='{ a = "2pp" }')
    project.declare(workload("silent"), own)
    project.ask("--flamegate", "flamegate.toml", "embedded::1tok").assert_outcomes(passed=3)
    assert gated == {
        "silent": OF_THE_PROJECT,
        "own": Thresholds(9.0, {"a": 2.0, "*": 4.0}),
        "1tok": OF_THE_PROJECT,
    }


def test_the_marker_wins_over_both(project: Project, gated: dict[str, Thresholds]) -> None:
    project.write("pytest.ini", KEYS)
    own = workload("own", tokens_per_second='"9%"')
    project.declare(workload("silent", tokens_per_second='"8%"'), own)
    project.write("test_a.py", TESTS)
    project.ask("--flamegate", "test_a.py").assert_outcomes(passed=4)
    assert gated == {
        "measured": OF_THE_PROJECT,
        "own": Thresholds(9.0, OF_THE_PROJECT.hotspots_pp),
        "measured-marked": OF_THE_MARKER,
        "silent": OF_THE_MARKER,
    }


def test_budgets_of_bricks_are_the_workload_s_and_the_marker_s(
    project: Project, gated: dict[str, Thresholds]
) -> None:
    project.declare(workload("own", bricks='{ RmsNorm = "1us", LmHead = "9%" }'))
    mark = '@pytest.mark.flamegate(workload="own", bricks={"RmsNorm": ["2us", "5%"], "*": "20%"})'
    test = "def test_run(flamegate): flamegate.run()"
    project.write("test_a.py", f"import pytest\n{mark}\n{test}\n")
    project.ask("--flamegate", "test_a.py").assert_outcomes(passed=1)
    assert gated["own"].bricks == {
        "RmsNorm": BrickBudget(2.0, 5.0),
        "LmHead": BrickBudget(growth_pct=9.0),
        "*": BrickBudget(growth_pct=20.0),
    }

"""``flamegate calibrate``: its file, its words."""

import json
from typing import Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.observe.engine_process import ProcessTime
from tests.commands.asked import Command
from tests.doors.project import Project, workload
from tests.run.fakes import World

QUICK = ("calibrate", "--pairs=10", "--budget=120")
ANY, NO_MACHINE = '"90%"', '"0.001%"'
"""A drop that any machine holds, and one that none does."""


def document(project: Project, name: str = "toy") -> dict[str, Any]:
    (path,) = project.artifacts.glob(f"calibration/*/{name}.json")
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["machine_id"] == path.parent.name
    return found


def test_a_calibration_is_stored_and_replaced(
    project: Project, world: World, command: Command
) -> None:
    project.declare(workload("toy", tokens_per_second=ANY), workload("other", treshold="1"))
    assert main((*QUICK, "toy")) == 0
    found = document(project)
    assert len(found["differences"]) == 10
    printed = command.read().out
    assert "flamegate.toml::toy on " in printed
    assert "10 of the same code" in printed
    assert "noise      sd " in printed
    for seconds in (15, 30, round(COMPARE_BUDGET_S), 110, 300):
        assert f"{seconds} s" in printed
    assert not (project.artifacts / "latest").exists()
    assert "!calibration/" in (project.artifacts / ".gitignore").read_text().splitlines()
    # Again: the file is replaced. A bad declaration does not block it.
    assert "E_UNKNOWN_KEY: " in command(2, *QUICK).err
    assert document(project)["differences"] != found["differences"]
    world.started.clear()
    assert main((*QUICK, "other")) == 2
    assert world.started == []


@pytest.mark.usefixtures("world")
def test_a_threshold_that_no_machine_holds_is_an_error_after_the_calibration(
    project: Project, command: Command
) -> None:
    project.declare(workload("toy", tokens_per_second=NO_MACHINE))
    error = command(4, *QUICK).err
    assert "E_THRESHOLD_TOO_SMALL: This machine cannot hold toy to " in error
    assert document(project)["workload"] == "toy"


def test_a_workload_that_cannot_be_calibrated_leaves_nothing(
    project: Project, world: World, command: Command
) -> None:
    project.declare(workload("toy"))
    world.base_tokens = ("1", *world.tokens[1:])
    assert "E_TOKENS_DIFFER: " in command(4, *QUICK).err
    world.base_tokens, world.process_time = world.tokens, ProcessTime(0.3, 3.0, repeats=True)
    assert "E_FEW_PROCESSES: " in command(4, *QUICK[:2], "--budget=8").err
    world.fail(ToolError("E_ENGINE_RAISED", "It raised.", "Repair it."))
    assert "E_ENGINE_RAISED: It raised." in command(5, *QUICK).err
    assert not project.artifacts.exists()


@pytest.mark.parametrize("option", ["--pairs=9", "--budget=0", "nowhere"])
def test_a_usage_error_has_a_code(project: Project, option: str, command: Command) -> None:
    project.declare(workload("toy"))
    assert "E_" in command(2, "calibrate", option).err
    assert not project.artifacts.exists()

"""``flamegate selftest``: its cases, its output and its exit code; the nightly run is measured."""

import json
import sys
from pathlib import Path

import pytest

from pytest_flamegate.commands import accuracy
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.run import instruments
from tests.commands.asked import PROGRAM, Command
from tests.doors.project import Project, workload
from tests.run.fakes import World


def test_everything_is_as_expected(
    project: Project, world: World, own_tmp: Path, command: Command
) -> None:
    document = json.loads(command(0, "selftest", "--format=json").out)
    assert (document["workload"], document["frame"]) == ("embedded::passage", "ternary_gemv")
    assert (document["profiler"], document["extra_pct"]) == ("py-spy", 150.0)
    assert "can be trusted" in document["advice"]
    assert {case["result"] for case in document["cases"]} == {"ok"}
    assert len(document["cases"]) == 17
    assert not project.artifacts.exists()
    assert not list(own_tmp.glob("flamegate-*"))


def test_a_program_without_a_profiler_shows_less(
    project: Project, world: World, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    def fail(*_: object) -> None:
        raise ToolError("E_NO_PROFILER", "No profiler works.", "Install one.")

    monkeypatch.setattr(instruments, "choose_profiler", fail)
    project.declare('[workloads.p]\ncommand = ["true"]\nprompt = "p"\nmax_tokens = 8\n')
    lines = command(4, "selftest", "p").out.splitlines()
    assert lines[0] == "flamegate selftest: flamegate.toml::p · no profiler"
    assert lines[2].split("  ")[0] == "case"
    assert any("E_BAD_INJECTION" in line for line in lines)
    (same,) = (line for line in lines if "pass, exit code 0" in line and "twice" in line)
    assert "ok" in same.split()
    (counted,) = (line for line in lines if " as expected, " in line)
    assert "left out" in counted
    assert "failed" not in counted.partition(". ")[0]
    # A profiler that is named must work.
    assert "E_NO_PROFILER: " in command(5, "selftest", "p", "--profiler=perf").err


def test_the_budget_of_a_gate_is_not_that_of_a_comparison(
    project: Project, world: World, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    budgets: list[float | None] = []

    def stop(_workload: object, _injection: object, settings: Settings, *_: object) -> None:
        budgets.append(settings.budget_s)
        raise ToolError("E_STOPPED", "Far enough.", "None.")

    monkeypatch.setattr(accuracy, "open_bench", stop)
    project.write("pytest.ini", "[pytest]\nflamegate_budget = 5\n")
    for given in ((), ("--budget=7",)):
        command(5, "selftest", *given)
    assert budgets == [None, 7.0]
    assert "E_BAD_OPTION" in command(2, "selftest", "--budget=soon").err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("toy",), "E_BAD_INJECTION"),
        (("embedded",), "E_UNKNOWN_WORKLOAD"),
        (("--extra=much",), "E_BAD_INJECTION"),
        (("--extra=-5%",), "E_BAD_INJECTION"),
        (("nothing",), "E_UNKNOWN_WORKLOAD"),
    ],
)
@pytest.mark.usefixtures("world")
def test_usage_errors(
    arguments: tuple[str, ...], code: str, project: Project, command: Command
) -> None:
    project.declare(workload("toy"))
    assert f"{code}: " in command(2, "selftest", *arguments).err


def test_a_function_that_does_not_exist_is_reported_first(
    project: Project, world: World, command: Command
) -> None:
    world.fail(UsageError("E_UNKNOWN_FRAME", "There is no such function.", "Name another."))
    printed = command(2, "selftest", "--frame=nothing")
    assert "E_UNKNOWN_FRAME: " in printed.err
    assert printed.out == ""
    assert not project.artifacts.exists()


TOY = """\
def light(x):
    for _ in range(2500):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def heavy(x):
    for _ in range(5000):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def generate(prompt, max_tokens):
    x = 1
    for _ in range(max_tokens):
        x = heavy(light(x))
        yield x % 100
"""


@pytest.mark.measures
@pytest.mark.nightly
@pytest.mark.usefixtures("py_spy")
def test_a_python_workload(project: Project) -> None:
    project.write("toy.py", TOY)
    project.declare(workload("toy", max_tokens="20"))
    arguments = ("selftest", "toy", "--frame=heavy")
    options = ("--budget=5", "--profiler=py-spy", "--format=json")
    program = (sys.executable, "-W", "error", "-c", PROGRAM)
    done = project.pytester.run(*program, *arguments, *options, timeout=400)
    output = done.stdout.str()
    assert output, done.stderr.str()
    results = {case["name"]: case["result"] for case in json.loads(output)["cases"]}
    # A slowdown by two thirds stands out of any noise; for less there is "undecided".
    assert results.pop("slowed") == "ok", output
    assert results.pop("named") == "ok", output
    noisy = {"size", "share", "backwards", "neighbours", "small", "same code", "no blame"}
    assert {results.pop(name) for name in noisy} <= {"ok", "undecided"}, output
    assert set(results.values()) == {"ok"}, output
    assert not project.artifacts.exists()

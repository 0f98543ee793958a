"""``flamegate selftest``: what it tries for real, what it prints and how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.cli import main
from tests.doors.project import workload
from tests.doors.test_interrupt import interrupt

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doors.project import Project

pytestmark = pytest.mark.measures


_PROGRAM = "import sys; from pytest_flamegate.cli import main; sys.exit(main())"
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
MEASURED = ("slowed", "named", "same code", "faster", "neighbours")


def selftest(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: what measures starts and reaps processes."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, "selftest", *arguments],
        cwd=project.path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the document, and the result of each case by its name."""
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode
    return document, {each["name"]: each["result"] for each in document["cases"]}


def untouched(project: Project, own_tmp: Path) -> None:
    assert not project.artifacts.exists()
    assert not list(own_tmp.glob("flamegate-*"))


@pytest.mark.usefixtures("py_spy")
def test_a_python_workload(project: Project, own_tmp: Path) -> None:
    project.write("toy.py", TOY)
    project.declare(workload("toy", max_tokens="20"))
    arguments = ("--frame=heavy", "--other=light", "--extra=100%", "--budget=5")
    done = selftest(project, "toy", *arguments, "--profiler=py-spy", "--format=json")
    document, results = told(done)
    assert (document["workload"], document["frame"]) == ("flamegate.toml::toy", "heavy")
    assert document["profiler"] == "py-spy"
    # A slowdown by two thirds stands out of any noise; for less there is "undecided".
    assert results.pop("slowed") == "ok", done.stdout
    assert results.pop("named") == "ok", done.stdout
    noisy = {results.pop(name) for name in MEASURED[2:]}
    assert "left out" not in noisy, done.stdout
    assert set(results.values()) == {"ok"}, done.stdout
    assert len(results) == 12
    untouched(project, own_tmp)


def test_a_program_without_a_profiler(project: Project, own_tmp: Path) -> None:
    code = "import sys; sys.stdout.write('12345678')"
    command = f'engine = "command"\ncommand = ["{sys.executable}", "-c", "{code}"]\n'
    project.write("flamegate.toml", f'[workloads.p]\n{command}prompt = "p"\nmax_tokens = 8\n')
    done = selftest(project, "p", "--budget=2", "--profiler=none")
    lines = done.stdout.splitlines()
    # It shows less than all of it, and so is no success.
    assert done.returncode == 4, done.stdout + done.stderr
    assert lines[0] == "flamegate selftest: flamegate.toml::p · no profiler"
    assert lines[2].split("  ")[0] == "what was done"
    assert "E_BAD_INJECTION" in done.stdout
    (swapped,) = (line for line in lines if line.startswith("base and head exchanged"))
    assert swapped.split()[-1] == "ok"
    (counted,) = (line for line in lines if " as expected, " in line)
    assert "left out" in counted
    assert "different" not in counted
    untouched(project, own_tmp)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("toy",), "E_BAD_INJECTION"),
        (("--extra=much",), "E_BAD_INJECTION"),
        (("--frame=rope", "--other=rope"), "E_SAME_FRAME"),
        (("nothing",), "E_UNKNOWN_WORKLOAD"),
        (("--profiler=gprof",), "E_BAD_OPTION"),
    ],
)
def test_what_means_nothing_is_a_usage_error(
    arguments: tuple[str, ...], code: str, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.declare(workload("toy"))
    assert main(["selftest", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"{code}: ")


@pytest.mark.parametrize("option", ["--frame=nothing", "--other=nothing"])
def test_a_function_that_is_not_there_is_said_at_once(option: str, project: Project) -> None:
    done = selftest(project, option, "--profiler=none")
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("E_UNKNOWN_FRAME: ")
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_profiler_that_was_asked_for_has_to_be_there(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project.path))
    done = selftest(project, "--profiler=perf")
    assert done.returncode == 5, done.stdout + done.stderr
    assert done.stderr.startswith("E_PROFILER_ABSENT: ")


def test_interrupted_it_leaves_nothing(project: Project, own_tmp: Path) -> None:
    project.write(
        "slow.py",
        "import time\n"
        "def generate(prompt, max_tokens):\n"
        "    open('began', 'w').close()\n"
        "    yield 1\n"
        "    time.sleep(600)\n",
    )
    project.declare(workload("slow").replace("toy:generate", "slow:generate"))
    asked = ["selftest", "slow", "--frame=generate", "--budget=1", "--profiler=none"]
    status, words = interrupt(["-c", _PROGRAM, *asked], project)
    assert status == 130
    assert "flamegate: interrupted" in words
    assert "Traceback" not in words
    untouched(project, own_tmp)

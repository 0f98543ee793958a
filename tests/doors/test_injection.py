"""``--flamegate-inject`` from the command line to the receipt and the profile."""

import sys
from typing import Any

import pytest

from tests.doors.project import SEEN, Project


def share(document: dict[str, Any], name: str) -> float:
    processes = document["profile"]["processes"]
    own = sum(process["self_samples"].get(name, 0) for process in processes)
    return float(own / sum(process["samples"] for process in processes))


@pytest.mark.measures
@pytest.mark.nightly
@pytest.mark.usefixtures("py_spy")
def test_a_profile_of_the_embedded_engine_shows_the_extra_work(project: Project) -> None:
    project.run(*SEEN, "embedded::10tok").assert_outcomes(passed=1)
    usual = project.document("10tok")
    assert "injection" not in usual["workload"]
    slowed_options = (*SEEN, "--flamegate-inject=attention:+1000%", "embedded::10tok")
    project.run(*slowed_options).assert_outcomes(passed=1)
    slowed = project.document("10tok")
    assert slowed["workload"]["injection"] == "attention:+1000%"
    assert slowed["token_digest"] == usual["token_digest"]
    assert share(slowed, "attention") > 2 * share(usual, "attention")


@pytest.mark.usefixtures("world")
def test_workloads_without_functions_of_python_are_errors(project: Project) -> None:
    command = f'engine = "command"\ncommand = ["{sys.executable}", "-c", "print(1)"]'
    project.declare(f'[workloads.toy]\n{command}\nprompt = "p"\nmax_tokens = 1\n')
    project.write(
        "test_call.py",
        "import toy\n"
        "def test_it(flamegate):\n"
        "    flamegate.measure(toy.generate, prompt='p', max_tokens=4)\n",
    )
    inject = ("--flamegate", "--flamegate-inject=hash_round:+10%")
    result = project.ask(*inject)
    result.assert_outcomes(failed=2)
    for name in ("flamegate.toml::toy", "test_call.py::test_it"):
        result.stdout.fnmatch_lines([f"FAILED {name} - error: *Python target only*"])
    project.ask(*inject, "embedded::10tok").assert_outcomes(passed=1)

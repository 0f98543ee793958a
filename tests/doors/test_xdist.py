"""Under ``-n 2``: the results of all workers are in one summary. Processes are fakes."""

from pathlib import Path

import pytest

from tests.doors.project import Project, workload
from tests.workload.repositories import git

pytest.importorskip("xdist")

FAKES = f"""
import sys
import pytest

sys.path.insert(0, {str(Path(__file__).parents[2])!r})

from tests.run import fakes

world = fakes.install(pytest.MonkeyPatch())
"""
GATES = """
import conftest
import pytest
import toy

def test_callable(flamegate):
    receipt = flamegate.measure(toy.generate, prompt="2+2=", max_tokens=4, name="own")
    assert receipt.deterministic

def test_broken(flamegate, monkeypatch):
    monkeypatch.setattr(conftest.world, "on_process", conftest.world.on_process)
    conftest.world.fail(OSError(5, "The toy is broken"))
    flamegate.measure(toy.generate, prompt="2+2=", max_tokens=4, name="broken")

def test_plain():
    pass

@pytest.mark.skipif("not config.getoption('flamegate')")
@pytest.mark.flamegate(wrkload="toy")
def test_misspelt():
    pass
"""


def test_results_of_all_workers_are_in_one_summary(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    page = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    project.declare(workload("first"))
    project.write("conftest.py", FAKES)
    project.write("test_own.py", GATES)
    result = project.run("--flamegate", "-n", "2", ".", "embedded::10tok")
    # A marker with an error is an error of its test: it must not end the worker.
    result.assert_outcomes(passed=4, failed=1, errors=1)
    summary = result.stdout.str().partition("= flamegate =")[2]
    rows = {line.split()[0]: line for line in summary.splitlines() if line.strip()}
    verdicts = {"first": "no baseline", "10tok": "no baseline", "own": "no baseline"}
    for name, verdict in {**verdicts, "broken": "error"}.items():
        assert verdict in rows[name]
    assert "ternary_gemv" in rows["first"]
    assert "receipts OBSERVED" in summary
    result.stdout.fnmatch_lines(
        [
            "::error file=test_own.py,title=flamegate%3A broken::error*",
            "FAILED test_own.py::test_broken - error: *toy is broken*",
            "ERROR test_own.py::test_misspelt - *E_MARKER*'wrkload'*",
        ]
    )
    assert summary.count("::error file=") == 1
    assert page.read_text().count("## flamegate") == 1
    assert {record["workload"] for record in project.history()} == {*verdicts, "broken"}
    assert len(project.history()) == 4
    everything = result.stdout.str() + result.stderr.str()
    # One worker says how long it takes; each says what it measures.
    assert everything.count("flamegate: 4 workloads, about ") == 1
    assert "INTERNALERROR" not in everything


TRICKS = """
import os
import subprocess

os.environ.pop("CI", None)
subprocess.run(["git", "tag", "-f", "base", "HEAD"], check=True)
"""
FACTS = """
def test_facts(pytestconfig):
    settings = pytestconfig.pluginmanager.get_plugin("flamegate-gatekeeper").settings
    assert (settings.ci, settings.base) == (True, "{commit}")
"""


def test_a_worker_compares_with_the_commit_that_its_controller_has_found(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under CI as well, although a conftest file denies that and moves the tag."""
    monkeypatch.setenv("CI", "true")
    project.commit()
    git(project.path, "tag", "base")
    commit = git(project.path, "rev-parse", "HEAD").strip()
    project.write("conftest.py", TRICKS)
    project.write("test_facts.py", FACTS.format(commit=commit))
    project.write("pytest.ini", "[pytest]\naddopts = -n 1\n")
    project.commit()
    result = project.run("--flamegate", "--flamegate-against=base", "test_facts.py")
    result.assert_outcomes(passed=1)
    assert git(project.path, "rev-parse", "base").strip() != commit


@pytest.mark.measures
def test_these_tests_have_a_lane_for_what_measures(request: pytest.FixtureRequest) -> None:
    on_a_worker = hasattr(request.config, "workerinput")
    assert request.node.nodeid.endswith("@measures") == on_a_worker

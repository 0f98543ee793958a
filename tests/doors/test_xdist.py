"""Under ``-n 2``: every workload is measured, one after another, and the results merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doors.project import QUICK, SEEN, workload

if TYPE_CHECKING:
    from tests.doors.project import Project

pytestmark = pytest.mark.measures

pytest.importorskip("xdist")

GATES = """
import toy

def test_callable(flamegate):
    receipt = flamegate.measure(toy.generate, prompt="2+2=", max_tokens=4, name="own")
    assert receipt.deterministic

def test_plain():
    pass
"""


@pytest.mark.usefixtures("py_spy")
def test_results_of_all_workers_are_in_one_summary(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    page = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    project.declare(workload("first"), workload("broken", "raises"))
    project.write("test_own.py", GATES)
    result = project.run(*SEEN, "-n", "2")
    result.assert_outcomes(passed=3, failed=1)
    summary = result.stdout.str().partition("= flamegate =")[2]
    rows = {line.split()[0]: line for line in summary.splitlines() if line.strip()}
    for name, verdict in (("first", "no baseline"), ("own", "no baseline"), ("broken", "error")):
        assert verdict in rows[name]
    assert "hash_round" in rows["first"]
    assert "receipts OBSERVED" in summary
    result.stdout.fnmatch_lines(
        [
            "::error file=flamegate.toml,line=6,title=flamegate%3A broken::error*",
            "FAILED flamegate.toml::broken - error: *toy is broken*",
        ]
    )
    assert summary.count("::error file=") == 1
    assert page.read_text().count("## flamegate") == 1
    assert {record["workload"] for record in project.history()} == {"first", "own", "broken"}
    assert len(project.history()) == 3


def test_arguments_reach_the_workers(project: Project) -> None:
    result = project.run(*QUICK, "-n", "2", "embedded::1tok")
    result.assert_outcomes(passed=1)
    assert [record["workload"] for record in project.history()] == ["1tok"]


def test_a_marker_that_is_not_understood_fails_its_test(project: Project) -> None:
    """A usage error in a worker would bring the whole run down with a traceback."""
    project.write(
        "test_a.py", "import pytest\n@pytest.mark.flamegate(wrkload='toy')\ndef test_it(): pass\n"
    )
    result = project.run("--flamegate", "-n", "2", "test_a.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["ERROR test_a.py::test_it - *E_MARKER*'wrkload'*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_nothing_to_measure_when_off(project: Project) -> None:
    project.declare(workload("toy"))
    project.write("test_own.py", GATES)
    project.run("-n", "2").assert_outcomes(passed=1, skipped=1)
    assert not project.artifacts.exists()

"""``--flamegate-report`` and ``flamegate report``: one page for the whole run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.doors.project import QUICK, SEEN, refused, workload
from tests.doors.test_cli import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doors.project import Project

pytestmark = pytest.mark.measures


def words(path: Path) -> str:
    """The text of the page without its scripts, styles and tags."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", path.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


@pytest.mark.usefixtures("py_spy")
def test_every_workload_with_its_verdict_and_flame_graph(project: Project) -> None:
    project.declare(workload("first"), workload("broken", "raises"))
    result = project.run(*SEEN, "--flamegate-report=out/report.html")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["report: out/report.html"])
    page = project.path / "out" / "report.html"
    assert page.read_text("utf-8").count('data-flame="flame-') == 1
    told = words(page)
    for part in ("2 workloads", "first no baseline", "broken error", "toy is broken", "hash_round"):
        assert part in told
    assert not project.path.joinpath(".flamegate", "report.html").exists()


@pytest.mark.usefixtures("py_spy")
def test_the_results_of_all_workers(project: Project) -> None:
    pytest.importorskip("xdist")
    project.declare(workload("first"), workload("second"))
    project.write("pytest.ini", "[pytest]\nflamegate_report = report.html\n")
    project.run(*SEEN, "-n", "2").assert_outcomes(passed=2)
    page = project.path / "report.html"
    assert page.read_text("utf-8").count('data-flame="flame-') == 2
    assert "2 workloads" in words(page)


def test_without_a_profile_or_a_workload(project: Project) -> None:
    project.declare(workload("first"))
    result = project.run(*QUICK, "--flamegate-report=report.html")
    assert "first no baseline" in words(project.path / "report.html")
    assert result.ret == 0
    project.run(*QUICK, "--flamegate-report=report.html", "-k", "nothing")
    assert words(project.path / "report.html").endswith("No workload was measured.")


@pytest.mark.parametrize(
    ("path", "code"), [(".", "E_BAD_OPTION"), ("file.txt/report.html", "E_CANNOT_WRITE")]
)
def test_a_path_that_cannot_be_written_is_said_before_measuring(
    project: Project, path: str, code: str
) -> None:
    project.write("file.txt", "")
    project.declare(workload("first"))
    refused(project.ask(*QUICK, f"--flamegate-report={path}"), code, path.partition("/")[0])
    assert not project.artifacts.exists()


def test_a_path_that_stops_being_writable_fails_the_run(project: Project) -> None:
    project.declare(workload("first"))
    project.write("conftest.py", "def pytest_runtest_teardown():\n    import os\n"
                  "    os.makedirs('report.html', exist_ok=True)\n")  # fmt: skip
    result = project.run(*QUICK, "--flamegate-report=report.html")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["no report was written: E_CANNOT_WRITE: *"])
    assert "Traceback" not in result.stdout.str()


def test_it_does_nothing_alone(project: Project) -> None:
    refused(project.ask("--flamegate-report=report.html"), "E_BAD_OPTION", "--flamegate-report")


@pytest.mark.usefixtures("py_spy")
def test_from_what_lies_there(project: Project) -> None:
    project.declare(workload("first"), workload("broken", "raises"))
    project.run(*SEEN)
    done = run(project.path, "report", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "page.html\n"
    page = project.path / "page.html"
    assert page.read_text("utf-8").count('data-flame="flame-') == 1
    assert "broken error" in words(page)
    # A profile that is not the run's own is not drawn as if it were.
    folded = project.artifacts / "latest" / "first" / "profile.folded"
    folded.write_text(folded.read_text().replace("hash_round", "cheap_round"))
    assert run(project.path, "report", "-o", "page.html").returncode == 0
    assert "There is no flame graph. E_PROFILE_CHANGED" in words(page)
    (project.artifacts / "latest" / "first" / "verdict.json").write_text("{}")
    done = run(project.path, "report", "-o", "page.html")
    assert done.returncode == 0
    assert "cannot be read" in words(page)


def test_nothing_lies_there(project: Project) -> None:
    done = run(project.path, "report")
    assert done.returncode == 2
    assert done.stderr.startswith("E_NO_RUN: ")
    done = run(project.path, "report", "-o", ".")
    assert done.returncode == 2
    assert done.stderr.startswith("E_BAD_OPTION: ")

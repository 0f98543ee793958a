"""Without ``--flamegate``: gate tests are skipped, and that is all that happens."""

import json
import sys

import pytest

from pytest_flamegate.pytest_.fixture import ARGUMENTS
from tests.doors.project import Project, workload

GATED = """
import unittest
import pytest

def test_plain():
    pass

def test_fixture(flamegate):
    raise AssertionError("must not run")

@pytest.mark.flamegate(workload="toy")
def test_marker():
    raise AssertionError("must not run")

@pytest.mark.flamegate(tokens_per_second="3%")
def test_both(flamegate):
    raise AssertionError("must not run")

@pytest.fixture
def receipt(flamegate):
    return flamegate.run("toy")

def test_indirect(receipt):
    raise AssertionError("must not run")

def test_late(request):
    request.getfixturevalue("flamegate")
    raise AssertionError("must not run")

@pytest.mark.flamegate(workload="toy")
class TestMarked:
    def test_method(self):
        raise AssertionError("must not run")

class TestUnit(unittest.TestCase):
    @pytest.mark.flamegate(workload="toy")
    def test_unit(self):
        raise AssertionError("must not run")
"""
LIGHT = {
    "pytest_flamegate",
    "pytest_flamegate.plugin",
    "pytest_flamegate.config",
    "pytest_flamegate.config.options",
}
HEAVY = ("numpy", "jsonschema", "psutil", "py_spy")
_LISTING = """
import json, sys
import pytest
code = pytest.main(sys.argv[1:])
print("MODULES", json.dumps([int(code), sorted(sys.modules)]))
"""


def imported(project: Project, *arguments: str) -> set[str]:
    """Run pytest in a fresh process with every plugin there is; return all modules it loaded."""
    done = project.pytester.run(sys.executable, "-c", _LISTING, "-q", *arguments)
    (line,) = [line for line in done.outlines if line.startswith("MODULES ")]
    code, modules = json.loads(line.removeprefix("MODULES "))
    assert code == 0, done.outlines
    return set(modules)


def test_gate_tests_are_skipped_and_the_workload_file_is_not_read(project: Project) -> None:
    project.write("test_gates.py", GATED)
    project.declare("[workloads.toy\n")
    result = project.ask("-rs", "-v", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=7)
    result.stdout.fnmatch_lines(["SKIPPED*needs --flamegate"])
    result.stdout.no_fnmatch_line("*flamegate.toml*")
    assert not project.artifacts.exists()


def test_nothing_is_imported(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    project.write("test_gates.py", GATED)
    project.declare(workload("toy"))
    with_plugin = imported(project)
    project.write("test_gates.py", "def test_plain(): pass")
    without = imported(project, "-p", "no:flamegate")
    ours = {name for name in with_plugin if name.partition(".")[0] == "pytest_flamegate"}
    assert "pytest_flamegate.plugin" in ours
    assert ours <= LIGHT
    # Another plugin may load one of these for itself; then it is there without this one too.
    added = {name.partition(".")[0] for name in with_plugin - without}
    assert not added & set(HEAVY)
    assert not project.artifacts.exists()


def test_the_marker_is_listed_with_every_argument(project: Project) -> None:
    # The plugin imports nothing, so it has its own list of them.
    listed = project.ask("--markers").stdout.str().partition("flamegate(")[2].partition(")")[0]
    assert listed.split(", ") == list(ARGUMENTS)


def test_a_project_that_never_mentions_it_is_left_alone(project: Project) -> None:
    project.write("test_plain.py", "def test_one(): pass\ndef test_two(): assert not 'this'\n")

    def run(*arguments: str) -> tuple[object, list[str], set[str]]:
        result = project.ask("-v", *arguments)
        lines = [
            line.partition(" in 0")[0]
            for line in result.outlines
            if not line.startswith(("plugins:", "platform"))
        ]
        files = {path.name for path in project.path.iterdir()}
        # Each run within the test has a temporary directory of its own there.
        return result.ret, lines, {name for name in files if not name.startswith("runpytest")}

    assert run("-p", "no:flamegate") == run()


def test_gate_tests_carry_the_marker(project: Project) -> None:
    """A fixture asked for while the test runs is not known before: ``test_late`` has no marker."""
    project.write("test_gates.py", GATED)
    project.ask("-m", "flamegate").assert_outcomes(skipped=6, deselected=2)


@pytest.mark.parametrize(
    "option", ["update", "update-in-ci", "bricks", "inject=rms_norm:+10%", "against=HEAD"]
)
def test_an_option_that_would_do_nothing_is_refused(project: Project, option: str) -> None:
    result = project.ask(f"--flamegate-{option}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*does nothing without --flamegate*"])

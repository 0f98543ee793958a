"""Without ``--flamegate``: gate tests are skipped, and that is all that happens."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    "pytest_flamegate.config.marker",
}
HEAVY = ("numpy", "jsonschema", "psutil", "rich", "py_spy")
_LISTING = """
import json, sys
import pytest
code = pytest.main(sys.argv[1:])
print("MODULES", json.dumps([int(code), sorted(sys.modules)]))
"""


def imported(directory: Path, *arguments: str) -> set[str]:
    """Run pytest in a fresh process with every plugin there is; return all modules it loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [sys.executable, "-c", _LISTING, "-q", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    marked = [line for line in done.stdout.splitlines() if line.startswith("MODULES ")]
    code, modules = json.loads(marked[-1].removeprefix("MODULES "))
    assert code == 0, done.stdout + done.stderr
    return set(modules)


def test_gate_tests_are_skipped_with_the_words(project: Project) -> None:
    project.write("test_gates.py", GATED)
    project.declare(workload("toy"))
    result = project.run("-rs", "-v")
    result.assert_outcomes(passed=1, skipped=7)
    result.stdout.fnmatch_lines(["SKIPPED*needs --flamegate"])
    result.stdout.no_fnmatch_line("*flamegate.toml*")
    assert not project.artifacts.exists()


def test_a_workload_file_is_not_even_read(project: Project) -> None:
    project.write("test_plain.py", "def test_plain(): pass")
    project.write("flamegate.toml", "[workloads.toy\n")
    project.ask().assert_outcomes(passed=1)


def test_nothing_is_imported(project: Project) -> None:
    project.write("test_gates.py", GATED)
    project.declare(workload("toy"))
    with_plugin = imported(project.path)
    project.write("test_gates.py", "def test_plain(): pass")
    without = imported(project.path, "-p", "no:flamegate")
    ours = {name for name in with_plugin if name.partition(".")[0] == "pytest_flamegate"}
    assert "pytest_flamegate.plugin" in ours
    assert ours <= LIGHT
    # Another plugin may load one of these for itself; then it is there without this one too.
    added = {name.partition(".")[0] for name in with_plugin - without}
    assert not added & set(HEAVY)
    assert not project.artifacts.exists()


def test_the_plugin_can_be_blocked(project: Project) -> None:
    project.write("test_plain.py", "def test_plain(): pass")
    project.ask("-p", "no:flamegate").assert_outcomes(passed=1)
    result = project.ask("-p", "no:flamegate", "--flamegate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --flamegate*"])
    project.ask("-p", "no:flamegate", "--markers").stdout.no_fnmatch_line("*flamegate(*")


def test_a_project_that_never_mentions_it_is_left_alone(project: Project) -> None:
    project.write("test_plain.py", "def test_one(): pass\ndef test_two(): assert not 'this'\n")

    def told(*arguments: str) -> tuple[object, list[str]]:
        result = project.run("-v", *arguments)
        kept = [
            line.partition(" in 0")[0]
            for line in result.outlines
            if not line.startswith(("plugins:", "platform"))
        ]
        return result.ret, kept

    def files() -> set[str]:
        found = {path.name for path in project.path.iterdir()}
        # What the run within the test leaves: its output, its temporary directory.
        return {name for name in found if not name.startswith("runpytest")} - {"stdout", "stderr"}

    without = told("-p", "no:flamegate")
    left = files()
    assert told() == without
    assert files() == left


@pytest.mark.parametrize(
    ("expression", "chosen", "deselected"),
    [("flamegate", 6, 2), ("not flamegate", 2, 6)],
)
def test_gate_tests_carry_the_marker(
    project: Project, expression: str, chosen: int, deselected: int
) -> None:
    """A fixture asked for while the test runs is not known before: ``test_late`` has no marker."""
    project.write("test_gates.py", GATED)
    result = project.ask("-m", expression)
    outcomes = result.parseoutcomes()
    assert outcomes["deselected"] == deselected
    assert outcomes.get("skipped", 0) + outcomes.get("passed", 0) == chosen


def test_marker_and_keys_are_known_to_strict_pytest(project: Project) -> None:
    project.write("test_gates.py", GATED)
    keys = {
        "flamegate": "false",
        "flamegate_budget": "20",
        "flamegate_profiler": "none",
        "flamegate_dir": "artifacts",
        "flamegate_config": "other.toml",
        "flamegate_strict": "true",
        "flamegate_share_drift": "strict",
        "flamegate_tokens_per_second": "3%",
        "flamegate_hotspots": "rms_norm=3pp",
    }
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    project.write("pytest.ini", f"[pytest]\n{lines}")
    project.ask("--strict-markers", "--strict-config").assert_outcomes(passed=1, skipped=7)


def test_help_and_markers_say_what_there_is(project: Project) -> None:
    helped = project.ask("--help").stdout.str()
    for option in (
        "--flamegate ",
        "--flamegate-update ",
        "--flamegate-update-in-ci",
        "--flamegate-profiler=NAME",
        "--flamegate-budget=SECONDS",
        "--flamegate-config=PATH",
        "--flamegate-dir=PATH",
        "--flamegate-inject=FRAME:+10%",
    ):
        assert option in helped
    project.ask("--markers").stdout.fnmatch_lines(["@pytest.mark.flamegate(workload, *"])


@pytest.mark.parametrize(
    "option",
    [
        "--flamegate-update",
        "--flamegate-update-in-ci",
        "--flamegate-bricks",
        "--flamegate-inject=rms_norm:+10%",
    ],
)
def test_an_option_that_would_do_nothing_is_refused(project: Project, option: str) -> None:
    project.write("test_plain.py", "def test_plain(): pass")
    result = project.ask(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*does nothing without --flamegate*"])


def test_the_key_turns_it_on_and_an_override_off(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nflamegate = true\n")
    project.declare(workload("toy"))
    project.ask("--collect-only", "-q").stdout.fnmatch_lines(["flamegate.toml::toy"])
    off = project.ask("--collect-only", "-q", "-o", "flamegate=false")
    off.stdout.no_fnmatch_line("*toy*")

"""Gated runs: what is measured, written, shown, and when the test fails."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.doors.project import JUDGED, QUICK, ROUNDS, SEEN, workload, write_toy

if TYPE_CHECKING:
    from tests.doors.project import Project

pytestmark = pytest.mark.measures

FILES = {
    "receipt.json",
    "evidence.json",
    "profile.folded",
    "flamegraph.svg",
    "flamegraph.html",
    "flamegraph.md",
    "verdict.json",
}


@pytest.mark.usefixtures("py_spy")
def test_an_embedded_workload_with_nothing_configured(project: Project) -> None:
    result = project.run(*SEEN, "-v", "embedded::1tok")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "flamegate: py-spy *",
            "embedded::1tok*PASSED*",
            "*= flamegate =*",
            "1tok *no baseline*",
            "receipts OBSERVED*flame graphs in .flamegate/latest",
            "accept these as the baseline:  pytest embedded::1tok --flamegate "
            "--flamegate-profiler=py-spy --flamegate-update",
        ]
    )
    assert project.latest("1tok") == FILES
    assert project.verdict("1tok")["verdict"] == "no_baseline"
    (record,) = project.history()
    assert (record["workload"], record["verdict"], record["accepted"]) == (
        "1tok",
        "no_baseline",
        False,
    )
    assert not (project.artifacts / "baselines").exists()
    ignored = (project.artifacts / ".gitignore").read_text().splitlines()
    assert {"*", "!baselines/"} <= set(ignored)


def test_accept_then_judge_then_regress(project: Project) -> None:
    """Without a profiler: tokens per second are gated, and no receipt claims a kernel."""
    project.declare(workload("toy", tokens_per_second='"50%"'))
    result = project.run(*QUICK, "--flamegate-update")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("accept these*")
    assert project.latest("toy") == {"evidence.json", "verdict.json"}
    (baseline,) = (project.artifacts / "baselines").glob("*/toy")
    accepted = {path.name: path.read_bytes() for path in baseline.iterdir()}
    assert accepted.keys() == {"baseline.json", "evidence.json", "verdict.json"}

    result = project.run(*QUICK)
    verdict = project.verdict("toy")
    assert verdict["verdict"] in JUDGED
    failed = verdict["verdict"] == "regressed"
    result.assert_outcomes(passed=not failed, failed=failed)
    assert {path.name: path.read_bytes() for path in baseline.iterdir()} == accepted

    # Four times the work is no pass, however noisy the machine, and where only a proven
    # pass is good the run fails whatever else came of it.
    write_toy(project.path, 4 * ROUNDS)
    result = project.run(*QUICK, "-o", "flamegate_strict=true")
    verdict = project.verdict("toy")
    assert verdict["verdict"] in JUDGED - {"pass", "improved"}
    result.assert_outcomes(failed=1)
    words = verdict["verdict"].replace("_", " ")
    result.stdout.fnmatch_lines([f"FAILED flamegate.toml::toy - {words}: *"])
    assert [record["accepted"] for record in project.history()] == [True, False, False]


def test_a_baseline_that_was_tampered_with_is_an_error(project: Project) -> None:
    project.declare(workload("toy"))
    machine = project.artifacts / "baselines" / "some-machine" / "toy"
    machine.mkdir(parents=True)
    (machine / "evidence.json").write_text('{"nonce": "half a docu')
    result = project.run(*QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::toy - error: *"])
    assert [each["code"] for each in project.verdict("toy")["reasons"]] == ["E_BASELINE_CORRUPT"]


CI_KEYS = {"CI": "true", "GITHUB_ACTIONS": "true"}


def test_under_ci_no_baseline_fails_the_test(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test itself fails, so that JUnit, the summary line and the CI service all see it."""
    for name, value in CI_KEYS.items():
        monkeypatch.setenv(name, value)
    page = project.write("summary.md", "earlier words\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    project.declare(workload("first", target="raises"), workload("toy"))
    result = project.run(*QUICK, "--junitxml=report.xml", "-k", "toy")
    result.assert_outcomes(failed=1, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "::error file=flamegate.toml,line=6,title=flamegate%3A toy::no baseline: *",
            "FAILED flamegate.toml::toy - no baseline: *",
        ]
    )
    case = ElementTree.parse(project.path / "report.xml").getroot().find(".//testcase")
    assert case is not None
    assert case.get("name") == "toy"
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert properties == {"flamegate_verdict": "no_baseline"}
    failure = case.find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("no baseline: ")
    written = page.read_text()
    assert written.startswith("earlier words\n## flamegate")
    assert "no baseline" in written


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\nflamegate_strict = true\n"),
        pytest.param(
            "pyproject.toml",
            "[tool.pytest]\nflamegate = true\nflamegate_budget = 1\nflamegate_strict = true\n",
            marks=pytest.mark.skipif(
                pytest.version_tuple < (9,), reason="[tool.pytest] came with pytest 9"
            ),
        ),
    ],
)
def test_strict_fails_no_baseline_anywhere(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    project.write(name, text)
    project.declare(workload("toy"))
    monkeypatch.setenv("FLAMEGATE_PROFILER", "none")
    arguments = () if "flamegate = true" in text else ("--flamegate", "--flamegate-budget=1")
    result = project.run(*arguments)
    result.assert_outcomes(failed=1)
    assert project.verdict("toy")["verdict"] == "no_baseline"
    assert project.latest("toy") == {"evidence.json", "verdict.json"}


# Tests that gate

GATES = """
import pytest
import toy

def test_declared(flamegate):
    assert flamegate.run("toy") is None

@pytest.mark.parametrize("size", ["a/b"])
def test_callable(flamegate, size):
    assert flamegate.measure(toy.generate, prompt=size, max_tokens=3) is None

@pytest.mark.flamegate(workload="toy", tokens_per_second="33%", hotspots={"norm": "2pp"})
def test_marked():
    pass
"""


def test_fixture_and_marker(project: Project) -> None:
    """Nothing is profiled, so there is no receipt to return."""
    project.declare(workload("toy"))
    project.write("tests/test_gates.py", GATES)
    result = project.run(*QUICK, "-v", "tests")
    result.assert_outcomes(passed=3)
    names = [record["workload"] for record in project.history()]
    assert names[0] == names[2] == "toy"
    # The parameter cannot name a directory, so a digest tells it from others like it.
    assert names[1].startswith("tests.test_gates.test_callable-a-b-")
    evidence = project.artifacts / "latest" / names[1] / "evidence.json"
    recipe = json.loads(evidence.read_text())["workload"]
    assert recipe["source"] == "tests/test_gates.py::test_callable[a/b]"
    assert recipe["target"] == "toy:generate"


def test_thresholds_of_a_marker_are_those_of_the_verdict(project: Project) -> None:
    project.declare(workload("toy", tokens_per_second='"20%"'))
    project.write("test_gates.py", GATES)
    project.run(*QUICK, "--flamegate-update", "-k", "declared").assert_outcomes(
        passed=1, deselected=3
    )
    result = project.run(*QUICK, "-k", "marked")
    verdict = project.verdict("toy")
    failed = verdict["verdict"] == "regressed"
    result.assert_outcomes(passed=not failed, failed=failed, deselected=3)
    signals = {signal["name"]: signal for signal in verdict["signals"]}
    if verdict["verdict"] != "not_comparable":
        assert signals["tokens_per_second"]["threshold_pct"] == 33.0


MISUSES = """
import unittest
import pytest
import toy

def test_unknown(flamegate):
    flamegate.run("tyo")

def test_no_name(flamegate):
    flamegate.run(["toy"])

def test_unnamed(flamegate):
    flamegate.run()

@pytest.mark.flamegate(workload="tyo")
def test_marked_unknown():
    pass

@pytest.mark.flamegate(workload="toy", tokens_per_second="5")
def test_threshold():
    pass

@pytest.mark.flamegate(workload="toy", hotspots={"norm": "5%"})
def test_hotspots():
    pass

def test_no_callable(flamegate):
    flamegate.measure("toy:generate", prompt="x", max_tokens=1)

def test_no_tokens(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens=0)

def test_no_count(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens="4")

def test_name(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens=1, name="../up")

def test_forgotten(flamegate):
    pass

@pytest.mark.usefixtures("flamegate")
@pytest.mark.flamegate(workload="toy")
def test_forgotten_too():
    pass

class TestUnit(unittest.TestCase):
    @pytest.mark.flamegate(workload="tyo")
    def test_unit(self):
        pass
"""
MISUSED = {
    "test_unknown": "error: E_UNKNOWN_WORKLOAD: *'tyo'*Known: 10tok, 1tok, passage, toy;*",
    "test_no_name": "error: E_UNKNOWN_WORKLOAD: There is no workload ?'toy'?*",
    "test_unnamed": "error: E_UNKNOWN_WORKLOAD: run() was given no workload*",
    "test_marked_unknown": "error: E_UNKNOWN_WORKLOAD: There is no workload 'tyo'*",
    "test_threshold": "error: E_BAD_THRESHOLD: *tokens_per_second is '5'*",
    "test_hotspots": "error: E_BAD_THRESHOLD: *hotspots.norm is '5%'*",
    "test_no_callable": "error: E_BAD_CALL: *",
    "test_no_tokens": "error: E_BAD_CALL: *",
    "test_no_count": "error: E_BAD_CALL: *",
    "test_name": "error: E_BAD_NAME: The workload name '../up'*",
    "test_forgotten": "E_NOTHING_GATED: *",
    "test_forgotten_too": "E_NOTHING_GATED: *",
    "TestUnit::test_unit": "error: E_UNKNOWN_WORKLOAD: There is no workload 'tyo'*",
}


def test_a_misuse_fails_the_test_with_what_to_do(project: Project) -> None:
    project.declare(workload("toy"))
    project.write("test_misuse.py", MISUSES)
    result = project.run(*QUICK, "test_misuse.py")
    result.assert_outcomes(failed=len(MISUSED))
    for name, words in MISUSED.items():
        result.stdout.fnmatch_lines([f"FAILED test_misuse.py::{name} - {words}"])
    for told in ("*Traceback*", "*During handling*"):
        result.stdout.no_fnmatch_line(told)
    assert not project.artifacts.exists()


BREAKS = """
import pytest
import toy

def test_twice(flamegate):
    for _ in range(2):
        flamegate.measure(toy.raises, prompt="x", max_tokens=1)

@pytest.fixture
def receipt(flamegate):
    return flamegate.run("raises")

def test_in_setup(receipt):
    pass

def test_other():
    pytest.fail("a word of its own", pytrace=False)
"""


def test_what_fails_in_setup_is_shown_too(project: Project) -> None:
    """And what is no gate test keeps the words that pytest gives it."""
    project.declare(workload("raises", target="raises"))
    project.write("test_breaks.py", BREAKS)
    result = project.run(*QUICK, "test_breaks.py")
    result.assert_outcomes(failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "test_breaks.test_twice *error*",
            "raises *error*",
            "FAILED test_breaks.py::test_twice - error: *toy is broken*",
            "FAILED test_breaks.py::test_other - Failed: a word of its own",
            "ERROR test_breaks.py::test_in_setup - error: *toy is broken*",
        ]
    )


# Engines that break


@pytest.mark.parametrize(
    ("target", "more", "code"),
    [
        ("raises", {}, "E_ENGINE_RAISED"),
        ("dies", {}, "E_ENGINE_DIED"),
        ("nothing", {}, "E_NO_TOKENS"),
        ("chatters", {}, "E_TOO_MANY_TOKENS"),
        ("hangs", {"timeout": "1.0"}, "E_TIMEOUT"),
        ("is_not_there", {}, "E_TARGET_NOT_FOUND"),
        ("generate", {"model": '"missing.gguf"'}, "E_MODEL_MISSING"),
        ("generate", {"build": '["false"]'}, None),
    ],
)
def test_a_broken_engine_is_an_error_and_leaves_no_earlier_result(
    project: Project, target: str, more: dict[str, str], code: str | None
) -> None:
    project.declare(workload("toy", target, **more))
    earlier = project.artifacts / "latest" / "toy"
    earlier.mkdir(parents=True)
    for name in FILES:
        (earlier / name).write_text("from an earlier run")
    other = project.write(".flamegate/latest/other/receipt.json", "another workload's")
    result = project.run(*QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::toy - error: *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert project.latest("toy") == {"verdict.json"}
    verdict = project.verdict("toy")
    assert verdict["verdict"] == "error"
    assert code is None or [each["code"] for each in verdict["reasons"]] == [code]
    assert [record["verdict"] for record in project.history()] == ["error"]
    assert other.read_text() == "another workload's"


def test_a_directory_that_cannot_be_written_is_an_error(project: Project) -> None:
    """A path below a regular file is refused to everybody, root included."""
    project.declare(workload("toy"))
    project.write("occupied", "a file")
    result = project.run(*QUICK, "--flamegate-dir=occupied/artifacts")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::toy - error: *cannot be written*"])


def test_a_summary_page_that_cannot_be_written_is_said(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "toy.py" / "page.md"))
    project.declare(workload("toy", "raises"))
    result = project.run(*QUICK)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["::error file=flamegate.toml*", "GITHUB_STEP_SUMMARY cannot*"])


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_artifacts_but_baselines_stay_out_of_git(project: Project) -> None:
    project.declare(workload("toy", "raises"))
    project.pytester.run("git", "init", "-q", ".")
    project.run(*QUICK)
    project.write(".flamegate/baselines/machine/toy/evidence.json", "{}")
    status = project.pytester.run("git", "status", "--porcelain", "-uall", ".flamegate")
    assert status.outlines == ["?? .flamegate/baselines/machine/toy/evidence.json"]

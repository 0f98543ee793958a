"""Whole runs of pytest, in this process and with fake processes: what is collected, shown, written.

Nothing is measured; the files that test for real are marked ``measures``.
"""

from xml.etree import ElementTree

import pytest

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.run.instruments import Instruments
from tests.doors.project import Project, workload
from tests.run import fakes
from tests.run.fakes import World

ON = ("--flamegate",)


def slower(world: World, times: float = 1.2) -> None:
    world.token_ns = round(times * fakes.TOKEN_NS)


def test_accept_pass_regress_improve(project: Project, world: World) -> None:
    project.declare(workload("toy"))
    first = project.ask(*ON)
    first.assert_outcomes(passed=1)
    first.stdout.fnmatch_lines(
        [
            "collected 1 item",
            "flamegate: 1 workload, about 0:15",
            "flamegate: toy: 6 processes × 1.0 s, profile 6 s: about 12 s",
            "*= flamegate =*",
            "toy *no baseline*ternary_gemv*",
            "*receipts OBSERVED*",
            "accept *:  flamegate baseline accept *",
        ]
    )
    accepted = project.ask(*ON, "--flamegate-update")
    accepted.assert_outcomes(passed=1)
    accepted.stdout.fnmatch_lines(
        ["accepted 1 baseline in .flamegate/baselines/*: toy. Commit it: git add .flamegate/*"]
    )
    accepted.stdout.no_fnmatch_line("accept these*")
    project.ask(*ON).assert_outcomes(passed=1)
    slower(world)
    failed = project.ask(*ON)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [
            "_* toy (flamegate.toml) _*",
            "regressed: 16.* % slower *",
            "  again     pytest flamegate.toml::toy --flamegate",
            "toy *regressed*",
            "FAILED flamegate.toml::toy - regressed: 16.* % slower*",
        ]
    )
    slower(world, 0.8)
    project.ask(*ON).assert_outcomes(passed=1)
    verdicts = [record["verdict"] for record in project.history()]
    assert verdicts == ["no_baseline", "no_baseline", "pass", "regressed", "improved"]


ASKS_THRICE = """
import pytest

def test_fixture(flamegate):
    assert flamegate.run("toy").deterministic

@pytest.mark.flamegate(workload="toy")
def test_marker():
    pass

@pytest.mark.flamegate(workload="toy", tokens_per_second="40%")
def test_loose():
    pass
"""


def test_one_workload_is_measured_once_and_its_rows_are_told_apart(
    project: Project, world: World
) -> None:
    project.declare(workload("toy"))
    project.write("test_asks.py", ASKS_THRICE)
    project.ask(*ON, "--flamegate-update", "flamegate.toml").assert_outcomes(passed=1)
    processes = len(world.started)
    slower(world)
    result = project.ask(*ON)
    result.assert_outcomes(failed=3, passed=1)
    assert len(world.started) == 2 * processes
    result.stdout.fnmatch_lines(
        [
            "flamegate.toml::toy *regressed*",
            "test_asks.py::test_fixture *regressed*",
            "test_asks.py::test_marker *regressed*",
            "test_asks.py::test_loose *pass*",
        ]
    )


@pytest.mark.usefixtures("world")
def test_one_bad_workload_is_one_failing_test(project: Project) -> None:
    project.declare(workload("good"), workload("bad", prmpt='"x"'), workload("other"))
    result = project.ask(*ON)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["FAILED flamegate.toml::bad - error: E_UNKNOWN_KEY: flamegate.toml:*'prmpt'*'prompt'*"]
    )


def read_junit(project: Project) -> ElementTree.Element:
    case = ElementTree.parse(project.path / "report.xml").getroot().find(".//testcase")
    assert case is not None
    return case


def read_properties(case: ElementTree.Element) -> dict[str, str]:
    return {each.get("name", ""): each.get("value", "") for each in case.iter("property")}


def test_under_ci_no_baseline_fails_the_test(
    project: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JUnit, the summary line and the CI service all see the failing test."""
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.setenv(name, "true")
    page = project.write("summary.md", "earlier words\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    project.declare(workload("first"), workload("toy"))
    result = project.ask(*ON, "--junitxml=report.xml", "-k", "toy")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "::error file=flamegate.toml,line=6,title=flamegate%3A toy::no baseline: *",
            "FAILED flamegate.toml::toy - no baseline: *",
        ]
    )
    # The failure is printed once, with its commands; the summary has its first line.
    assert result.stdout.str().count("  again  ") == 1
    assert page.read_text().startswith("earlier words\n## flamegate")
    case = read_junit(project)
    properties = read_properties(case)
    assert properties.pop("flamegate_rate").endswith(" tokens/s")
    assert next(iter(read_properties(case))) == "flamegate_workload"
    assert properties == {
        "flamegate_workload": "toy",
        "flamegate_verdict": "no_baseline",
        "flamegate_grade": "OBSERVED",
        "flamegate_clock": "quiet",
    }
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message", "").startswith("no baseline: ")
    # With a baseline JUnit has the figures of the comparison.
    monkeypatch.delenv("CI")
    assert project.ask(*ON, "--flamegate-update", "-k", "toy").ret == 0
    slower(world)
    assert project.ask(*ON, "--junitxml=report.xml", "-k", "toy").ret == 1
    properties = read_properties(read_junit(project))
    rate = project.verdict("toy")["signals"][0]
    assert (rate["name"], properties["flamegate_verdict"]) == ("tokens_per_second", "regressed")
    for name in ("change_pct", "ci_low_pct", "ci_high_pct"):
        shown = float(properties[f"flamegate_{name.removeprefix('ci_')}"])
        assert shown == pytest.approx(rate[name], abs=0.001)


@pytest.mark.usefixtures("world")
def test_a_summary_page_that_cannot_be_written_is_reported(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "toy.py" / "page.md"))
    project.declare(workload("toy"))
    result = project.ask(*ON)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["GITHUB_STEP_SUMMARY cannot be written*"])


# No profiler


def no_profiler(*_: object, **__: object) -> None:
    raise ToolError("E_NO_PROFILER", "No profiler works.", "Type: pip install py-spy.")


@pytest.mark.parametrize(
    ("name", "text", "is_error"),
    [
        ("flamegate.toml", workload("one") + workload("two"), True),
        ("test_a.py", "def test_uses(flamegate): flamegate.run('1tok')\n", True),
        ("test_a.py", "def test_plain(): pass\n", False),
    ],
)
def test_no_profiler_at_all_is_one_usage_error_before_anything_waits(
    project: Project,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    is_error: bool,
) -> None:
    for method in ("profiler", "choose_profiler"):
        monkeypatch.setattr(Instruments, method, no_profiler)
    project.write(name, text)
    result = project.ask(*ON, name)
    assert result.ret == (pytest.ExitCode.USAGE_ERROR if is_error else 0)
    everything = result.stdout.str() + result.stderr.str()
    assert everything.count("No profiler works. Type: pip install py-spy.") == is_error
    assert world.started == []
    assert not project.artifacts.exists()


def test_a_workload_that_no_profiler_sees_fails_alone(
    project: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Instruments.profiler

    def choose(self: Instruments, workload: object, *given: object, **more: object) -> object:
        if getattr(workload, "name", "") == "native":
            raise ToolError("E_NO_PROFILER", "No profiler sees it.", "Install perf.")
        return real(self, workload, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Instruments, "profiler", choose)
    monkeypatch.setattr(Instruments, "choose_profiler", lambda *_, **__: None)
    project.declare(workload("native"), workload("toy"))
    result = project.ask(*ON)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED flamegate.toml::native - error: *Install perf*"])


# Tests that use it wrongly


MISUSES = """
import pytest
import toy

def test_unknown(flamegate):
    flamegate.run("tyo")

def test_invalid(flamegate):
    flamegate.run("bad")

def test_no_name(flamegate):
    flamegate.run(["toy"])

def test_unnamed(flamegate):
    flamegate.run()

@pytest.mark.flamegate(workload=["toy"])
def test_no_text():
    pass

@pytest.mark.flamegate(workload="toy", tokens_per_second="5")
def test_threshold():
    pass

def test_no_tokens(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens=0)

def test_name(flamegate):
    flamegate.measure(toy.generate, prompt="x", max_tokens=1, name="../up")

def test_twice(flamegate):
    for _ in range(2):
        flamegate.measure(toy.generate, prompt="x", max_tokens=4)

@pytest.mark.usefixtures("flamegate")
@pytest.mark.flamegate(workload="toy")
def test_forgotten():
    pass
"""
MISUSED = {
    "test_unknown": "error: E_UNKNOWN_WORKLOAD: There is no workload 'tyo'. Did you mean 'toy'?",
    "test_invalid": "error: E_UNKNOWN_KEY: *'prmpt'*",
    "test_no_name": "error: E_UNKNOWN_WORKLOAD: There is no workload ?'toy'?.*",
    "test_unnamed": "error: E_UNKNOWN_WORKLOAD: run() was given no workload*",
    "test_no_text": "error: E_UNKNOWN_WORKLOAD: There is no workload ?'toy'?.*",
    "test_threshold": "error: E_BAD_THRESHOLD: *tokens_per_second is '5'*",
    "test_no_tokens": "error: E_BAD_CALL: *",
    "test_name": "error: E_BAD_NAME: The workload name '../up'*",
    "test_twice": "error: E_BAD_CALL: measure() was called twice*",
    "test_forgotten": "E_NOTHING_GATED: *",
}


@pytest.mark.usefixtures("world")
def test_a_misuse_fails_the_test_and_says_what_to_do(project: Project) -> None:
    project.declare(workload("toy"), workload("bad", prmpt='"x"'))
    project.write("test_misuse.py", MISUSES)
    result = project.ask(*ON, "test_misuse.py")
    result.assert_outcomes(failed=len(MISUSED))
    for name, words in MISUSED.items():
        result.stdout.fnmatch_lines([f"FAILED test_misuse.py::{name} - {words}"])
    assert "Traceback" not in result.stdout.str()


IN_SETUP = """
import pytest

@pytest.fixture
def receipt(flamegate):
    return flamegate.run("toy")

def test_in_setup(receipt):
    pass

def test_other():
    pytest.fail("a word of its own", pytrace=False)
"""


def test_a_failure_in_setup_is_shown_and_other_tests_keep_their_words(
    project: Project, world: World
) -> None:
    world.fail(ToolError("E_ENGINE_DIED", "The engine died.", "Repair it."))
    project.declare(workload("toy"))
    project.write("test_breaks.py", IN_SETUP)
    result = project.ask(*ON, "test_breaks.py")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "toy *error*",
            "FAILED test_breaks.py::test_other - Failed: a word of its own",
            "ERROR test_breaks.py::test_in_setup - error: *The engine died*",
        ]
    )


CALLABLE = """
import pytest
import toy

@pytest.mark.parametrize("size", ["a/b"])
@pytest.mark.flamegate(tokens_per_second="33%", hotspots={"norm": "2pp"})
def test_callable(flamegate, size):
    assert flamegate.measure(toy.generate, prompt=size, max_tokens=4).tokens_generated == 4
"""


@pytest.mark.usefixtures("world")
def test_a_callable_is_a_workload_named_by_its_test(project: Project) -> None:
    project.write("test_gates.py", CALLABLE)
    project.ask(*ON).assert_outcomes(passed=1)
    (record,) = project.history()
    # The parameter cannot name a directory, so a digest tells it from others like it.
    assert record["workload"].startswith("test_gates.test_callable-a-b-")
    recipe = project.document(record["workload"])["workload"]
    assert recipe["source"] == "test_gates.py::test_callable[a/b]"
    assert recipe["target"] == "toy:generate"


# The report


def test_the_report_has_every_workload_and_reads_no_profile_again(
    project: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pytest_flamegate.run.present.open_profile", lambda *_: pytest.fail("it was read again")
    )
    project.declare(workload("first"), workload("second"))
    result = project.ask(*ON, "--flamegate-report=out/report.html")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["report: out/report.html"])
    page = (project.path / "out" / "report.html").read_text("utf-8")
    assert page.count('data-flame="flame-') == 2
    assert "2 workloads" in page


@pytest.mark.usefixtures("world")
def test_a_report_path_that_stops_being_writable_fails_the_run(project: Project) -> None:
    project.declare(workload("first"))
    project.write(
        "conftest.py",
        "import os\ndef pytest_runtest_teardown():\n    os.makedirs('report.html')\n",
    )
    result = project.ask(*ON, "--flamegate-report=report.html")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["no report was written: *"])

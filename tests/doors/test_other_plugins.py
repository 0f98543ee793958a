"""Gated sessions beside pytest-rerunfailures, pytest-cov, pytest-randomly, and with ``-k``.

Processes are fakes, except where the engine's own code is traced.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.doors.project import QUICK, Project, workload
from tests.doors.test_xdist import FAKES
from tests.workload.repositories import git

for _plugin in ("pytest_cov", "pytest_randomly", "pytest_rerunfailures"):
    pytest.importorskip(_plugin)

IMPROVES = """
began = []

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    # The first attempt finds the first of these, and all later ones the second.
    world.token_ns, world.jitter = ({first}, {later})[bool(began)]
    began.append(item)
"""
SLOW, UNCLEAR, AS_BEFORE = (
    f"({factor} * world.base_token_ns, {jitter})"
    for factor, jitter in ((2, 0.004), (1.1, 0.6), (1, 0.004))
)
RUN = "def test_gate(flamegate):\n    flamegate.run('toy')\n"
MEASURE = (
    "import toy\n\ndef test_gate(flamegate):\n"
    "    flamegate.measure(toy.generate, prompt='2+2=', max_tokens=4, name='own')\n"
)


def declare(project: Project, conftest: str = "", test: str = "def test_plain(): ...\n") -> None:
    """Write a project with the commit ``base``, and a change of it."""
    project.declare(workload("toy"))
    project.write("conftest.py", FAKES + conftest)
    project.write("test_gate.py", test)
    project.commit()
    git(project.path, "tag", "base")
    project.write("toy.py", (project.path / "toy.py").read_text() + "# changed\n")


def rerun(project: Project, node: str, *more: str) -> pytest.RunResult:
    gate = ("--flamegate", "--flamegate-against=base", "--flamegate-profiler=none")
    return project.run("-p", "rerunfailures", "--reruns=2", *gate, *more, node)


def verdicts(project: Project) -> list[str]:
    return [each["verdict"] for each in project.history()]


@pytest.mark.parametrize("node", ["flamegate.toml", "test_gate.py"])
def test_a_rerun_of_a_declared_workload_measures_nothing(node: str, project: Project) -> None:
    declare(project, IMPROVES.format(first=SLOW, later=AS_BEFORE), RUN)
    result = rerun(project, node)
    result.stdout.fnmatch_lines(["*1 failed, 2 rerun*"])
    assert verdicts(project) == ["regressed"]
    assert result.ret == 1


def test_a_rerun_takes_no_certain_verdict_back(project: Project) -> None:
    declare(project, IMPROVES.format(first=SLOW, later=AS_BEFORE), MEASURE)
    result = rerun(project, "test_gate.py")
    result.stdout.fnmatch_lines(["E_VERDICT_SWALLOWED: *test_gate*a rerun*"])
    assert verdicts(project) == ["regressed", "pass"]
    assert result.ret == 1


def test_a_rerun_can_settle_an_open_question(project: Project) -> None:
    declare(project, IMPROVES.format(first=UNCLEAR, later=AS_BEFORE), MEASURE)
    (project.path / "flamegate.toml").unlink()  # a declared workload would be missing
    project.write("pytest.ini", "[pytest]\nflamegate_strict = true\n")
    result = rerun(project, "test_gate.py", "--junitxml=report.xml")
    result.stdout.fnmatch_lines(["*1 passed, 1 rerun*"])
    assert verdicts(project) == ["inconclusive", "pass"]
    assert result.ret == 0
    # JUnit has a test case for each attempt, with the properties of that one alone.
    cases = ElementTree.parse(project.path / "report.xml").getroot().iter("testcase")
    found = [each.findall(".//property[@name='flamegate_verdict']") for each in cases]
    assert [[each.get("value") for each in one] for one in found] == [["inconclusive"], ["pass"]]


def test_an_order_drawn_at_random_changes_no_verdict(project: Project) -> None:
    declare(project)
    project.declare(*(workload(name) for name in "abc"))
    orders = set()
    for seed in ("1", "2"):
        result = project.run("-p", "randomly", f"--randomly-seed={seed}", "--flamegate", "-v")
        assert result.ret == 0
        result.assert_outcomes(passed=4)
        orders.add(tuple(re.findall(r"flamegate.toml::(\w) ", result.stdout.str())))
    assert len(orders) > 1
    assert {frozenset(order) for order in orders} == {frozenset("abc")}


@pytest.mark.usefixtures("world")
def test_a_person_can_select_by_keyword_outside_of_ci(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.declare(workload("short"), workload("long"))
    project.write("test_gate.py", "def test_plain(): ...\n")
    result = project.ask("--flamegate", "-k", "short")
    result.assert_outcomes(passed=1, deselected=2)
    assert [each["workload"] for each in project.history()] == ["short"]
    assert project.ask("--flamegate", "-k", "plain").ret == 0
    # Under CI the same selection judges no declared workload.
    monkeypatch.setenv("CI", "true")
    result = project.ask("--flamegate", "-k", "plain")
    result.stdout.fnmatch_lines(["E_NOTHING_GATED: *short, long*: --flamegate-config=PATH."])
    assert result.ret == 1
    # A job that gates tests alone has a workload file that declares nothing.
    project.write("none.toml", "")
    project.write("test_gate.py", MEASURE)
    options = ("--flamegate", "--flamegate-update", "--flamegate-update-in-ci", "test_gate.py")
    result = project.ask(*options)
    result.stdout.fnmatch_lines(["E_NOTHING_GATED: *"])
    assert result.ret == 1
    result = project.ask(*options, "--flamegate-config=none.toml")
    result.assert_outcomes(passed=1)
    assert result.ret == 0


@pytest.mark.measures
def test_coverage_is_reported_and_the_engine_is_not_traced(project: Project) -> None:
    project.write(
        "test_gate.py",
        "import sys\nimport toy\n\n"
        "def tracing(prompt, max_tokens):\n"
        "    monitoring = getattr(sys, 'monitoring', None)\n"
        "    yield from toy.generate(prompt, max_tokens - 1)\n"
        "    yield f'{sys.gettrace()} {monitoring and monitoring.get_events(1)}'\n\n"
        "def test_gate(flamegate):\n"
        "    toy.hash_round(1, 1)\n"
        "    flamegate.measure(tracing, prompt='2+2=', max_tokens=4, name='own')\n",
    )
    result = project.run(
        "-p", "pytest_cov", "--cov=toy", "--cov-report=term", *QUICK, "test_gate.py"
    )
    result.stdout.fnmatch_lines(["toy.py * ??%"])
    assert project.document("own")["tokens"][-1] in ("None None", "None 0")
    assert result.ret == 0

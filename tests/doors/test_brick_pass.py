"""A pass over the bricks, from the session: where it is run, what it leaves, who is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.child.embedded.workloads import embedded_workloads
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.thresholds import BrickBudget, Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.progress import NoProgress
from pytest_flamegate.engines.base import Served
from pytest_flamegate.gate import MoreProcesses
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.run.measure import Measuring
from pytest_flamegate.run.session import Session
from tests.workload.repositories import git, write

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.run.outcome import Outcome


PLAIN = """\
def generate(prompt, max_tokens):
    for token in range(max_tokens):
        sum(range(20_000))
        yield token
"""
MARKED = """\
from pytest_flamegate.bricks import brick

def generate(prompt, max_tokens):
    for token in range(max_tokens):
        with brick("DownProjection", layer=0):
            sum(range(20_000))
        yield token
"""


def settings(root: Path, **changes: Any) -> Settings:
    return Settings(root, root / ".flamegate", **{"profiler": "none", "budget_s": 1.0, **changes})


def gate(workload: Workload, **changes: Any) -> Outcome:
    session = Session(settings(workload.directory, **changes), NoProgress())
    try:
        return session.gate(workload)
    finally:
        session.close()


def python(root: Path, source: str) -> Workload:
    (root / "marked_toy.py").write_text(source)
    return Workload("toy", "python", "p", 8, "test", directory=root, target="marked_toy:generate")


def budgeted(workload: Workload) -> Workload:
    budgets = MappingProxyType({"DownProjection": BUDGET})
    return replace(workload, thresholds=replace(Thresholds(), bricks=budgets))


BUDGET = BrickBudget(per_call_us=60e6)
"""Nothing here takes a minute, on whatever machine."""


def test_a_run_without_bricks_asked_for_has_no_pass(tmp_path: Path) -> None:
    outcome = gate(python(tmp_path, MARKED))
    assert outcome.evidence is not None
    assert outcome.evidence.bricks == ()
    assert {run.role for run in outcome.evidence.runs} == {"timed"}
    assert not (outcome.directory / "bricks.json").exists()


def test_where_they_are_shown_three_processes_come_after_all_others(tmp_path: Path) -> None:
    outcome = gate(python(tmp_path, MARKED), bricks=20)
    assert outcome.evidence is not None
    assert len(outcome.evidence.bricks) == 3
    roles = [run.role for run in outcome.evidence.runs]
    assert roles == sorted(roles, reverse=True)
    last = [run for run in outcome.evidence.runs if run.role == "bricks"]
    assert [run.pid for run in last] == [each.pid for each in outcome.evidence.bricks]
    document = json.loads((outcome.directory / "bricks.json").read_text())
    assert document["nonce"] == outcome.evidence.nonce
    assert document["workload"] == "toy"
    assert document["wall_ns"] == outcome.evidence.bricks[-1].wall_ns
    assert [call["name"] for call in document["calls"]] == ["DownProjection"]
    assert outcome.warnings == ()


def test_an_engine_without_marks_is_told_how_and_judged_all_the_same(tmp_path: Path) -> None:
    outcome = gate(python(tmp_path, PLAIN), bricks=20)
    assert outcome.verdict.verdict == "no_baseline"
    (warning,) = outcome.warnings
    assert warning.startswith("E_NO_BRICKS: ")
    assert "with brick(" in warning
    assert "E_NO_BRICKS" in {reason.code for reason in outcome.verdict.reasons}
    assert outcome.evidence is not None
    assert {run.role for run in outcome.evidence.runs} == {"timed"}


def test_an_engine_without_marks_that_has_budgets_is_refused(tmp_path: Path) -> None:
    outcome = gate(budgeted(python(tmp_path, PLAIN)))
    assert outcome.verdict.verdict == "error"
    assert outcome.error is not None
    assert outcome.error.code == "E_NO_BRICKS"


def program(root: Path) -> Workload:
    return Workload(
        *("program", "command", "p", 3, "test"),
        directory=root,
        command=("sh", "-c", "for i in 1 2 3; do sleep 0.02; echo $i; done"),
        token_unit="line",
    )


def test_a_program_is_told_that_its_bricks_are_not_clocked(tmp_path: Path) -> None:
    outcome = gate(program(tmp_path), bricks=20)
    assert any(warning.startswith("E_BRICKS_NOT_SERVED: ") for warning in outcome.warnings)
    refused = gate(budgeted(program(tmp_path)))
    assert refused.error is not None
    assert refused.error.code == "E_BRICKS_NOT_SERVED"


@pytest.fixture
def marked_since(tmp_path: Path) -> Path:
    """A repository whose second commit is what marks the engine."""
    git(tmp_path, "init", "-q", "-b", "main")
    for number, source in enumerate((PLAIN, MARKED)):
        write(tmp_path, {"marked_toy.py": source, ".gitignore": "__pycache__\n.flamegate\n"})
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", f"{number}")
    return tmp_path


def against(root: Path, rev: str) -> Outcome:
    workload = python(root, MARKED)
    return gate(budgeted(workload), against=rev, compare_budget_s=2.0)


def test_where_they_are_gated_both_sides_have_five(marked_since: Path) -> None:
    outcome = against(marked_since, "HEAD")
    assert outcome.evidence is not None, outcome.error
    assert outcome.baseline is not None
    assert len(outcome.evidence.bricks) == len(outcome.baseline.bricks) == 5


def test_a_base_that_marks_nothing_refuses_no_change_that_does(marked_since: Path) -> None:
    outcome = against(marked_since, "HEAD~1")
    assert outcome.evidence is not None, outcome.error
    assert outcome.baseline is not None
    assert (len(outcome.evidence.bricks), len(outcome.baseline.bricks)) == (5, 0)
    assert any(warning.startswith("E_NO_BRICKS: ") for warning in outcome.warnings)


@pytest.mark.usefixtures("py_spy")
def test_the_receipt_of_a_run_with_bricks_verifies(tmp_path: Path) -> None:
    (_, workload, _) = embedded_workloads(tmp_path)
    outcome = gate(workload, bricks=20, profiler="py-spy")
    assert outcome.verdict.verdict == "no_baseline", outcome.verdict.reasons
    answer = verify_receipt(outcome.directory / "receipt.json")
    assert answer.refusals == ()
    assert answer.grade.name == "OBSERVED"
    evidence = json.loads((outcome.directory / "evidence.json").read_text())
    assert len(evidence["bricks"]) == 3


@pytest.mark.parametrize(("each_s", "most"), [(0.0, 15), (1.0, 8), (3.0, 5)])
def test_a_budget_left_open_gets_more_passes_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, each_s: float, most: int
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    made: Any = object()

    def bricked(*_: object) -> Any:
        now[0] += each_s
        return made, made, made

    workload = budgeted(python(tmp_path, MARKED))
    measuring = Measuring(workload, Served({}), None, 8.0, NoProgress(), _began_s=0.0)
    monkeypatch.setattr("pytest_flamegate.run.measure.time", clock)
    monkeypatch.setattr(Observer, "bricked", bricked)
    measuring._bricks()
    assert len(measuring.bricks) == 5
    for _ in range(2):
        measuring.more(MoreProcesses(bricks=True))
        assert len(measuring.bricks) == most
    # They take nothing of the time that tokens per second and samples have.
    assert measuring.spent == 0.0
    wanted = MoreProcesses(True, True, True)
    assert measuring.affordable(wanted) == wanted
    now[0] += 8.0
    assert measuring.affordable(wanted) == MoreProcesses(bricks=True)

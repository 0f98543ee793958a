"""Each profiler failing in each way, required and optional: a code, and never a silent pass.

Required is what the user named. Optional is a sampler that ``auto`` tries, and the count of
instructions that ``flamegate_instructions`` asks for beside the rest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.gate import verdict_document
from pytest_flamegate.observe import engine_process, observer
from pytest_flamegate.profile.profilers import instructions, trial
from pytest_flamegate.run import measure, processes
from pytest_flamegate.run.lock import DIRECTORY
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.session import Session
from tests.doors.faults import CELLS, FAULTS, GOOD_PERF, GOOD_SPY, KINDS, MIDWAY, WISHES, Fault
from tests.doors.project import write_toy
from tests.profile.fake_valgrind import FakeValgrind
from tests.profile.fakes import Tools, shorten_timeouts

if TYPE_CHECKING:
    from collections.abc import Sequence, Set


_GOOD = {"perf": GOOD_PERF, "py-spy": GOOD_SPY}
DAILY = {
    ("perf", "no permission", "required"),
    ("perf", "absent", "optional"),
    ("py-spy", "absent", "required"),
    ("py-spy", "truncated output", "optional"),
    ("callgrind", "hang", "required"),
    ("callgrind", "killed", "optional"),
}
"""One fault for each profiler and wish; tests/profile has every fault of every tool."""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """No other program is found, and few samples and little time are enough."""
    monkeypatch.setattr(trial, "TRIAL_S", 0.01)
    monkeypatch.setattr(processes, "SAMPLE_FLOOR", 20)
    monkeypatch.setattr(processes, "PROCESS_S", (0.02, 0.05))
    monkeypatch.setattr(measure, "MIN_TIMED", 3)
    monkeypatch.setattr(measure, "MIN_PROFILED", 2)
    monkeypatch.setattr(observer, "REFERENCE_TIMES", 2)
    monkeypatch.setattr(engine_process, "WARM_TOKENS", 4)
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    return Tools(tmp_path / "bin", monkeypatch)


def gated(root: Path, profiler: str, *, native: bool = False, counts: bool = False) -> Outcome:
    """Gate the toy engine, or a program that is no Python to anybody who looks."""
    write_toy(root, rounds=20_000)
    settings = Settings(
        root, root / ".flamegate", profiler=profiler, budget_s=0.1, instructions=counts
    )
    workload = Workload("toy", "python", "2+2=", 4, "x", root, target="toy:generate", timeout_s=60)
    if native:
        command = (sys.executable, "-c", "print('ab')")
        workload = Workload("toy", "command", "2+2=", 2, "x", root, command=command)
    return Session(settings).gate(workload)


def break_(tools: Tools, profiler: str, fault: Fault) -> None:
    """Put the profiler there as the fault has it, and no other."""
    if fault.plan is None:
        return
    if profiler == "callgrind":
        FakeValgrind(tools, **fault.plan)
    else:
        tools.add(profiler, _GOOD[profiler], **fault.plan)


def told(outcome: Outcome) -> dict[str, str]:
    """The messages by code; the first of a code, for later ones are of later profilers."""
    return {reason.code: reason.message for reason in reversed(outcome.verdict.reasons)}


def assert_error(outcome: Outcome, code: str, words: str) -> None:
    """An error with the tool's code and words, and nothing that looks like a measurement."""
    assert outcome.verdict.verdict == "error", told(outcome)
    assert (outcome.exit_code, outcome.fails) == (5, True)
    (reason,) = outcome.verdict.reasons
    assert reason.code == code, reason
    assert words in reason.message
    assert {path.name for path in outcome.directory.iterdir()} == {"verdict.json"}


def test_the_table_has_all_sixty_cells() -> None:
    assert set(FAULTS) == {"perf", "py-spy", "callgrind"}
    assert all(tuple(faults) == KINDS for faults in FAULTS.values())
    assert len(set(CELLS)) == len(CELLS) == 3 * len(KINDS) * len(WISHES) == 60


def _cells(cells: Sequence[tuple[str, ...]], daily: Set[tuple[str, ...]]) -> list[Any]:
    """The parameters of ``cells``; those that are not in ``daily`` run every night."""
    return [
        pytest.param(*cell, id="-".join(cell), marks=() if cell in daily else pytest.mark.nightly)
        for cell in cells
    ]


@pytest.mark.parametrize(("profiler", "kind", "wish"), _cells(CELLS, DAILY))
def test_a_fault_ends_in_a_code(
    profiler: str,
    kind: str,
    wish: str,
    tools: Tools,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "hang":
        shorten_timeouts(monkeypatch)
        monkeypatch.setattr(instructions, "TIMEOUT_FACTOR", 0.02)
    fault = FAULTS[profiler][kind]
    break_(tools, profiler, fault)
    if wish == "required":
        if profiler == "callgrind":
            tools.add("py-spy", GOOD_SPY)
        assert_error(gated(tmp_path, profiler), fault.code, fault.words)
    elif profiler == "perf":
        # Nobody else sees a native program: every profiler's own words are told.
        tools.add("py-spy", GOOD_SPY)
        outcome = gated(tmp_path, "auto", native=True)
        assert_error(outcome, "E_NO_PROFILER", f"perf: {fault.code}: ")
        (message,) = told(outcome).values()
        assert fault.words in message
        assert "py-spy: sees no native frames here" in message
    elif profiler == "py-spy":
        tools.add("perf", GOOD_PERF)
        outcome = gated(tmp_path, "auto")
        assert_stands(outcome, "W_PROFILER_FALLBACK", fault)
        assert outcome.evidence is not None
        assert outcome.evidence.profile is not None
        assert outcome.evidence.profile.profiler == "perf"
    else:
        assert_stands(gated(tmp_path, "none", counts=True), "W_NOT_COUNTED", fault)


def assert_stands(outcome: Outcome, code: str, fault: Fault) -> None:
    """A verdict on the rest, which tells in files and summary what failed, and why."""
    assert outcome.verdict.verdict == "no_baseline", told(outcome)
    message = told(outcome)[code]
    assert fault.code in message
    assert fault.words in message
    written = json.loads(encode_json(verdict_document(outcome.verdict)))["reasons"]
    assert {"code": code, "message": message} in written
    assert f"{code}: {message}" in outcome.warnings


@pytest.mark.parametrize(("profiler", "kind"), _cells(MIDWAY, {("perf", "killed")}))
def test_one_that_fails_midway_is_an_error_and_no_half_profile(
    profiler: str, kind: str, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "hang":
        shorten_timeouts(monkeypatch)
    fault = FAULTS[profiler][kind]
    assert fault.plan is not None
    good: dict[str, Any] = _GOOD[profiler]
    # Once when it is tried, once measuring, and then it breaks.
    plan = {step: [good[step], good[step], bad] for step, bad in fault.plan.items()}
    tools.add(profiler, good, **plan)
    outcome = gated(tmp_path, "auto")
    assert_error(outcome, str(fault.midway), fault.words)


def test_without_a_fault_the_same_gates_measure_and_warn_of_nothing(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("perf", GOOD_PERF)
    for name in ("perf", "py-spy"):
        tools.add("py-spy", GOOD_SPY)
        outcome = gated(tmp_path, name if name == "perf" else "auto")
        assert outcome.verdict.verdict == "no_baseline", told(outcome)
        assert outcome.warnings == ()
        assert outcome.evidence is not None
        assert outcome.evidence.profile is not None
        assert outcome.evidence.profile.profiler == name

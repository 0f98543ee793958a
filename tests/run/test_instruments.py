"""The profiler of a gate and the counter of instructions: their options, and their failures."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.workload import Sampling, Workload
from pytest_flamegate.profile.frames import parse_folded
from pytest_flamegate.profile.profilers import (
    choose_profiler,
    explain_fallbacks,
    instructions,
    perf,
    pyspy,
)
from pytest_flamegate.profile.profilers import tools as profilers_tools
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.run import instruments
from pytest_flamegate.run.instruments import Instruments
from pytest_flamegate.run.publish import Outcome
from tests.doors.project import write_toy
from tests.profile.fakes import PERF, PERF_DENIED, PYSPY, SPEEDSCOPE, FakeValgrind, Tools, failing
from tests.run import fakes
from tests.run.fakes import toy

SPINNING = SPEEDSCOPE.replace('"matvec"', '"flamegate_spinner"')
SEES_PYTHON = {**PYSPY["record"], "file": SPINNING}
"""What py-spy does if it sees the process that it is tried on."""
SPINNING_SCRIPT = """  7/7  1.000001: cpu-clock:
\t    55d0c0de1234 py::flamegate_spinner:/x.py (/tmp/jitted-7-1.so)

"""
"""The same of perf."""
MADE = {"perf": perf.make_profiler, "py-spy": pyspy.make_profiler}


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    """The setups for which a profiler was chosen; no profiler is tried."""
    setups: list[Setup] = []

    def choose_fake(requested: str, setup: Setup, probes: dict[str, Probe]) -> Profiler:
        setups.append(setup)
        name = requested if requested in MADE else "py-spy"
        version = f"{len(setups)}"
        fresh = Probe(name, version, usable=True, sees_python=True, sees_native=True)
        probes.setdefault(name, fresh)
        return MADE[name](setup)

    monkeypatch.setattr(instruments, "choose_profiler", choose_fake)
    return setups


def workload(sampling: Sampling | None = None) -> Workload:
    return Workload("w", "embedded", "p", 4, "test", sampling=sampling or Sampling())


def test_the_options_of_a_workload_reach_its_profiler(chosen: list[Setup]) -> None:
    profiler = Instruments("perf", Path()).profiler(workload(Sampling(499, "fp", native=True)))
    assert isinstance(profiler, perf.Perf)
    assert (profiler.rate_hz, profiler.call_graph) == (499, "fp")
    assert (chosen[-1].native, chosen[-1].nonblocking) == (True, False)
    asked = Instruments("auto", Path())
    profiler = asked.profiler(workload(Sampling(nonblocking=True)), comparing=True)
    assert isinstance(profiler, pyspy.PySpy)
    assert (profiler.nonblocking, profiler.rate_hz) == (True, pyspy.COMPARING_HZ)
    again = asked.profiler(workload(Sampling(nonblocking=True)), comparing=True)
    assert again is profiler
    # Each setting is tried by itself.
    chosen.clear()
    settings = [workload(), workload(Sampling(native=True)), workload()]
    machine = {"cpu_model": "a CPU", "cpu_cores": "2"}
    assert "py-spy 1, py-spy 2" in Instruments("py-spy", Path()).preamble(settings, machine)
    assert len(chosen) == 2


def test_the_line_before_names_the_machine_in_visible_characters() -> None:
    for cpu, cores, line in (
        ("AMD EPYC", "2", "AMD EPYC, 2 cores"),
        (" ", "1", "unknown CPU, 1 core"),
        ("A\nB", "1", r"A\x0aB, 1 core"),
    ):
        machine = {"cpu_model": cpu, "cpu_cores": cores}
        found = Instruments("none", Path()).preamble([workload()], machine)
        assert found == f"flamegate: profiling off · {line}"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """No other program is found; processes are fake, and the trial of a profiler is real."""
    monkeypatch.setenv("FLAMEGATE_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(profilers_tools, "TRIAL_S", 0.01)
    monkeypatch.setattr(instructions, "TIMEOUT_FACTOR", 0.02)
    fakes.install(monkeypatch)

    def choose_real(*given: Any) -> fakes.FakeProfiler | None:
        found = choose_profiler(*given)
        return fakes.FakeProfiler(found.name) if found is not None else None

    monkeypatch.setattr(instruments, "choose_profiler", choose_real)
    monkeypatch.setattr(instruments, "explain_fallbacks", explain_fallbacks)
    write_toy(tmp_path)
    return Tools(tmp_path / "bin", monkeypatch)


def gate(root: Path, profiler: str, **changes: Any) -> Outcome:
    return fakes.session(root, profiler=profiler, **changes).gate(toy(root))


def messages(outcome: Outcome) -> dict[str, str]:
    return {reason.code: reason.message for reason in outcome.verdict.reasons}


@pytest.mark.parametrize(
    ("profiler", "plan", "code", "words"),
    [
        ("perf", failing(PERF_DENIED), "E_PROFILER_DENIED", "Access to performance monitoring"),
        ("py-spy", None, "E_PROFILER_ABSENT", "no program py-spy"),
        ("callgrind", None, "E_PROFILER_ABSENT", "no program valgrind"),
    ],
)
def test_a_profiler_that_was_asked_for_and_fails_is_an_error(
    profiler: str, plan: dict[str, Any] | None, code: str, words: str, tools: Tools, tmp_path: Path
) -> None:
    """The tool's own words are shown, and nothing that looks like a measurement is written."""
    if profiler == "callgrind":
        tools.add("py-spy", PYSPY, record=SEES_PYTHON)
    elif plan is not None:
        tools.add(profiler, PERF, **plan)
    outcome = gate(tmp_path, profiler)
    assert outcome.verdict.verdict == "error"
    assert (outcome.exit_code, outcome.fails) == (5, True)
    assert words in messages(outcome)[code]
    assert {path.name for path in outcome.directory.iterdir()} == {"verdict.json"}


def test_auto_takes_another_profiler_and_says_why(tools: Tools, tmp_path: Path) -> None:
    tools.add("perf", PERF, script={"out": SPINNING_SCRIPT})
    outcome = gate(tmp_path, "auto")
    assert outcome.verdict.verdict == "no_baseline", messages(outcome)
    message = messages(outcome)["W_PROFILER_FALLBACK"]
    assert "E_PROFILER_ABSENT: no program py-spy" in message
    assert f"W_PROFILER_FALLBACK: {message}" in outcome.warnings
    written = json.loads((outcome.directory / "verdict.json").read_text())["reasons"]
    assert {"code": "W_PROFILER_FALLBACK", "message": message} in written


def test_a_count_that_was_only_wished_for_and_fails_is_a_warning(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY)
    FakeValgrind(tools, signal=9)
    outcome = gate(tmp_path, "py-spy", instructions=True)
    assert outcome.verdict.verdict == "no_baseline", messages(outcome)
    assert "E_ENGINE_DIED" in messages(outcome)["W_NOT_COUNTED"]
    assert not (outcome.directory / "instructions.folded").exists()


def test_instructions_are_stored_drawn_and_compared_and_never_gated(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY, record=SEES_PYTHON)
    FakeValgrind(tools, per_token=1_000_000)
    latest = gate(tmp_path, "callgrind", update=True).directory
    metrics = json.loads((latest / "evidence.json").read_text())["metrics"]
    (metric,) = [each for each in metrics if each["name"] == "instructions_per_token"]
    assert (metric["value"], metric["clock"]) == (1_000_000, "instructions")
    assert metric["provenance"] == "counted"
    stacks = parse_folded((latest / "instructions.folded").read_text())
    assert {stack[-1].name for stack in stacks} == {"decode"}
    picture = (latest / "instructions.svg").read_text()
    assert "1,000,000 instructions a token, decode counted" in picture
    assert "callgrind 3.19.0 · Ir counted" in picture
    assert "sample" not in picture
    FakeValgrind(tools, per_token=1_100_000)
    outcome = gate(tmp_path, "callgrind")
    assert outcome.verdict.verdict == "pass", messages(outcome)
    signal = outcome.verdict.signal("instructions_per_token")
    assert signal is not None
    assert signal.decision == "not_gated"
    assert signal.change_pct == pytest.approx(10.0)
    assert "blind to cache and memory" in messages(outcome)["I_INSTRUCTIONS"]

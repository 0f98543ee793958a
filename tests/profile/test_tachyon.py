"""Tachyon: what it is asked, what it writes, and the ways in which it fails.

The stand-in takes the options that the documentation of CPython 3.15 lists, and no others.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.profile import Setup, choose, cut, fold, unfold
from pytest_flamegate.profile.model import Frame
from pytest_flamegate.profile.profilers.errors import ProfilerError
from pytest_flamegate.profile.profilers.tachyon import (
    RATE_HZ,
    UNPAUSED,
    Tachyon,
    make,
    parse_collapsed,
)

FAKE = """#!{python} -SE
import argparse, json, os, signal, sys, time

plan = json.load(open({plan!r}))
if sys.argv[1:] == ["--version"]:
    print("Python 3.15.0")
    sys.exit(0)
assert sys.argv[1:6] == ["-I", "-X", "utf8", "-m", "profiling.sampling"], sys.argv
parser = argparse.ArgumentParser()
attach = parser.add_subparsers(dest="command", required=True).add_parser("attach")
attach.add_argument("pid", type=int)
attach.add_argument("-r", "--sampling-rate")
attach.add_argument("-d", "--duration", type=int)
attach.add_argument("-o", "--output")
attach.add_argument("--mode", choices=["wall", "cpu", "gil", "exception"], default="wall")
for flag in ("--all-threads", "--realtime-stats", "--native", "--blocking"):
    attach.add_argument(flag, action="store_true")
attach.add_argument("--collapsed", action="store_true")
arguments = parser.parse_args(sys.argv[6:])
assert (arguments.mode, arguments.collapsed) == ("cpu", True)
assert arguments.all_threads and arguments.realtime_stats and not arguments.blocking
os.kill(arguments.pid, 0)


def stop(*_):
    print("Interrupted by user.")
    print(plan.get("closing", "Captured 1,000 samples in 2.00 seconds\\nError rate: 1.20"))
    if "file" in plan:
        with open(arguments.output, "w") as stream:
            stream.write(plan["file"])
    else:
        print("Warning: No stack data to export")
    sys.exit(0)


signal.signal(signal.SIGINT, signal.SIG_IGN if plan.get("deaf") else stop)
sys.stderr.write(plan.get("err", ""))
if "code" in plan:
    sys.exit(plan["code"])
if not plan.get("silent"):
    print(f"\\r\\033[KStats: {{arguments.sampling_rate}}Hz Min: 99.0Hz", end="", flush=True)
while True:
    time.sleep(60)
"""
COLLAPSED = """\
tid:7;<frozen runpy>:_run_code:88;child.py:measured_sequences:60;kernels.py:gemv:12 5
tid:7;<frozen runpy>:_run_code:88;child.py:measured_sequences:61;kernels.py:gemv:14;<GC> 2
tid:9;<frozen runpy>:_run_code:88;child.py:measured_sequences:60;kernels.py:gemv:13 3
"""
SPINNER = "tid:1;<string>:<module>:9;<string>:flamegate_spinner:5 20\n"


def fake(directory: Path, **plan: Any) -> Tachyon:
    written = directory / "plan.json"
    written.write_text(json.dumps(plan))
    program = directory / "python3.15"
    program.write_text(FAKE.format(python=sys.executable, plan=str(written)))
    program.chmod(0o755)
    return Tachyon(python="3.15.0", version=(3, 15, 0), interpreter=str(program))


@pytest.fixture
def engine() -> Any:
    child = process.start([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    yield child.pid
    child.end()


def recorded(profiler: Tachyon, pid: int, directory: Path) -> Any:
    recording = profiler.attach(pid, directory / "out")
    try:
        return profiler.parse(recording.stop())
    finally:
        recording.close()


def test_a_recording_becomes_a_profile(tmp_path: Path, engine: int) -> None:
    profile = cut(recorded(fake(tmp_path, file=COLLAPSED), engine, tmp_path))
    child = Frame("measured_sequences", "child.py", "python")
    gemv = Frame("gemv", "kernels.py", "python")
    assert profile.stacks == {
        (child, gemv): 8,
        (child, gemv, Frame("<GC>", "", "python")): 2,
    }
    assert (profile.profiler, profile.profiler_version) == ("tachyon", "3.15.0")
    assert (profile.event, profile.rate_hz, profile.python) == ("cpu", RATE_HZ, "3.15.0")
    assert (profile.errors, profile.pids, profile.complete) == (12, (engine,), 10)
    assert profile.duration_ns == 10 * 1_000_000_000 // RATE_HZ
    assert profile.started_ticks == (clocks.started_ticks(engine),)
    assert profile.degraded == (UNPAUSED,)
    assert unfold(fold(profile)) == profile.stacks


def test_an_engine_that_waits_all_the_time_has_an_empty_profile(
    tmp_path: Path, engine: int
) -> None:
    assert recorded(fake(tmp_path), engine, tmp_path).samples == 0


def test_the_probe_looks_for_the_function_that_it_runs(tmp_path: Path) -> None:
    seen = fake(tmp_path, file=SPINNER).probe()
    assert (seen.usable, seen.sees_python, seen.sees_native) == (True, True, False)
    assert (seen.version, seen.event) == ("3.15.0", "cpu")
    nothing = fake(tmp_path).probe()
    assert (nothing.usable, nothing.code) == (False, "E_NO_SAMPLES")


@pytest.mark.parametrize(
    ("plan", "code", "words"),
    [
        (
            {"code": 1, "err": "python: No module named profiling\n"},
            "E_PROFILER_ABSENT",
            "No module named profiling",
        ),
        (
            {"code": 1, "err": "Tachyon was unable to access process memory.\n"},
            "E_PROFILER_DENIED",
            "unable to access process memory",
        ),
        (
            {
                "code": 1,
                "err": "Can't attach from a pre-release Python interpreter to a process running "
                "a different Python version\n",
            },
            "E_PROFILER_VERSION",
            "different Python version",
        ),
        (
            {"code": 1, "err": "Failed to find the PyRuntime section in process 7\n"},
            "E_NOT_PYTHON",
            "PyRuntime",
        ),
        ({"code": 1, "err": "Process with PID '7' does not exist.\n"}, "E_PROCESS_GONE", "PID '7'"),
        ({"code": 3}, "E_PROFILER_FAILED", "exit status 3, no words"),
        ({"file": COLLAPSED, "closing": "Killed"}, "E_PROFILER_FAILED", "exit status 0"),
        ({"file": "hello\n"}, "E_PROFILER_OUTPUT", "line 1 is no collapsed stack"),
    ],
)
def test_every_failure_has_a_code(
    plan: dict[str, Any], code: str, words: str, tmp_path: Path, engine: int
) -> None:
    with pytest.raises(FlamegateError, match=f"^{code}:") as refused:
        recorded(fake(tmp_path, **plan), engine, tmp_path)
    assert words in refused.value.problem
    assert refused.value.remedy


@pytest.mark.parametrize("plan", [{"silent": True}, {"deaf": True}])
def test_one_that_hangs_is_ended(
    plan: dict[str, Any], tmp_path: Path, engine: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_flamegate.profile.profilers.base._ANSWER_TIMEOUT_S", 5.0)
    monkeypatch.setattr("pytest_flamegate.profile.profilers.base._STOP_TIMEOUT_S", 0.3)
    with pytest.raises(ProfilerError, match="E_PROFILER_HANGS"):
        recorded(fake(tmp_path, **plan), engine, tmp_path)


def test_a_recording_that_is_gone_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="E_PROFILER_OUTPUT"):
        fake(tmp_path).parse(tmp_path / "gone.txt")


def test_an_older_python_has_none_and_nothing_is_started_to_see_it() -> None:
    old = replace(Tachyon(), version=(3, 14, 2), interpreter="/nowhere/python")
    seen = old.probe()
    assert (seen.usable, seen.code) == (False, "E_PROFILER_ABSENT")
    assert seen.reason == "CPython 3.15 or newer brings it, and this is 3.14.2"
    with pytest.raises(ToolError, match="E_PROFILER_ABSENT"):
        choose("tachyon", Setup(python=(3, 11, 7)))


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        (Setup(call_graph="fp"), "E_CALL_GRAPH"),
        (Setup(native=True), "E_NATIVE_FRAMES"),
        (Setup(rate_hz=0), "E_PROFILER_RATE"),
        (Setup(rate_hz=1001), "E_PROFILER_RATE"),
    ],
)
def test_what_it_cannot_do_is_a_usage_error(setup: Setup, code: str) -> None:
    with pytest.raises(UsageError, match=f"^{code}:"):
        make(setup)


def test_the_rate_is_the_one_that_was_asked_for(tmp_path: Path, engine: int) -> None:
    assert (make(Setup(rate_hz=250)).rate_hz, make(Setup()).rate_hz) == (250, RATE_HZ)
    profiler = replace(fake(tmp_path, file=COLLAPSED), rate_hz=250)
    assert recorded(profiler, engine, tmp_path).duration_ns == 40_000_000


def test_a_command_cannot_be_wrapped(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="E_PROFILER_ATTACHES"):
        Tachyon().wrap(["engine"], tmp_path)


@pytest.mark.parametrize(
    "line",
    ["tid:7 5", "engine.py:f:1 5", "tid:7;engine.py:f:1", "tid:7;f 0", "tid:7;f -1", "tid:x;f 1"],
)
def test_a_line_of_another_kind_is_refused(line: str) -> None:
    with pytest.raises(ProfilerError, match="E_PROFILER_OUTPUT"):
        parse_collapsed(line.encode())


def test_hostile_names_are_escaped() -> None:
    stacks = parse_collapsed(b"tid:7;a:b.py:f\x1b[31m\xff:1;<lambda> x:y:<lambda>:3 2\n")
    ((first, second),) = stacks
    assert first == Frame("b.py:f\\x1b[31m\\udcff", "a", "python")
    assert second.kind == "python"
    assert "\x1b" not in str(stacks)


# Not by tests/tools.py: no package index has this interpreter yet, so nobody can be asked for it.
@pytest.mark.skipif(sys.version_info < (3, 15), reason="needs CPython 3.15")
def test_the_real_one_sees_what_a_program_does(tmp_path: Path) -> None:
    profiler = make(Setup())
    seen = profiler.probe()
    assert seen.usable, f"{seen.code}: {seen.reason}"
    assert seen.sees_python
    child = process.start(
        [sys.executable, "-c", "def busy():\n  while True: sum(range(1000))\nbusy()"]
    )
    try:
        recording = profiler.attach(child.pid, tmp_path)
        time.sleep(1.0)
        profile = profiler.parse(recording.stop())
    finally:
        child.end()
    busy = sum(n for stack, n in profile.stacks.items() if stack[-1].name == "busy")
    assert busy > 0.9 * profile.samples > 0

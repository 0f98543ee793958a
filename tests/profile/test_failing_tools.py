"""Every way a profiler can fail ends in a coded message, and leaves no process behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import FlamegateError, UndecidedError
from pytest_flamegate.profile.profilers import base, jitdump, perf, pyspy, trial
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.errors import failure_error
from tests.profile.fakes import EVLIST, PERF, PYSPY, SCRIPT, SPEEDSCOPE, Tools
from tests.profile.profiles import DATA

PERF_DENIED = """Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
perf_event_paranoid setting is 2:
  -1: Allow use of (almost) all events by all users
"""
PERF_SECCOMP = """perf_event_open(..., PERF_FLAG_FD_CLOEXEC) failed with unexpected error 1 \
(Operation not permitted)
perf_event_open(..., 0) failed unexpectedly with error 1 (Operation not permitted)
Error:
No permission to enable cpu-clock event.
"""
PERF_NO_SYSCALL = """Error:
The sys_perf_event_open() syscall returned with 38 (Function not implemented) for event (cpu-clock).
/bin/dmesg | grep -i perf may provide additional information.
"""
PERF_RATE = """error: Maximum frequency rate (100000 Hz) exceeded.
       Please use -F freq option with a lower value or consider
       tweaking /proc/sys/kernel/perf_event_max_sample_rate.
"""
PERF_WRAPPER = (
    "WARNING: perf not found for kernel 6.18.44\n\n  You may need to install linux-tools\n"
)
PERF_OLD = "  Error: unknown option `control'\n\n Usage: perf record [<options>] [<command>]\n"
PERF_UNCLOSED = """WARNING: The k.data file's data size field is 0 which is unexpected.
Was the 'perf record' command properly terminated?
"""
SPY_DENIED = (
    "Permission Denied: Try running again with elevated permissions by going "
    "'sudo env \"PATH=$PATH\" !!'\n"
)
SPY_SECCOMP = """Error: Failed to suspend process

Caused by:
    0: EPERM: Operation not permitted
    1: EPERM: Operation not permitted

Stack backtrace:
   0: <E as anyhow::context::ext::StdError>::ext_context
"""
SPY_NO_PYTHON = """Error: Failed to find python version from target process

Stack backtrace:
   0: anyhow::error::<impl anyhow::Error>::msg
"""
SPY_GONE = """Error: Failed to get process executable name. Check that the process is running.

Caused by:
    0: No such file or directory (os error 2)
"""
SPY_NEW_PYTHON = "Error: Unsupported version of Python: 3.99.0\n"


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TRIAL_S", 0.01)


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (perf, base):
        monkeypatch.setattr(module, "_ANSWER_TIMEOUT_S", 1.0)
        monkeypatch.setattr(module, "_STOP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(trial, "ASK_TIMEOUT_S", 0.5)
    monkeypatch.setattr(perf, "READ_TIMEOUT_S", 1.0)


def failing(err: str, code: int = 255) -> dict[str, Any]:
    return {"record": {"err": err, "code": code}}


PERF_CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "denied": (failing(PERF_DENIED), "E_PROFILER_DENIED", "Access to performance monitoring"),
    "seccomp": (failing(PERF_SECCOMP), "E_PROFILER_SECCOMP", "No permission to enable"),
    "no syscall": (failing(PERF_NO_SYSCALL), "E_PROFILER_SECCOMP", "38 (Function not implemented)"),
    "rate": (failing(PERF_RATE, 234), "E_PROFILER_RATE", "Maximum frequency rate (100000 Hz)"),
    "wrapper": (failing(PERF_WRAPPER, 2), "E_PROFILER_VERSION", "not found for kernel 6.18.44"),
    "old": (failing(PERF_OLD, 129), "E_PROFILER_VERSION", "unknown option"),
    "silent failure": (failing("", 1), "E_PROFILER_FAILED", "exit status 1, no words"),
    "other words": (failing("It is Monday.\n", 3), "E_PROFILER_FAILED", "It is Monday."),
    "crash": ({"record": {"do": "crash"}}, "E_PROFILER_FAILED", "exit status -11"),
    "hang at once": ({"record": {"do": "hang"}}, "E_PROFILER_HANGS", "while told to begin"),
    "hang when asked": ({"--version": {"do": "hang"}}, "E_PROFILER_HANGS", "its version"),
    "hang at the end": (
        {"record": {"do": "serve", "ignore": ["disable", "stop"]}},
        "E_PROFILER_HANGS",
        "while told to stop",
    ),
    "no file": ({"record": {"do": "serve"}}, "E_PROFILER_OUTPUT", "wrote no file"),
    "killed": (
        {"evlist": {"out": EVLIST, "err": PERF_UNCLOSED}},
        "E_PROFILER_OUTPUT",
        "did not finish",
    ),
    "damaged": (
        {"evlist": {"err": "incompatible file format (rerun with -v to learn more)", "code": 255}},
        "E_PROFILER_OUTPUT",
        "incompatible file format",
    ),
    "no event": ({"evlist": {"out": "what is this\n"}}, "E_PROFILER_OUTPUT", "no sampled event"),
    "script fails": ({"script": {"err": "no memory", "code": 1}}, "E_PROFILER_FAILED", "no memory"),
    "script crashes": ({"script": {"do": "crash"}}, "E_PROFILER_FAILED", "exit status -11"),
    "script hangs": ({"script": {"do": "hang"}}, "E_PROFILER_HANGS", "perf script"),
    "script is cut off": ({"script": {"out": SCRIPT[:-40]}}, "E_PROFILER_OUTPUT", "cut off"),
    "no samples": ({"script": {"out": ""}}, "E_NO_SAMPLES", "no sample"),
}
SPY_CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "denied": (failing(SPY_DENIED, 1), "E_PROFILER_DENIED", "Permission Denied: Try running again"),
    "seccomp": (failing(SPY_SECCOMP, 1), "E_PROFILER_SECCOMP", "Operation not permitted"),
    "no python": (failing(SPY_NO_PYTHON, 1), "E_NOT_PYTHON", "Failed to find python version"),
    "gone": (failing(SPY_GONE, 1), "E_PROCESS_GONE", "Check that the process is running"),
    "new python": (failing(SPY_NEW_PYTHON, 1), "E_PROFILER_VERSION", "Python: 3.99.0"),
    "crash": ({"record": {"do": "crash"}}, "E_PROFILER_FAILED", "exit status -11"),
    "hang at once": ({"record": {"do": "hang"}}, "E_PROFILER_HANGS", "while told to begin"),
    "hang when asked": ({"--version": {"do": "hang"}}, "E_PROFILER_HANGS", "its version"),
    "hang at the end": (
        {"record": {"do": "serve", "ignore": ["SIGINT"]}},
        "E_PROFILER_HANGS",
        "while told to stop",
    ),
    "no file": ({"record": {"do": "serve"}}, "E_PROFILER_FAILED", "no words"),
    "no closing words": (
        {"record": {"do": "serve", "file": SPEEDSCOPE, "closing": ""}},
        "E_PROFILER_FAILED",
        "no words",
    ),
    "empty": ({"record": {"do": "serve", "file": ""}}, "E_PROFILER_OUTPUT", "no JSON"),
    "cut off": (
        {"record": {"do": "serve", "file": SPEEDSCOPE[:-50]}},
        "E_PROFILER_OUTPUT",
        "no JSON",
    ),
    "no samples": (
        {"record": {"do": "serve", "file": '{"profiles": [], "shared": {"frames": []}}'}},
        "E_NO_SAMPLES",
        "no sample",
    ),
}


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def probed(profiler: Profiler, code: str, words: str) -> Probe:
    before = children()
    probe = profiler.probe()
    assert children() == before
    assert not probe.usable
    assert (probe.code, words in probe.reason) == (code, True), probe
    assert probe.remedy.endswith((".", ")")) or probe.remedy.startswith("Type: ")
    return probe


@pytest.mark.parametrize("name", PERF_CASES)
def test_perf_fails_with_a_code_and_its_own_words(
    name: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "hang" in name:
        be_impatient(monkeypatch)
    changes, code, words = PERF_CASES[name]
    tools.add("perf", PERF, **changes)
    probed(perf.make_perf(Setup(python=(3, 11, 7))), code, words)


@pytest.mark.parametrize("name", SPY_CASES)
def test_py_spy_fails_with_a_code_and_its_own_words(
    name: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "hang" in name:
        be_impatient(monkeypatch)
    changes, code, words = SPY_CASES[name]
    tools.add("py-spy", PYSPY, **changes)
    probed(pyspy.make_pyspy(Setup()), code, words)


@pytest.mark.parametrize(
    ("profiler", "remedy"),
    [
        (perf.make_perf(Setup()), "apt install linux-perf"),
        (pyspy.make_pyspy(Setup()), "pip install py-spy"),
    ],
)
def test_an_absent_tool_says_how_to_get_it(profiler: Profiler, remedy: str, tools: Tools) -> None:
    probe = probed(profiler, "E_PROFILER_ABSENT", f"no program {profiler.name}")
    assert remedy in probe.remedy


@pytest.mark.parametrize("profiler", [perf.make_perf(Setup()), pyspy.make_pyspy(Setup())])
def test_a_tool_for_another_machine_cannot_start(profiler: Profiler, tools: Tools) -> None:
    program = tools.directory / profiler.name
    program.write_bytes(b"\x7fELF of another kind")
    program.chmod(0o755)
    probed(profiler, "E_CANNOT_START", "Cannot start")


def test_the_fakes_that_do_not_fail_are_usable(tools: Tools) -> None:
    tools.add("perf", PERF)
    tools.add("py-spy", PYSPY)
    native = perf.make_perf(Setup(python=(3, 11, 7))).probe()
    assert (native.usable, native.sees_native, native.sees_python) == (True, True, False)
    assert (native.version, native.event) == ("6.1.187", "cpu-clock")
    python = pyspy.make_pyspy(Setup()).probe()
    assert (python.usable, python.version, python.event) == (True, "0.4.3", "wall-clock")


def test_py_spy_samples_without_pausing_where_pausing_is_forbidden(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY, **failing(SPY_SECCOMP, 1), nonblocking=PYSPY["record"])
    profiler = pyspy.make_pyspy(Setup())
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert len(profile.degraded) == 1
    assert profile.degraded[0].startswith("sampled without pausing: Error: Failed to suspend")
    assert profiler.probe().usable


def test_py_spy_counts_the_samples_that_failed(tools: Tools, tmp_path: Path) -> None:
    closing = {**PYSPY["record"], "closing": "Samples: 95 Errors: 5"}
    tools.add("py-spy", PYSPY, record=closing)
    profiler = pyspy.make_pyspy(Setup())
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert (profile.errors, profile.pids) == (5, (os.getpid(),))


def test_perf_says_what_it_really_sampled(tools: Tools, tmp_path: Path) -> None:
    tools.add(
        "perf",
        PERF,
        evlist={"out": (DATA / "evlist-user.txt").read_text()},
        report={"out": "  THROTTLE events:  2  ( 0.1%)\n  UNTHROTTLE events:  7\n"},
    )
    profiler = perf.make_perf(Setup(python=(3, 11, 7), rate_hz=100))
    recording = profiler.attach(os.getpid(), tmp_path)
    profile = profiler.parse(recording.stop())
    assert (profile.event, profile.rate_hz, profile.call_graph) == ("cpu-clock:u", 999, "fp")
    assert profile.degraded == (
        "no kernel frames: cpu-clock:u",
        "throttled 2 times",
        "Python frames need CPython >= 3.13",
    )
    assert profile.pids == (os.getpid(),)


def test_perf_keeps_the_window_where_python_tells_it_names(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.add("perf", PERF)
    monkeypatch.setattr(jitdump, "DIRECTORY", tmp_path)
    jitdump.jitdump_path(os.getpid()).write_bytes(
        b"no jitdump, and long enough for the header of one"
    )
    profiler = perf.make_perf(Setup(python=(3, 13, 0)))
    raw = profiler.attach(os.getpid(), tmp_path).stop()
    first_ns = 3_955_049_540_000
    (whole, one) = (profiler.parse(raw, window_ns=window) for window in (None, (0, first_ns)))
    assert (whole.samples, whole.covers) == (SCRIPT.count("cpu-clock:"), "sequence")
    assert (one.samples, one.covers) == (1, "decode")


@pytest.mark.parametrize("make", [perf.make_perf, pyspy.make_pyspy])
def test_a_recording_may_be_stopped_and_closed_twice(
    make: Any, tools: Tools, tmp_path: Path
) -> None:
    tools.add("perf", PERF)
    tools.add("py-spy", PYSPY)
    recording = make(Setup(python_engine=False)).attach(os.getpid(), tmp_path)
    assert recording.stop() == recording.stop()
    recording.close()
    recording.close()


@pytest.mark.parametrize("make", [perf.make_perf, pyspy.make_pyspy])
def test_an_abandoned_recording_leaves_nothing_running(
    make: Any, tools: Tools, tmp_path: Path
) -> None:
    tools.add("perf", PERF)
    tools.add("py-spy", PYSPY)
    before = children()
    recording = make(Setup()).attach(os.getpid(), tmp_path)
    assert children() != before
    recording.close()
    assert children() == before


@pytest.mark.parametrize(
    ("make", "said", "code", "words"),
    [
        (perf.make_perf, PERF_DENIED, "E_PROFILER_DENIED", "Access to performance monitoring"),
        (pyspy.make_pyspy, SPY_NO_PYTHON, "E_NOT_PYTHON", "Failed to find python version"),
        (perf.make_perf, "", "E_PROFILER_OUTPUT", "wrote no file."),
        (perf.make_perf, "It is Monday.", "E_PROFILER_OUTPUT", 'says: "It is Monday."'),
        (pyspy.make_pyspy, "the engine's own words", "E_PROFILER_OUTPUT", "the engine's own words"),
    ],
)
def test_a_wrapped_command_that_left_nothing_is_explained(
    make: Any, said: str, code: str, words: str, tools: Tools, tmp_path: Path
) -> None:
    tools.add("perf", PERF)
    tools.add("py-spy", PYSPY)
    profiler = make(Setup())
    wrapped = profiler.wrap(["engine", "--prompt", "; rm"], tmp_path)
    assert wrapped.argv[-4:] == ("--", "engine", "--prompt", "; rm")
    with pytest.raises(FlamegateError, match=code) as refused:
        profiler.parse(wrapped.raw, said.encode())
    assert words in refused.value.problem


@pytest.mark.parametrize(
    ("make", "content"),
    [
        (perf.make_perf, "PERFILE2"),
        (pyspy.make_pyspy, '{"profiles": [], "shared": {"frames": []}}'),
    ],
)
def test_a_wrapped_command_without_a_sample(
    make: Any, content: str, tools: Tools, tmp_path: Path
) -> None:
    """There is no process to name either, so such a profile never gets further."""
    tools.add("perf", PERF, script={"out": ""})
    tools.add("py-spy", PYSPY)
    profiler = make(Setup())
    wrapped = profiler.wrap(["engine"], tmp_path)
    wrapped.raw.write_text(content)
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        profiler.parse(wrapped.raw)


def test_words_of_tools_are_shown_on_one_line_and_escaped() -> None:
    error = failure_error("perf", b"a\x1b[31m\n  b\xff" + b"x" * 999, 1, ())
    assert error.reason.startswith("a\\x1b[31m b\\udcffxxx")
    assert error.reason.endswith("xxx …")
    assert len(error.reason) < 400


@pytest.mark.parametrize("call_graph", ["lbr", "dwarf", "dwarf,", "dwarf,1e9", "fp;rm"])
def test_a_call_graph_that_perf_does_not_know_is_a_usage_error(call_graph: str) -> None:
    with pytest.raises(FlamegateError, match="E_CALL_GRAPH") as refused:
        perf.make_perf(Setup(call_graph=call_graph))
    assert refused.value.exit_code == 2


def test_closing_the_control_twice_is_harmless() -> None:
    control = perf.Control()
    control.handed_over()
    control.close()
    control.close()

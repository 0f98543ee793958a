"""Every way in which a profiler fails is a coded error, and leaves no process behind."""

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError, UndecidedError
from pytest_flamegate.profile.profilers import perf, perf_data, pyspy, tools
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.tools import failure_error
from tests.profile.fakes import (
    EVLIST,
    PERF,
    PERF_DENIED,
    PERF_NO_SYSCALL,
    PERF_OLD,
    PERF_RATE,
    PERF_SECCOMP,
    PERF_UNCLOSED,
    PERF_WRAPPER,
    PYSPY,
    SCRIPT,
    SPEEDSCOPE,
    SPY_DENIED,
    SPY_GONE,
    SPY_NEW_PYTHON,
    SPY_NO_PYTHON,
    SPY_SECCOMP,
    Tools,
    failing,
    shorten_timeouts,
)
from tests.profile.profiles import DATA

MAKE = {"perf": perf.make_perf, "py-spy": pyspy.make_pyspy}
PLANS = {"perf": PERF, "py-spy": PYSPY}
OLD_PYTHON = Setup(python=(3, 11, 7))
EMPTY = '{"profiles": [], "shared": {"frames": []}}'
DEAF = {"record": {"do": "serve", "ignore": ["disable", "stop", "SIGINT"]}}
COMMON: dict[str, tuple[dict[str, Any], str, str]] = {
    "silent failure": (failing("", 1), "FAILED", "exit status 1, no words"),
    "other words": (failing("It is Monday.\n", 3), "FAILED", "It is Monday."),
    "crash": ({"record": {"do": "crash"}}, "FAILED", "exit status -11"),
    "hang at once": ({"record": {"do": "hang"}}, "FAILED", "while starting to sample"),
    "hang when asked": ({"--version": {"do": "hang"}}, "FAILED", "its version"),
    "hang at the end": (DEAF, "FAILED", "while writing its file"),
}
PERF_FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    **COMMON,
    "denied": (failing(PERF_DENIED), "DENIED", "Access to performance monitoring"),
    "seccomp": (failing(PERF_SECCOMP), "DENIED", "No permission to enable"),
    "no syscall": (failing(PERF_NO_SYSCALL), "DENIED", "38 (Function not implemented)"),
    "rate": (failing(PERF_RATE, 234), "OPTION", "Maximum frequency rate (100000 Hz)"),
    "wrapper": (failing(PERF_WRAPPER, 2), "VERSION", "not found for kernel 6.18.44"),
    "old": (failing(PERF_OLD, 129), "VERSION", "unknown option"),
    "no file": ({"record": {"do": "serve"}}, "OUTPUT", "wrote no file"),
    "killed": ({"evlist": {"out": EVLIST, "err": PERF_UNCLOSED}}, "OUTPUT", "did not finish"),
    "damaged": (
        {"evlist": {"err": "incompatible file format (rerun with -v to learn more)", "code": 255}},
        "OUTPUT",
        "incompatible file format",
    ),
    "no event": ({"evlist": {"out": "what is this\n"}}, "OUTPUT", "no sampled event"),
    "script fails": ({"script": {"err": "no memory", "code": 1}}, "FAILED", "no memory"),
    "script crashes": ({"script": {"do": "crash"}}, "FAILED", "exit status -11"),
    "script hangs": ({"script": {"do": "hang"}}, "FAILED", "perf script"),
    "script is cut off": ({"script": {"out": SCRIPT[:-40]}}, "OUTPUT", "cut off"),
    "no samples": ({"script": {"out": ""}}, "E_NO_SAMPLES", "no sample"),
}
SPY_FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    **COMMON,
    "denied": (failing(SPY_DENIED, 1), "DENIED", "Permission Denied: Try running again"),
    "seccomp": (failing(SPY_SECCOMP, 1), "DENIED", "Operation not permitted"),
    "no python": (failing(SPY_NO_PYTHON, 1), "E_NOT_PYTHON", "Failed to find python version"),
    "gone": (failing(SPY_GONE, 1), "E_PROCESS_GONE", "Check that the process is running"),
    "new python": (failing(SPY_NEW_PYTHON, 1), "VERSION", "Python: 3.99.0"),
    "no file": ({"record": {"do": "serve"}}, "FAILED", "no words"),
    "no closing words": (
        {"record": {"do": "serve", "file": SPEEDSCOPE, "closing": ""}},
        "FAILED",
        "no words",
    ),
    "empty": ({"record": {"do": "serve", "file": ""}}, "OUTPUT", "not JSON"),
    "cut off": ({"record": {"do": "serve", "file": SPEEDSCOPE[:-50]}}, "OUTPUT", "not JSON"),
    "no samples": ({"record": {"do": "serve", "file": EMPTY}}, "E_NO_SAMPLES", "no sample"),
}
FAULTS = {"perf": PERF_FAULTS, "py-spy": SPY_FAULTS}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "TRIAL_S", 0.01)


@pytest.fixture(params=MAKE)
def profiler(request: pytest.FixtureRequest, tools: Tools) -> Profiler:
    """A stand-in that works, of each profiler in turn."""
    tools.add(request.param, PLANS[request.param])
    return MAKE[request.param](OLD_PYTHON)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def probe_failing(profiler: Profiler, code: str, words: str) -> Probe:
    before = children()
    probe = profiler.probe()
    assert children() == before
    assert not probe.usable
    expected = code if code.startswith("E_") else f"E_PROFILER_{code}"
    assert (probe.code, words in probe.reason) == (expected, True), probe
    assert probe.remedy.endswith((".", ")")) or probe.remedy.startswith("Type: ")
    return probe


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_a_fault_has_a_code_and_the_words_of_the_tool(
    name: str, fault: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, code, words = FAULTS[name][fault]
    if "hang" in fault:
        shorten_timeouts(monkeypatch)
    tools.add(name, PLANS[name], **changes)
    probe_failing(MAKE[name](OLD_PYTHON), code, words)


@pytest.mark.parametrize(
    ("name", "remedy"), [("perf", "apt install linux-perf"), ("py-spy", "pip install py-spy")]
)
def test_an_absent_tool_says_how_to_get_it(name: str, remedy: str, tools: Tools) -> None:
    assert remedy in probe_failing(MAKE[name](Setup()), "ABSENT", f"no program {name}").remedy


@pytest.mark.parametrize("name", MAKE)
def test_a_tool_for_another_machine_cannot_start(name: str, tools: Tools) -> None:
    program = tools.directory / name
    program.write_bytes(b"\x7fELF of another kind")
    program.chmod(0o755)
    probe_failing(MAKE[name](Setup()), "E_CANNOT_START", "Cannot start")


def test_the_stand_ins_that_do_not_fail_are_usable(tools: Tools) -> None:
    tools.add("perf", PERF)
    tools.add("py-spy", PYSPY)
    native = perf.make_perf(OLD_PYTHON).probe()
    assert (native.usable, native.sees_native, native.sees_python) == (True, True, False)
    assert (native.version, native.event) == ("6.1.187", "cpu-clock")
    python = pyspy.make_pyspy(Setup()).probe()
    assert (python.usable, python.version, python.event) == (True, "0.4.3", "wall-clock")


def test_py_spy_samples_without_pausing_if_pausing_is_forbidden(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY, **failing(SPY_SECCOMP, 1), nonblocking=PYSPY["record"])
    profiler = pyspy.make_pyspy(Setup())
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    (note,) = profile.degraded
    assert note.startswith("sampled without pausing: Error: Failed to suspend")
    assert profile.call_graph == "python+nonblocking"  # not compared with paused samples
    assert profiler.probe().usable
    native = pyspy.make_pyspy(Setup(native=True))  # native stacks cannot be read without pausing
    with pytest.raises(FlamegateError, match="E_PROFILER_DENIED"):
        native.attach(os.getpid(), tmp_path)


def test_py_spy_counts_the_samples_that_failed(tools: Tools, tmp_path: Path) -> None:
    closing = {**PYSPY["record"], "closing": "Samples: 95 Errors: 5"}
    tools.add("py-spy", PYSPY, record=closing)
    profiler = pyspy.make_pyspy(Setup())
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert (profile.errors, profile.pids) == (5, (os.getpid(),))


def test_perf_reports_what_it_really_sampled(tools: Tools, tmp_path: Path) -> None:
    tools.add(
        "perf",
        PERF,
        evlist={"out": (DATA / "evlist-user.txt").read_text()},
        report={"out": "  THROTTLE events:  2  ( 0.1%)\n  UNTHROTTLE events:  7\n"},
    )
    profiler = perf.make_perf(Setup(python=(3, 11, 7), rate_hz=100))
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert (profile.event, profile.rate_hz, profile.call_graph) == ("cpu-clock:u", 999, "fp")
    assert profile.degraded == (
        "no kernel frames: cpu-clock:u",
        "throttled 2 times",
        "Python frames need CPython >= 3.13",
    )
    assert profile.pids == (os.getpid(),)
    assert profile.started_ticks == (clocks.read_start_ticks(os.getpid()),)


def test_perf_keeps_the_window_when_python_names_its_functions(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.add("perf", PERF)
    monkeypatch.setattr(perf_data, "DIRECTORY", tmp_path)
    dump = perf_data.jitdump_path(os.getpid())
    dump.write_bytes(b"no jitdump, and long enough for the header of one")
    profiler = perf.make_perf(Setup(python=(3, 13, 0)))
    raw = profiler.attach(os.getpid(), tmp_path).stop()
    first_ns = 3_955_049_540_000
    whole, one = (profiler.parse(raw, window_ns=window) for window in (None, (0, first_ns)))
    assert (whole.samples, whole.covers) == (SCRIPT.count("cpu-clock:"), "sequence")
    assert (one.samples, one.covers) == (1, "decode")
    profiler.clean_up(os.getpid())
    assert not dump.exists()


def test_a_recording_may_be_closed_twice(profiler: Profiler, tmp_path: Path) -> None:
    recording = profiler.attach(os.getpid(), tmp_path)
    recording.stop()
    recording.close()
    recording.close()


def test_an_abandoned_recording_leaves_nothing_running(profiler: Profiler, tmp_path: Path) -> None:
    before = children()
    recording = profiler.attach(os.getpid(), tmp_path)
    assert children() != before
    recording.close()
    assert children() == before


@pytest.mark.parametrize(
    ("name", "stderr", "code", "words"),
    [
        ("perf", PERF_DENIED, "E_PROFILER_DENIED", "Access to performance monitoring"),
        ("py-spy", SPY_NO_PYTHON, "E_NOT_PYTHON", "Failed to find python version"),
        ("perf", "", "E_PROFILER_OUTPUT", "wrote no file."),
        ("perf", "It is Monday.", "E_PROFILER_OUTPUT", 'says: "It is Monday."'),
        ("py-spy", "the engine's own words", "E_PROFILER_OUTPUT", "the engine's own words"),
    ],
)
def test_a_wrapped_command_that_left_nothing_is_explained(
    name: str, stderr: str, code: str, words: str, tools: Tools, tmp_path: Path
) -> None:
    tools.add(name, PLANS[name])
    profiler = MAKE[name](Setup())
    wrapped = profiler.wrap(["engine", "--prompt", "; rm"], tmp_path)
    assert wrapped.argv[-4:] == ("--", "engine", "--prompt", "; rm")
    with pytest.raises(FlamegateError, match=code) as caught:
        profiler.parse(wrapped.recording, stderr.encode())
    assert words in caught.value.problem


@pytest.mark.parametrize(("name", "content"), [("perf", "PERFILE2"), ("py-spy", EMPTY)])
def test_a_wrapped_command_without_a_sample(
    name: str, content: str, tools: Tools, tmp_path: Path
) -> None:
    """Nothing names its process either, so such a profile never gets further."""
    tools.add("perf", PERF, script={"out": ""})
    tools.add("py-spy", PYSPY)
    profiler = MAKE[name](Setup())
    wrapped = profiler.wrap(["engine"], tmp_path)
    wrapped.recording.raw.write_text(content)
    with pytest.raises(UndecidedError, match="E_NO_SAMPLES"):
        profiler.parse(wrapped.recording)


def test_output_of_tools_is_shown_on_one_line_escaped_and_cut() -> None:
    error = failure_error("perf", b"a\x1b[31m\n  b\xff" + b"x" * 999, 1)
    assert error.reason.startswith("a\\x1b[31m b\\udcffxxx")
    assert error.reason.endswith("xxx …")
    assert len(error.reason) < 400

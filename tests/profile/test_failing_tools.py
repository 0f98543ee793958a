"""Every way in which a profiler fails is a coded error, and leaves no process behind."""

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.profilers import perf, perf_data, pyspy, tools
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.tools import failure_error, parse_wrapped, try_profiler
from tests.profile import fakes
from tests.profile.profiles import DATA

MAKE = {"perf": perf.make_profiler, "py-spy": pyspy.make_profiler}
PLANS = {"perf": fakes.PERF, "py-spy": fakes.PYSPY}
OLD_PYTHON = Setup(python=(3, 11, 7))
EMPTY = '{"profiles": [], "shared": {"frames": []}}'
DEAF = {"record": {"do": "serve", "ignore": ["disable", "stop", "SIGINT"]}}
SPY_SECCOMP = "Error: Failed to suspend process\n\nCaused by:\n    0: Operation not permitted\n"
SPY_NO_PYTHON = "Error: Failed to find python version from target process\n"
NOT_CLOSED = "WARNING: The k.data file's data size field is 0 which is unexpected.\n"
UNCLOSED = {"record": {"do": "serve", "file": fakes.SPEEDSCOPE, "closing": ""}}


def serving(file: str) -> dict[str, Any]:
    return {"record": {"do": "serve", "file": file}}


FAULTS: list[tuple[str, dict[str, Any], str, str]] = [
    *(
        (name, plan, "FAILED", words)
        for name in MAKE
        for plan, words in (
            (fakes.failing("It is Monday.\n", 3), "It is Monday."),
            ({"record": {"do": "crash"}}, "exit status -11, no words"),
            ({"record": {"do": "hang"}}, "no answer within 2 s while starting to sample"),
            ({"--version": {"do": "hang"}}, "while asked for its version"),
            (DEAF, "while writing its file"),
        )
    ),
    ("perf", fakes.failing(fakes.PERF_DENIED), "DENIED", "Access to performance monitoring"),
    ("perf", {"record": {"do": "serve"}}, "OUTPUT", "wrote no file"),
    ("perf", {"evlist": {"out": fakes.EVLIST, "err": NOT_CLOSED}}, "OUTPUT", "did not finish"),
    ("perf", {"evlist": {"out": "what is this\n"}}, "OUTPUT", "no sampled event"),
    ("perf", {"evlist": {"err": "no memory", "code": 255}}, "FAILED", "no memory"),
    ("perf", {"script": {"err": "no memory", "code": 1}}, "FAILED", "no memory"),
    ("perf", {"script": {"do": "hang"}}, "FAILED", "perf script"),
    ("perf", {"script": {"out": fakes.SCRIPT[:-40]}}, "OUTPUT", "cut off"),
    ("perf", {"script": {"out": ""}}, "E_NO_SAMPLES", "no sample"),
    ("py-spy", fakes.failing(SPY_SECCOMP, 1), "DENIED", "Operation not permitted"),
    ("py-spy", fakes.failing(SPY_NO_PYTHON, 1), "E_PROFILER_BLIND", "Failed to find python"),
    ("py-spy", {"record": {"do": "serve"}}, "FAILED", "no words"),
    ("py-spy", UNCLOSED, "FAILED", "no words"),
    ("py-spy", serving(""), "OUTPUT", "not JSON"),
    ("py-spy", serving(fakes.SPEEDSCOPE[:-50]), "OUTPUT", "not JSON"),
    ("py-spy", serving(EMPTY), "E_NO_SAMPLES", "no sample"),
]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "TRIAL_S", 0.01)


def shorten_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "ANSWER_TIMEOUT_S", 2.0)
    monkeypatch.setattr(tools, "STOP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(tools, "VERSION_TIMEOUT_S", 0.5)
    monkeypatch.setattr(perf_data, "READ_TIMEOUT_S", 1.0)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def probe_failing(profiler: Profiler, code: str, words: str) -> Probe:
    before = children()
    probe = try_profiler(profiler)
    assert children() == before
    expected = code if code.startswith("E_") else f"E_PROFILER_{code}"
    assert (probe.usable, probe.code, words in probe.reason) == (False, expected, True), probe
    assert probe.remedy
    return probe


@pytest.mark.parametrize(("name", "changes", "code", "words"), FAULTS)
def test_a_fault_has_a_code_and_the_words_of_the_tool(
    name: str,
    changes: dict[str, Any],
    code: str,
    words: str,
    tools: fakes.Tools,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "hang" in str(changes) or changes is DEAF:
        shorten_timeouts(monkeypatch)
    tools.add(name, PLANS[name], **changes)
    probe_failing(MAKE[name](OLD_PYTHON), code, words)


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("perf", "No permission to enable cpu-clock event.", "E_PROFILER_DENIED"),
        ("perf", "returned with 38 (Function not implemented)", "E_PROFILER_DENIED"),
        ("perf", "Maximum frequency rate (100000 Hz) exceeded.", "E_PROFILER_OPTION"),
        ("perf", "WARNING: perf not found for kernel 6.18.44", "E_PROFILER_ABSENT"),
        ("perf", "unknown option `control'", "E_PROFILER_ABSENT"),
        ("perf", "incompatible file format (rerun with -v)", "E_PROFILER_OUTPUT"),
        ("py-spy", "Permission Denied: Try running again with sudo", "E_PROFILER_DENIED"),
        ("py-spy", "Check that the process is running.", "E_PROCESS_GONE"),
        ("py-spy", "Unsupported version of Python: 3.99.0", "E_PROFILER_ABSENT"),
    ],
)
def test_a_known_message_has_its_code(name: str, words: str, code: str) -> None:
    printed = f"Error:\n{words}\n\nStack backtrace:\n   0: std::main\n"
    error = failure_error(name, printed.encode(), 1)
    assert (error.code, error.reason) == (code, f"Error: {words}")
    assert error.remedy


@pytest.mark.parametrize("name", MAKE)
def test_a_tool_that_is_absent_or_for_another_machine(name: str, tools: fakes.Tools) -> None:
    profiler = MAKE[name](Setup())
    absent = probe_failing(profiler, "ABSENT", f"no program {name}")
    assert {"perf": "apt install linux-perf", "py-spy": "pip install"}[name] in absent.remedy
    program = tools.add(name, {})
    program.write_bytes(b"\x7fELF of another kind")
    probe_failing(profiler, "E_CANNOT_START", "Cannot start")


def test_the_stand_ins_that_do_not_fail_are_usable(tools: fakes.Tools) -> None:
    tools.add("perf", fakes.PERF)
    tools.add("py-spy", fakes.PYSPY)
    native = try_profiler(perf.make_profiler(OLD_PYTHON))
    assert (native.usable, native.sees_native, native.sees_python) == (True, True, False)
    assert (native.version, native.event) == ("6.1.187", "cpu-clock")
    python = try_profiler(pyspy.make_profiler(Setup()))
    assert (python.usable, python.version, python.event) == (True, "0.4.3", "wall-clock")


def test_py_spy_samples_without_pausing_if_pausing_is_forbidden(tools: fakes.Tools) -> None:
    tools.add(
        "py-spy", fakes.PYSPY, **fakes.failing(SPY_SECCOMP, 1), nonblocking=fakes.PYSPY["record"]
    )
    profiler = pyspy.make_profiler(Setup())
    profile = tools.sample(profiler)
    (note,) = profile.degraded
    assert note.startswith("sampled without pausing: Error: Failed to suspend")
    assert profile.call_graph == "python+nonblocking"  # not compared with paused samples
    assert try_profiler(profiler).usable
    native = pyspy.make_profiler(Setup(native=True))  # native stacks cannot be read without pausing
    with pytest.raises(FlamegateError, match="E_PROFILER_DENIED"):
        tools.sample(native)


def test_perf_reports_what_it_really_sampled(tools: fakes.Tools) -> None:
    evlist = {"out": (DATA / "evlist-user.txt").read_text()}
    stats = {"out": "  THROTTLE events:  2  ( 0.1%)\n  UNTHROTTLE events:  7\n"}
    tools.add("perf", fakes.PERF, evlist=evlist, report=stats)
    profile = tools.sample(perf.make_profiler(Setup(python=(3, 11, 7), rate_hz=100)))
    assert (profile.event, profile.rate_hz, profile.call_graph) == ("cpu-clock:u", 999, "fp")
    notes = ("no kernel frames: cpu-clock:u", "throttled 2 times", perf.OLD_PYTHON)
    assert profile.degraded == notes
    assert profile.pids == (os.getpid(),)
    assert profile.started_ticks == (clocks.read_start_ticks(os.getpid()),)


def test_perf_keeps_the_window_when_python_names_its_functions(
    tools: fakes.Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.add("perf", fakes.PERF)
    monkeypatch.setattr(perf_data, "DIRECTORY", tmp_path)
    dump = perf_data.jitdump_path(os.getpid())
    dump.write_bytes(b"no jitdump, and long enough for the header of one")
    profiler = perf.make_profiler(Setup(python=(3, 13, 0)))
    raw = profiler.attach(os.getpid(), tmp_path).stop()
    first_ns = 3_955_049_540_000
    whole, one = (profiler.parse(raw, window_ns=window) for window in (None, (0, first_ns)))
    assert (whole.samples, whole.covers) == (fakes.SCRIPT.count("cpu-clock:"), "sequence")
    assert (one.samples, one.covers) == (1, "decode")
    profiler.clean_up(os.getpid())
    assert not dump.exists()


@pytest.mark.parametrize("name", MAKE)
def test_an_abandoned_recording_leaves_nothing_running(
    name: str, tools: fakes.Tools, tmp_path: Path
) -> None:
    tools.add(name, PLANS[name])
    before = children()
    recording = MAKE[name](OLD_PYTHON).attach(os.getpid(), tmp_path)
    assert children() != before
    recording.close()
    assert children() == before
    recording.close()


@pytest.mark.parametrize(
    ("name", "content", "stderr", "code", "words"),
    [
        ("perf", None, fakes.PERF_DENIED, "E_PROFILER_DENIED", "Access to performance monitoring"),
        ("py-spy", None, SPY_NO_PYTHON, "E_PROFILER_BLIND", "Failed to find python version"),
        ("perf", None, "", "E_PROFILER_OUTPUT", "wrote no file"),
        ("perf", None, "It is Monday.", "E_PROFILER_OUTPUT", 'says: "It is Monday."'),
        ("py-spy", None, "the engine's own words", "E_PROFILER_OUTPUT", "the engine's own words"),
        ("perf", "PERFILE2", "", "E_NO_SAMPLES", "perf took no sample"),
        ("py-spy", EMPTY, "", "E_NO_SAMPLES", "py-spy took no sample"),
    ],
)
def test_a_wrapped_command_that_left_no_sample_is_explained(
    name: str, content: str | None, stderr: str, code: str, words: str, tools: fakes.Tools
) -> None:
    tools.add("perf", fakes.PERF, script={"out": ""})
    tools.add("py-spy", fakes.PYSPY)
    profiler = MAKE[name](Setup())
    wrapped = profiler.wrap(["engine", "--prompt", "; rm"], tools.directory)
    assert wrapped.argv[-4:] == ("--", "engine", "--prompt", "; rm")
    if content is not None:
        wrapped.recording.raw.write_text(content)
    with pytest.raises(FlamegateError, match=f"{code}.*{words}"):
        parse_wrapped(profiler, wrapped.recording, stderr.encode())


def test_output_of_tools_is_shown_on_one_line_escaped_and_cut() -> None:
    error = failure_error("perf", b"a\x1b[31m\n  b\xff" + b"x" * 999, 1)
    assert error.reason.startswith("a\\x1b[31m b\\udcffxxx")
    assert error.reason.endswith("xxx …")
    assert len(error.reason) < 400

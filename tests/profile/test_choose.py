"""The profiler that a run takes, the options that it gets, and the programs behind it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config import options
from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.profile.profilers import (
    AUTO,
    NONE,
    PROFILERS,
    choose_profiler,
    explain_fallbacks,
)
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup, unused_path
from pytest_flamegate.profile.profilers.perf import make_perf
from pytest_flamegate.profile.profilers.pyspy import make_pyspy
from pytest_flamegate.profile.profilers.tools import describe_permissions, failure_error
from tests.profile.fakes import PERF as PERF_PLAN
from tests.profile.fakes import PYSPY, SPEEDSCOPE, Tools

SPY = Probe("py-spy", "0.4.3", usable=True, sees_python=True)
PERF = Probe("perf", "6.1", usable=True, sees_native=True)
PERF_SEES_PYTHON = Probe("perf", "6.1", usable=True, sees_python=True, sees_native=True)
NO_SPY = Probe(
    "py-spy",
    "",
    code="E_PROFILER_DENIED",
    reason="Permission Denied: Try again.",
    remedy="Type: sudo sysctl kernel.yama.ptrace_scope=0",
)
NO_PERF = Probe("perf", "", code="E_PROFILER_ABSENT", reason="no perf", remedy="Install it.")


def choose(requested: str, setup: Setup, *probes: Probe) -> str | None:
    chosen = choose_profiler(requested, setup, {probe.profiler: probe for probe in probes})
    return chosen.name if chosen is not None else None


@pytest.mark.parametrize(
    ("requested", "python_engine", "probes", "chosen"),
    [
        ("auto", True, (SPY, PERF), "py-spy"),
        ("auto", True, (SPY, PERF_SEES_PYTHON), "py-spy"),
        ("auto", True, (NO_SPY, PERF_SEES_PYTHON), "perf"),
        ("auto", False, (SPY, PERF), "perf"),
        ("perf", True, (SPY, PERF), "perf"),
        ("py-spy", False, (SPY, PERF), "py-spy"),
        ("none", True, (), None),
    ],
)
def test_the_profiler_that_sees_the_engine_is_chosen(
    requested: str, python_engine: bool, probes: tuple[Probe, ...], chosen: str | None
) -> None:
    assert choose(requested, Setup(python_engine=python_engine), *probes) == chosen


def test_the_message_if_there_is_no_profiler() -> None:
    with pytest.raises(ToolError) as caught:
        choose("auto", Setup(), NO_SPY, NO_PERF)
    assert str(caught.value) == (
        "E_NO_PROFILER: No profiler can see the Python frames of this engine "
        "(py-spy: E_PROFILER_DENIED: Permission Denied: Try again; "
        "perf: E_PROFILER_ABSENT: no perf). "
        "py-spy: Type: sudo sysctl kernel.yama.ptrace_scope=0. "
        "perf: Install it. "
        "Or measure without profiles: --flamegate-profiler=none."
    )


def test_a_fallback_is_explained_by_the_profilers_that_failed_first() -> None:
    probes = {"py-spy": NO_SPY, "perf": PERF_SEES_PYTHON}
    chosen = choose_profiler("auto", Setup(), probes)
    assert chosen is not None
    assert explain_fallbacks(chosen, Setup(), probes) == [
        "py-spy cannot be used, so perf samples: E_PROFILER_DENIED: Permission Denied: "
        "Try again. Type: sudo sysctl kernel.yama.ptrace_scope=0"
    ]
    probes["py-spy"] = SPY  # it works, and does not see native frames: that is no failure
    native = Setup(python_engine=False)
    chosen = choose_profiler("auto", native, probes)
    assert chosen is not None
    assert explain_fallbacks(chosen, native, probes) == []


def test_a_requested_profiler_fails_with_its_own_message() -> None:
    with pytest.raises(ToolError, match="E_PROFILER_DENIED") as caught:
        choose("py-spy", Setup(), NO_SPY)
    assert caught.value.problem == "py-spy cannot be used: Permission Denied: Try again."
    assert caught.value.remedy == NO_SPY.remedy


def test_one_registry_names_the_profilers() -> None:
    assert {make(Setup()).name for make in PROFILERS.values()} == {*PROFILERS}
    assert set(options.PROFILERS) == {AUTO, NONE, "callgrind", *PROFILERS}


@pytest.mark.parametrize(("version", "flags"), [((3, 12, 9), ()), ((3, 13, 0), ("-X", "perf_jit"))])
def test_python_names_its_functions_for_perf_from_3_13_on(
    version: tuple[int, int, int], flags: tuple[str, ...]
) -> None:
    assert make_perf(Setup(python=version)).python_flags == flags
    assert make_perf(Setup(python_engine=False, python=version)).python_flags == ()


def argv(profiler: Profiler, directory: Path) -> tuple[str, ...]:
    return profiler.wrap(["engine"], directory).argv


def after(option: str, words: tuple[str, ...]) -> str:
    return words[words.index(option) + 1]


def test_perf_walks_stacks_as_asked(tools: Tools, tmp_path: Path) -> None:
    tools.add("perf", PERF_PLAN)
    for graph in ("fp", "dwarf,16384"):
        words = argv(make_perf(Setup(call_graph=graph, rate_hz=499)), tmp_path)
        assert (after("--call-graph", words), after("-F", words)) == (graph, "499")
        assert "--strict-freq" in words
    assert "--call-graph" not in argv(make_perf(Setup(call_graph="none")), tmp_path)
    # Native frames and sampling without a pause it has in any case.
    plain = argv(make_perf(Setup()), tmp_path)
    assert argv(make_perf(Setup(native=True, nonblocking=True)), tmp_path) == plain


def test_py_spy_gets_what_is_asked(tools: Tools, tmp_path: Path) -> None:
    tools.add("py-spy", PYSPY)
    plain = argv(make_pyspy(Setup()), tmp_path)
    assert not {"--native", "--nonblocking"} & {*plain}
    assert after("--rate", plain) == "100"
    assert "--native" in argv(make_pyspy(Setup(native=True)), tmp_path)
    words = argv(make_pyspy(Setup(nonblocking=True, rate_hz=1000)), tmp_path)
    assert "--nonblocking" in words
    assert after("--rate", words) == "1000"


@pytest.mark.parametrize(
    ("setup", "rate_hz"),
    [
        (Setup(comparing=True), 200),
        (Setup(comparing=True, native=True), 100),
        (Setup(comparing=True, rate_hz=50), 50),
    ],
)
def test_py_spy_samples_comparisons_faster(setup: Setup, rate_hz: int) -> None:
    """Not native stacks, which take too long to read, and not at another rate than asked for."""
    assert make_pyspy(setup).rate_hz == rate_hz
    assert make_perf(Setup(comparing=True)).rate_hz == make_perf(Setup()).rate_hz


@pytest.mark.parametrize(
    ("setup", "graph", "degraded"),
    [
        (Setup(native=True, rate_hz=250), "python+native", ()),
        (
            Setup(native=True, rate_hz=500),
            "python+native",
            ("native stacks at 500 Hz slow the program down",),
        ),
        (Setup(nonblocking=True), "python+nonblocking", ("sampled without pausing: asked for",)),
    ],
)
def test_a_profile_states_how_it_was_taken(
    setup: Setup, graph: str, degraded: tuple[str, ...], tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY)
    profiler = make_pyspy(setup)
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert (profile.call_graph, profile.degraded) == (graph, degraded)
    assert profile.started_ticks == (clocks.read_start_ticks(os.getpid()),)


def test_native_frames_of_py_spy_are_normalised(tools: Tools, tmp_path: Path) -> None:
    libc = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    named = [("0x7f5d851ed24a", libc, 0), ("0x7f5d851ed99a", libc, 0), ("0x7f5d83276518", "?", 0)]
    named += [("matvec", "/srv/engine.py", 7), ("<module>", "<string>", 0)]
    document: dict[str, Any] = json.loads(SPEEDSCOPE)
    document["shared"]["frames"] = [
        {"name": name, "file": file, "line": line} for name, file, line in named
    ]
    document["profiles"][0].update(samples=[[0, 1, 3, 4, 2]], weights=[0.01])
    tools.add("py-spy", PYSPY, record={**PYSPY["record"], "file": json.dumps(document)})
    profiler = make_pyspy(Setup(native=True))
    (stack,) = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop()).stacks
    assert [(frame.name, frame.module, frame.kind) for frame in stack] == [
        ("[libc.so.6]", "libc.so.6", "native"),
        ("matvec", "engine.py", "python"),
        ("<module>", "<string>", "python"),
        ("[unknown]", "unknown", "native"),
    ]


@pytest.mark.parametrize(
    ("name", "setup"),
    [
        *(("py-spy", Setup(rate_hz=rate)) for rate in (0, -1, 1001)),
        ("py-spy", Setup(call_graph="fp")),
        *(("perf", Setup(call_graph=graph)) for graph in ("lbr", "dwarf,", "dwarf,1e9", "fp;rm")),
    ],
)
def test_an_option_that_a_profiler_lacks_is_a_usage_error(name: str, setup: Setup) -> None:
    with pytest.raises(UsageError, match="E_PROFILER_OPTION"):
        choose_profiler(name, setup, {})


def test_auto_takes_the_profiler_that_has_the_option_or_says_why_none_has() -> None:
    asked = Setup(call_graph="fp")
    assert choose("auto", asked, SPY, PERF_SEES_PYTHON) == "perf"
    with pytest.raises(FlamegateError, match="E_NO_PROFILER") as caught:
        choose("auto", asked, SPY, PERF)
    assert "py-spy reads Python's own stacks and has no call graph 'fp'" in caught.value.problem
    assert "perf: sees no Python frames here" in caught.value.problem


def write_proc(root: Path, status: str, **sysctls: str) -> Path:
    (root / "self").mkdir()
    (root / "self/status").write_text(status)
    for name, text in sysctls.items():
        path = root / "sys/kernel" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_the_limits_of_a_container(tmp_path: Path) -> None:
    status = "CapInh:\t0\nCapEff:\t0000004000080000\nSeccomp:\t2\n"
    proc = write_proc(tmp_path, status, perf_event_paranoid="3", yama__ptrace_scope="1")
    assert describe_permissions(proc) == (
        "kernel.perf_event_paranoid is 3, kernel.yama.ptrace_scope is 1, CAP_SYS_PTRACE is held, "
        "CAP_SYS_ADMIN is not held, CAP_PERFMON is held, a seccomp filter is in force"
    )


def test_a_limit_that_the_kernel_does_not_report_is_left_out(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, "Seccomp:\tx\nCapEff:\tzz\n")
    assert describe_permissions(proc) == "the kernel does not report its limits"


def test_a_denied_profiler_says_what_is_allowed_here() -> None:
    denied, full = b"Access to performance monitoring is limited.", b"No space left on device"
    allowed = f" Here {describe_permissions()}."
    assert failure_error("perf", denied, 255).remedy.endswith(allowed)
    assert "Here " not in failure_error("perf", full, 255).remedy


def test_no_recording_takes_the_place_of_another(tmp_path: Path) -> None:
    first = unused_path(tmp_path / "new", "perf", ".data")
    first.touch()
    second = unused_path(tmp_path / "new", "perf", ".data")
    assert first != second
    assert not second.exists()

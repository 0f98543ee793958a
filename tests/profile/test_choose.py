"""The profiler that a run takes, the options that it gets, and the programs behind it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.config import options
from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.profile import profilers
from pytest_flamegate.profile.profilers import perf
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup, unused_path
from pytest_flamegate.profile.profilers.perf import make_profiler as make_perf
from pytest_flamegate.profile.profilers.pyspy import make_profiler as make_pyspy
from pytest_flamegate.profile.profilers.tools import describe_permissions, failure_error
from tests.profile.fakes import PERF as PERF_PLAN
from tests.profile.fakes import PYSPY, Tools

SPY = Probe("py-spy", "0.4.3", usable=True, sees_python=True)
PERF = Probe("perf", "6.1", usable=True, sees_native=True)
PERF_SEES_PYTHON = Probe("perf", "6.1", usable=True, sees_python=True, sees_native=True)
NO_SPY = Probe("py-spy", "", code="E_PROFILER_DENIED", reason="Try again.", remedy="Type: sudo.")
NO_PERF = Probe("perf", "", code="E_PROFILER_ABSENT", reason="no perf", remedy="Install it.")


def choose(requested: str, setup: Setup, *probes: Probe) -> str | None:
    chosen = profilers.choose_profiler(
        requested, setup, {probe.profiler: probe for probe in probes}
    )
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
        "(py-spy: E_PROFILER_DENIED: Try again; perf: E_PROFILER_ABSENT: no perf). "
        "py-spy: Type: sudo. perf: Install it. "
        "Or measure without profiles: --flamegate-profiler=none."
    )


def test_a_profiler_that_works_and_does_not_see_the_engine_is_no_failure() -> None:
    native, probes = Setup(python_engine=False), {"py-spy": SPY, "perf": PERF}
    chosen = profilers.choose_profiler("auto", native, probes)
    assert chosen is not None
    assert profilers.explain_fallbacks(chosen, native, probes) == []


def test_one_registry_names_the_profilers() -> None:
    assert {make(Setup()).name for make in profilers.PROFILERS.values()} == {*profilers.PROFILERS}
    assert set(options.PROFILERS) == {
        profilers.AUTO,
        profilers.NONE,
        "callgrind",
        *profilers.PROFILERS,
    }


def test_python_names_its_functions_for_perf_from_3_13_on() -> None:
    new = Setup(python=(3, 13, 0))
    assert make_perf(new).python_flags == ("-X", "perf_jit")
    assert make_perf(Setup(python=(3, 12, 9))).python_flags == ()
    assert make_perf(replace(new, python_engine=False)).python_flags == ()


def argv(profiler: Profiler, directory: Path) -> tuple[str, ...]:
    return profiler.wrap(["engine"], directory).argv


def after(option: str, words: tuple[str, ...]) -> str:
    return words[words.index(option) + 1]


def test_a_profiler_gets_what_is_asked(tools: Tools, tmp_path: Path) -> None:
    tools.add("perf", PERF_PLAN)
    words = argv(make_perf(Setup(call_graph="dwarf,16384", rate_hz=499)), tmp_path)
    assert (after("--call-graph", words), after("-F", words)) == ("dwarf,16384", "499")
    assert "--strict-freq" in words
    assert "--call-graph" not in argv(make_perf(Setup(call_graph="none")), tmp_path)
    # Native frames and sampling without a pause it has in any case.
    plain = argv(make_perf(Setup()), tmp_path)
    assert argv(make_perf(Setup(native=True, nonblocking=True)), tmp_path) == plain
    tools.add("py-spy", PYSPY)
    plain = argv(make_pyspy(Setup()), tmp_path)
    assert not {"--native", "--nonblocking"} & {*plain}
    assert after("--rate", plain) == "100"
    words = argv(make_pyspy(Setup(native=True, nonblocking=True, rate_hz=1000)), tmp_path)
    assert {"--native", "--nonblocking"} < {*words}
    assert after("--rate", words) == "1000"


PROGRAM = Setup(python_engine=False)


@pytest.mark.parametrize(("allowed_hz", "rates"), [(100_000, (3999, 499)), (7_000, (499, None))])
def test_a_program_is_sampled_as_fast_as_the_kernel_allows(
    monkeypatch: pytest.MonkeyPatch, allowed_hz: int, rates: tuple[int, int | None]
) -> None:
    monkeypatch.setattr(perf, "read_system_text", lambda path: str(allowed_hz))
    made = make_perf(replace(PROGRAM, comparing=True))
    assert (made.rate_hz, made.deeper and made.deeper.rate_hz) == rates


@pytest.mark.parametrize(
    ("make", "setup", "rate_hz", "compared_hz"),
    [
        (make_pyspy, Setup(), 100, 200),
        (make_pyspy, Setup(native=True), 100, 100),  # native stacks take too long to read
        (make_pyspy, Setup(rate_hz=50), 50, 50),
        (make_perf, Setup(), 99, 99),
        (make_perf, PROGRAM, 99, 3999),
        (make_perf, replace(PROGRAM, call_graph="fp"), 99, 499),
        (make_perf, replace(PROGRAM, rate_hz=99), 99, 99),
    ],
)
def test_the_rate_is_faster_in_comparisons_unless_one_is_asked_for(
    make: Callable[[Setup], Profiler], setup: Setup, rate_hz: int, compared_hz: int
) -> None:
    assert make(setup).rate_hz == rate_hz
    assert make(replace(setup, comparing=True)).rate_hz == compared_hz


@pytest.mark.parametrize(
    ("setup", "graph", "degraded"),
    [
        (Setup(native=True, rate_hz=250), "python+native", ()),
        (Setup(native=True, rate_hz=500), "python+native", ("native stacks at 500 Hz slow",)),
        (Setup(nonblocking=True), "python+nonblocking", ("sampled without pausing: asked for",)),
    ],
)
def test_a_profile_states_how_it_was_taken(
    setup: Setup, graph: str, degraded: tuple[str, ...], tools: Tools
) -> None:
    tools.add("py-spy", PYSPY)
    profile = tools.sample(make_pyspy(setup))
    assert profile.call_graph == graph
    assert [note.partition(" the program")[0] for note in profile.degraded] == [*degraded]
    assert profile.started_ticks == (clocks.read_start_ticks(os.getpid()),)


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
        profilers.choose_profiler(name, setup, {})


def test_auto_takes_the_profiler_that_has_the_option_or_says_why_none_has() -> None:
    asked = Setup(call_graph="fp")
    assert choose("auto", asked, SPY, PERF_SEES_PYTHON) == "perf"
    reasons = "py-spy reads .* and has no call graph 'fp'; perf: sees no Python frames here"
    with pytest.raises(ToolError, match=f"E_NO_PROFILER.*{reasons}"):
        choose("auto", asked, SPY, PERF)


def test_the_limits_of_a_container(tmp_path: Path) -> None:
    assert describe_permissions(tmp_path) == "the kernel does not report its limits"
    written = {
        "self/status": "CapInh:\t0\nCapEff:\t0000004000080000\nSeccomp:\t2\n",
        "sys/kernel/perf_event_paranoid": "3\n",
        "sys/kernel/yama/ptrace_scope": "1\n",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert describe_permissions(tmp_path) == (
        "kernel.perf_event_paranoid is 3, kernel.yama.ptrace_scope is 1, CAP_SYS_PTRACE is held, "
        "CAP_SYS_ADMIN is not held, CAP_PERFMON is held, a seccomp filter is in force"
    )


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

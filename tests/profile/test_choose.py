from __future__ import annotations

import pytest

from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.profile.profilers.choose import PROFILERS, choose_profiler, make_profilers
from pytest_flamegate.profile.profilers.perf import perf_python_flags

pytestmark = pytest.mark.measures

SPY = Probe("py-spy", "0.4.3", usable=True, sees_python=True, sees_native=False)
PERF = Probe("perf", "6.1", usable=True, sees_python=False, sees_native=True)
BOTH = Probe("perf", "6.1", usable=True, sees_python=True, sees_native=True)
NO_SPY = Probe(
    "py-spy",
    "",
    usable=False,
    sees_python=False,
    sees_native=False,
    code="E_PROFILER_DENIED",
    reason="Permission Denied: Try again.",
    remedy="Type: sudo sysctl kernel.yama.ptrace_scope=0",
)
NO_PERF = Probe(
    "perf",
    "",
    usable=False,
    sees_python=False,
    sees_native=False,
    code="E_PROFILER_ABSENT",
    reason="no program perf on PATH",
    remedy="Install it: apt install linux-perf",
)


@pytest.mark.parametrize(
    ("requested", "python_engine", "probes", "chosen"),
    [
        ("auto", True, (SPY, PERF), "py-spy"),
        ("auto", True, (SPY, BOTH), "py-spy"),
        ("auto", True, (NO_SPY, BOTH), "perf"),
        ("auto", False, (SPY, PERF), "perf"),
        ("auto", False, (NO_SPY, PERF), "perf"),
        ("perf", True, (SPY, PERF), "perf"),
        ("py-spy", False, (SPY, PERF), "py-spy"),
        ("none", True, (NO_SPY, NO_PERF), "none"),
    ],
)
def test_the_profiler_that_sees_the_engine_is_chosen(
    requested: str, python_engine: bool, probes: tuple[Probe, ...], chosen: str
) -> None:
    known = {probe.profiler: probe for probe in probes}
    assert choose_profiler(requested, Setup(python_engine=python_engine), known).name == chosen


@pytest.mark.parametrize(
    ("python_engine", "probes", "words"),
    [
        (True, (NO_SPY, NO_PERF), ("Permission Denied", "no program perf", "apt install")),
        (True, (NO_SPY, PERF), ("Permission Denied", "perf: sees no Python frames here")),
        (False, (SPY, NO_PERF), ("py-spy: sees no native frames here", "no program perf")),
    ],
)
def test_where_none_can_every_reason_is_named(
    python_engine: bool, probes: tuple[Probe, ...], words: tuple[str, ...]
) -> None:
    known = {probe.profiler: probe for probe in probes}
    with pytest.raises(ToolError, match="E_NO_PROFILER") as refused:
        choose_profiler("auto", Setup(python_engine=python_engine), known)
    for expected in (*words, "--flamegate-profiler=none"):
        assert expected in str(refused.value)


def test_the_one_asked_for_fails_in_its_own_words() -> None:
    with pytest.raises(ToolError, match="E_PROFILER_DENIED") as refused:
        choose_profiler("py-spy", Setup(), {"py-spy": NO_SPY})
    assert refused.value.problem == "py-spy cannot be used: Permission Denied: Try again."
    assert refused.value.remedy == NO_SPY.remedy


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="E_UNKNOWN_PROFILER") as refused:
        choose_profiler("gprof", Setup())
    assert "auto, py-spy, perf, none" in refused.value.remedy


def test_only_what_is_needed_is_tried() -> None:
    probes = {"py-spy": SPY}
    choose_profiler("auto", Setup(), probes)
    assert set(probes) == {"py-spy"}


def test_none_says_that_profiling_was_turned_off() -> None:
    profiler = make_profilers(Setup())["none"]
    probe = profiler.probe()
    assert (probe.usable, probe.reason) == (False, "profiling was turned off")
    with pytest.raises(ToolError, match="E_NO_PROFILER"):
        profiler.wrap(["x"], None)  # type: ignore[arg-type]


def test_names_are_those_of_the_registry() -> None:
    assert {name: made.name for name, made in make_profilers(Setup()).items()} == {
        name: name for name in PROFILERS
    }


@pytest.mark.parametrize(
    ("version", "flags"),
    [((3, 12, 9), ()), ((3, 13, 0), ("-X", "perf_jit")), ((3, 14, 1), ("-X", "perf_jit"))],
)
def test_python_tells_perf_its_names_from_3_13_on(
    version: tuple[int, int, int], flags: tuple[str, ...]
) -> None:
    assert perf_python_flags(version) == flags
    assert make_profilers(Setup(python=version))["perf"].python_flags == flags
    assert make_profilers(Setup(python_engine=False, python=version))["perf"].python_flags == ()

"""The profiler that a run takes, and the message if there is none."""

from __future__ import annotations

import pytest

from pytest_flamegate.config import options
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.profile.profilers import (
    AUTO,
    NONE,
    PROFILERS,
    choose_profiler,
    explain_fallbacks,
    make_profilers,
)
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.profile.profilers.perf import perf_python_flags

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
NO_PERF = Probe(
    "perf",
    "",
    code="E_PROFILER_ABSENT",
    reason="no program perf on PATH",
    remedy="Install it: apt install linux-perf.",
)


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
        ("auto", False, (NO_SPY, PERF), "perf"),
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
        "perf: E_PROFILER_ABSENT: no program perf on PATH). "
        "py-spy: Type: sudo sysctl kernel.yama.ptrace_scope=0. "
        "perf: Install it: apt install linux-perf. "
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


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="E_UNKNOWN_PROFILER") as caught:
        choose("gprof", Setup())
    assert "auto, py-spy, perf, none" in caught.value.remedy


def test_one_registry_names_the_profilers() -> None:
    made = make_profilers(Setup())
    assert {name: profiler.name for name, profiler in made.items()} == {n: n for n in PROFILERS}
    assert set(options.PROFILERS) == {AUTO, NONE, "callgrind", *PROFILERS}


@pytest.mark.parametrize(
    ("version", "flags"),
    [((3, 12, 9), ()), ((3, 13, 0), ("-X", "perf_jit")), ((3, 14, 1), ("-X", "perf_jit"))],
)
def test_python_names_its_functions_for_perf_from_3_13_on(
    version: tuple[int, int, int], flags: tuple[str, ...]
) -> None:
    assert perf_python_flags(version) == flags
    assert make_profilers(Setup(python=version))["perf"].python_flags == flags
    native = make_profilers(Setup(python_engine=False, python=version))
    assert native["perf"].python_flags == ()

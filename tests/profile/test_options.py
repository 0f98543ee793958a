"""The options of a profile reach the profiler, and those that it does not have are errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.profile.profilers import choose_profiler
from pytest_flamegate.profile.profilers.base import Profiler, Setup
from pytest_flamegate.profile.profilers.perf import make_perf
from pytest_flamegate.profile.profilers.pyspy import make_pyspy
from tests.profile.fakes import PERF, PYSPY, SPEEDSCOPE, Tools
from tests.profile.test_choose import PERF as PERF_PROBE
from tests.profile.test_choose import PERF_SEES_PYTHON, SPY


def argv(profiler: Profiler, directory: Path) -> tuple[str, ...]:
    return profiler.wrap(["engine"], directory).argv


def after(option: str, words: tuple[str, ...]) -> str:
    return words[words.index(option) + 1]


def test_perf_walks_stacks_as_asked(tools: Tools, tmp_path: Path) -> None:
    tools.add("perf", PERF)
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
        (Setup(), "python", ()),
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
    frames = [
        {"name": "0x7f5d851ed24a", "file": "/usr/lib/x86_64-linux-gnu/libc.so.6", "line": 0},
        {"name": "0x7f5d851ed99a", "file": "/usr/lib/x86_64-linux-gnu/libc.so.6", "line": 0},
        {"name": "matvec", "file": "/srv/engine.py", "line": 7},
        {"name": "<module>", "file": "<string>", "line": 0},
        {"name": "DOUBLE_matmul.constprop.0", "file": "/v/libblas-32a4b2a6.so", "line": 0},
        {"name": "0x7f5d83276518", "file": "?", "line": 0},
    ]
    document: dict[str, Any] = json.loads(SPEEDSCOPE)
    document["shared"]["frames"] = frames
    document["profiles"][0].update(samples=[[0, 1, 2, 3, 4, 5]], weights=[0.01])
    tools.add("py-spy", PYSPY, record={**PYSPY["record"], "file": json.dumps(document)})
    profiler = make_pyspy(Setup(native=True))
    (stack,) = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop()).stacks
    assert [(frame.name, frame.module, frame.kind) for frame in stack] == [
        ("[libc.so.6]", "libc.so.6", "native"),
        ("matvec", "engine.py", "python"),
        ("<module>", "<string>", "python"),
        ("DOUBLE_matmul", "libblas.so", "native"),
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
    chosen = choose_profiler("auto", asked, {"py-spy": SPY, "perf": PERF_SEES_PYTHON})
    assert chosen is not None
    assert chosen.name == "perf"
    with pytest.raises(FlamegateError, match="E_NO_PROFILER") as caught:
        choose_profiler("auto", asked, {"py-spy": SPY, "perf": PERF_PROBE})
    assert "py-spy reads Python's own stacks and has no call graph 'fp'" in caught.value.problem
    assert "perf: sees no Python frames here" in caught.value.problem

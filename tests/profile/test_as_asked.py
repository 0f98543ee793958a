"""What a workload asks of its profiler is done, or refused; never dropped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.profile.profilers import perf, pyspy
from pytest_flamegate.profile.profilers.base import Profiler, Setup
from pytest_flamegate.profile.profilers.choose import choose_profiler
from tests.profile.fakes import PERF, PYSPY, SPEEDSCOPE, Tools
from tests.profile.test_choose import BOTH, SPY
from tests.profile.test_choose import PERF as NO_PYTHON

pytestmark = pytest.mark.measures

DENIED = {"err": "Permission Denied: Try running again with elevated permissions", "code": 1}


def argv(profiler: Profiler, directory: Path) -> tuple[str, ...]:
    return profiler.wrap(["engine"], directory).argv


def after(option: str, words: tuple[str, ...]) -> str:
    return words[words.index(option) + 1]


def test_perf_walks_stacks_as_asked(tools: Tools, tmp_path: Path) -> None:
    tools.add("perf", PERF)
    for graph in ("fp", "dwarf,16384"):
        words = argv(perf.make_perf(Setup(call_graph=graph, rate_hz=499)), tmp_path)
        assert (after("--call-graph", words), after("-F", words)) == (graph, "499")
        assert "--strict-freq" in words
    assert "--call-graph" not in argv(perf.make_perf(Setup(call_graph="none")), tmp_path)


def test_perf_shows_native_frames_and_pauses_nothing_in_any_case(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("perf", PERF)
    plain = argv(perf.make_perf(Setup()), tmp_path)
    assert argv(perf.make_perf(Setup(native=True, nonblocking=True)), tmp_path) == plain


def test_py_spy_is_told_what_is_asked(tools: Tools, tmp_path: Path) -> None:
    tools.add("py-spy", PYSPY)
    plain = argv(pyspy.make_pyspy(Setup()), tmp_path)
    assert not {"--native", "--nonblocking"} & {*plain}
    assert after("--rate", plain) == "100"
    assert "--native" in argv(pyspy.make_pyspy(Setup(native=True)), tmp_path)
    words = argv(pyspy.make_pyspy(Setup(nonblocking=True, rate_hz=1000)), tmp_path)
    assert "--nonblocking" in words
    assert after("--rate", words) == "1000"


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
def test_profiles_taken_in_different_ways_say_so(
    setup: Setup, graph: str, degraded: tuple[str, ...], tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY)
    profiler = pyspy.make_pyspy(setup)
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert (profile.call_graph, profile.degraded) == (graph, degraded)
    assert profile.started_ticks == (clocks.read_start_ticks(os.getpid()),)


def test_what_could_not_be_paused_is_not_compared_with_what_was(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("py-spy", PYSPY, record=DENIED, nonblocking=PYSPY["record"])
    profiler = pyspy.make_pyspy(Setup())
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert profile.call_graph == "python+nonblocking"


def test_native_stacks_are_not_read_without_pausing(tools: Tools, tmp_path: Path) -> None:
    tools.add("py-spy", PYSPY, record=DENIED, nonblocking=PYSPY["record"])
    with pytest.raises(ToolError, match="E_PROFILER_DENIED"):
        pyspy.make_pyspy(Setup(native=True)).attach(os.getpid(), tmp_path)


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
    profiler = pyspy.make_pyspy(Setup(native=True))
    (stack,) = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop()).stacks
    assert [(frame.name, frame.module, frame.kind) for frame in stack] == [
        ("[libc.so.6]", "libc.so.6", "native"),
        ("matvec", "engine.py", "python"),
        ("<module>", "<string>", "python"),
        ("DOUBLE_matmul", "libblas.so", "native"),
        ("[unknown]", "unknown", "native"),
    ]


def test_perf_names_the_process_by_its_start_too(tools: Tools, tmp_path: Path) -> None:
    tools.add("perf", PERF)
    profiler = perf.make_perf(Setup(python=(3, 11, 7)))
    profile = profiler.parse(profiler.attach(os.getpid(), tmp_path).stop())
    assert profile.started_ticks == (clocks.read_start_ticks(os.getpid()),)


@pytest.mark.parametrize(
    ("setup", "code"),
    [
        (Setup(call_graph="fp"), "E_CALL_GRAPH"),
        (Setup(rate_hz=0), "E_PROFILER_RATE"),
        (Setup(rate_hz=-1), "E_PROFILER_RATE"),
        (Setup(rate_hz=1001), "E_PROFILER_RATE"),
    ],
)
def test_py_spy_refuses_what_it_cannot_do(setup: Setup, code: str) -> None:
    with pytest.raises(UsageError, match=code):
        choose_profiler("py-spy", setup, {})


def test_auto_takes_the_profiler_that_can_do_it_or_says_why_none_can() -> None:
    asked = Setup(call_graph="fp")
    assert choose_profiler("auto", asked, {"py-spy": SPY, "perf": BOTH}).name == "perf"
    with pytest.raises(FlamegateError, match="E_NO_PROFILER") as refused:
        choose_profiler("auto", asked, {"py-spy": SPY, "perf": NO_PYTHON})
    assert "py-spy reads Python's own stacks and has no call graph 'fp'" in refused.value.problem
    assert "perf: sees no Python frames here" in refused.value.problem

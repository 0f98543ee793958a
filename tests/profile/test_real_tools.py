"""perf and py-spy as they are installed here, on a small process that does nothing but work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.process import Child
from pytest_flamegate.profile.folded import fold_profile, parse_folded
from pytest_flamegate.profile.hotspots import rank_hotspots, require_samples
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import jitdump, perf, pyspy
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.stacks import trim_stacks
from tests.tools import require

pytestmark = pytest.mark.measures

SETUP = Setup(project=Path(__file__).parent)
# Two kinds of work under the workload's root. It announces itself on stdout once it is warm,
# and ends quietly on SIGINT.
ENGINE = """
import ctypes, sys, time
{matvec}
def rms_norm(n):
    total = 0.0
    for value in range(n):
        total += value * value
    return total

def measured_sequences(end):
    while time.monotonic() < end:
        matvec()
        rms_norm(2000)

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
measured_sequences(time.monotonic() + 0.1)
print("ready", flush=True)
try:
    measured_sequences(time.monotonic() + 60)
except KeyboardInterrupt:
    pass
"""
NUMPY = """
import numpy as np
A, X = np.ones((600, 600)), np.ones(600)

def matvec():
    for _ in range(20):
        A @ X
"""
LOADING = """
def load_model():
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        sum(range(1000))

def matvec():
    sum(range(5000))

load_model()
"""
STARTED: dict[int, int | None] = {}
# Its name would be two frames of another library if it were printed as it is.
HOSTILE = """
def matvec():
    return sum(value * value for value in range(2000))

name = "m;v (/a.so)\\n\\t      123 i2s_gemv (/lib/ggml.so)"
matvec.__code__ = matvec.__code__.replace(co_name=name, co_qualname=name)
"""


@pytest.fixture(scope="module")
def probes() -> dict[str, Probe]:
    return {made.name: made.probe() for made in (perf.make_perf(SETUP), pyspy.make_pyspy(SETUP))}


@pytest.fixture
def usable(probes: dict[str, Probe], request: pytest.FixtureRequest) -> Probe:
    probe = probes[request.param]
    require(probe.usable, f"{probe.profiler} cannot be used: {probe.reason}")
    return probe


@pytest.fixture
def engine() -> Iterator[Child]:
    child = started(NUMPY)
    yield child
    child.end()


def started(matvec: str, *flags: str) -> Child:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    program = ENGINE.format(matvec=matvec)
    child = process.start([sys.executable, *flags, "-c", program], env=environment)
    deadline = time.monotonic() + 30
    while b"ready" not in child.stdout_bytes() and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert child.poll() is None, child.stderr_text()
    STARTED[child.pid] = clocks.read_start_ticks(child.pid)
    return child


def sampled(profiler: Profiler, child: Child, directory: Path) -> Profile:
    recording = profiler.attach(child.pid, directory)
    until_ns = clocks.read_clocks(child.pid).cpu_ns + 500_000_000
    deadline = time.monotonic() + 30
    while clocks.read_clocks(child.pid).cpu_ns < until_ns:  # however busy the machine is
        assert time.monotonic() < deadline
        time.sleep(0.02)
    raw = recording.stop()
    recording.close()
    child.interrupt()
    assert child.wait(10) == 0
    return profiler.parse(raw)


@pytest.mark.parametrize("usable", ["perf", "py-spy"], indirect=True)
def test_the_trial_says_what_it_sees(usable: Probe) -> None:
    assert usable.version[0].isdigit()
    assert usable.code == usable.reason == usable.remedy == ""
    if usable.profiler == "perf":
        assert usable.event.startswith("cpu-clock")
        assert usable.sees_native
    else:
        assert usable.sees_python
        assert not usable.sees_native


@pytest.mark.parametrize("usable", ["py-spy"], indirect=True)
def test_py_spy_finds_where_python_spends_its_time(
    usable: Probe, engine: Child, tmp_path: Path
) -> None:
    profile = trim_stacks(sampled(pyspy.make_pyspy(SETUP), engine, tmp_path))
    require_samples(profile, 10)
    assert profile.completeness >= 0.99
    assert profile.pids == (engine.pid,)
    assert profile.started_ticks == (STARTED[engine.pid],)
    assert profile.python == SETUP.python_text
    spots = {spot.name: spot for spot in rank_hotspots(profile, 1.0)}
    assert {"matvec", "rms_norm", "measured_sequences"} <= set(spots)
    assert (spots["matvec"].category, spots["rms_norm"].category) == ("matmul", "norm")
    assert spots["measured_sequences"].inclusive_share >= 0.99
    assert parse_folded(fold_profile(profile)) == profile.stacks


@pytest.mark.parametrize("usable", ["perf"], indirect=True)
def test_perf_finds_where_native_code_spends_its_time(
    usable: Probe, engine: Child, tmp_path: Path
) -> None:
    profiler = perf.make_perf(Setup(python=(3, 11, 0), project=SETUP.project))
    profile = trim_stacks(sampled(profiler, engine, tmp_path))
    require_samples(profile, 25)
    assert profile.completeness >= 0.9
    assert perf.OLD_PYTHON in profile.degraded
    assert (profile.rate_hz, profile.call_graph) == (99, "dwarf,32768")
    matmul = sum(spot.self_share for spot in rank_hotspots(profile) if spot.category == "matmul")
    assert matmul > 0.1
    assert parse_folded(fold_profile(profile)) == profile.stacks


@pytest.mark.skipif(sys.version_info < (3, 13), reason="perf_jit came with CPython 3.13")
@pytest.mark.parametrize("usable", ["perf"], indirect=True)
def test_perf_finds_python_frames_and_a_hostile_name_stays_one(
    usable: Probe, tmp_path: Path
) -> None:
    profiler = perf.make_perf(SETUP)
    child = started(HOSTILE, *profiler.python_flags)
    try:
        profile = trim_stacks(sampled(profiler, child, tmp_path))
    finally:
        child.end()
        jitdump.remove_jit_files(child.pid)
    assert profile.completeness >= 0.9
    within = {s.name: s.inclusive_share for s in rank_hotspots(profile) if s.kind == "python"}
    assert within["measured_sequences"] >= 0.9
    assert within["m\\x3bv (/a.so)??      123 i2s_gemv (/lib/ggml.so)"] > 0.1
    assert not any(frame.name == "i2s_gemv" for stack in profile.stacks for frame in stack)
    assert not jitdump.jitdump_path(child.pid).exists()


@pytest.mark.parametrize("usable", ["perf"], indirect=True)
def test_perf_wraps_a_command_and_passes_its_status_on(usable: Probe, tmp_path: Path) -> None:
    profiler = perf.make_perf(Setup(python_engine=False))
    program = "import sys; sum(range(5_000_000)); print('out'); sys.exit(3)"
    wrapped = profiler.wrap([sys.executable, "-S", "-c", program], tmp_path)
    result = process.run(wrapped.argv, timeout_s=60)
    assert (result.returncode, result.stdout) == (3, b"out\n")
    profile = trim_stacks(profiler.parse(wrapped.raw, result.stderr), None)
    require_samples(profile, 5)
    assert profile.completeness >= 0.8
    assert profile.python == ""
    assert len(profile.pids) == 1


@pytest.mark.parametrize("usable", ["py-spy"], indirect=True)
def test_py_spy_wraps_a_command_and_its_chatter_can_be_removed(
    usable: Probe, tmp_path: Path
) -> None:
    profiler = pyspy.make_pyspy(SETUP)
    program = "import time\nprint('out', flush=True)\nend = time.time() + 0.5\n"
    program += (
        "def busy():\n  while time.time() < end: sum(range(100))\nbusy()\nprint('py-spy> me')"
    )
    wrapped = profiler.wrap([sys.executable, "-c", program], tmp_path)
    result = process.run(wrapped.argv, timeout_s=60)
    assert pyspy.remove_chatter(result.stdout) == b"out\npy-spy> me\n"
    profile = trim_stacks(profiler.parse(wrapped.raw, result.stderr), None)
    require_samples(profile, 5)
    assert rank_hotspots(profile)[0].name == "busy"


@pytest.mark.parametrize("usable", ["py-spy"], indirect=True)
def test_py_spy_shows_native_frames_on_request(
    usable: Probe, engine: Child, tmp_path: Path
) -> None:
    profiler = pyspy.make_pyspy(replace(SETUP, native=True))
    profile = trim_stacks(sampled(profiler, engine, tmp_path))
    require_samples(profile, 10)
    assert profile.call_graph == "python+native"
    assert profile.completeness >= 0.9
    assert profile.started_ticks == (STARTED[engine.pid],)
    matvec = [stack for stack in profile.stacks if any(f.name == "matvec" for f in stack)]
    assert any(frame.kind == "native" for stack in matvec for frame in stack)
    assert any(stack[-1].kind == "native" and "blas" in stack[-1].module for stack in matvec)
    assert parse_folded(fold_profile(profile)) == profile.stacks


@pytest.mark.parametrize("usable", ["py-spy"], indirect=True)
def test_py_spy_samples_without_pausing_on_request(
    usable: Probe, engine: Child, tmp_path: Path
) -> None:
    profile = sampled(pyspy.make_pyspy(replace(SETUP, nonblocking=True)), engine, tmp_path)
    require_samples(profile, 10)
    assert profile.call_graph == "python+nonblocking"
    assert profile.degraded == ("sampled without pausing: asked for",)


@pytest.mark.parametrize("usable", ["perf", "py-spy"], indirect=True)
def test_what_ran_before_the_profiler_came_is_no_part_of_the_profile(
    usable: Probe, tmp_path: Path
) -> None:
    child = started(LOADING)
    profiler = perf.make_perf(SETUP) if usable.profiler == "perf" else pyspy.make_pyspy(SETUP)
    try:
        profile = sampled(profiler, child, tmp_path)
    finally:
        child.end()
        jitdump.remove_jit_files(child.pid)
    assert profile.samples
    assert not any(frame.name == "load_model" for stack in profile.stacks for frame in stack)


@pytest.mark.parametrize("usable", ["py-spy"], indirect=True)
def test_py_spy_refuses_what_is_no_python_in_its_own_words(usable: Probe, tmp_path: Path) -> None:
    child = process.start(["sleep", "60"])
    try:
        with pytest.raises(FlamegateError, match="E_NOT_PYTHON") as refused:
            pyspy.make_pyspy(SETUP).attach(child.pid, tmp_path)
    finally:
        child.end()
    assert "Failed to find python version from target process" in refused.value.problem


@pytest.mark.parametrize("usable", ["perf", "py-spy"], indirect=True)
def test_a_process_that_is_gone_cannot_be_sampled(usable: Probe, tmp_path: Path) -> None:
    child = process.start(["sleep", "60"])
    child.end()
    make = perf.make_perf if usable.profiler == "perf" else pyspy.make_pyspy
    with pytest.raises(FlamegateError, match="E_PROCESS_GONE"):
        make(SETUP).attach(child.pid, tmp_path)


@pytest.mark.parametrize("usable", ["perf", "py-spy"], indirect=True)
def test_a_process_that_ends_while_it_is_sampled_leaves_a_profile(
    usable: Probe, engine: Child, tmp_path: Path
) -> None:
    profiler = perf.make_perf(SETUP) if usable.profiler == "perf" else pyspy.make_pyspy(SETUP)
    recording = profiler.attach(engine.pid, tmp_path)
    time.sleep(0.2)
    engine.interrupt()
    assert engine.wait(10) == 0
    assert profiler.parse(recording.stop()).samples > 5

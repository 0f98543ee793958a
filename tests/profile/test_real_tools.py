"""The installed perf, py-spy and valgrind, on small programs that do nothing but compute."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pytest_flamegate.config.thresholds import STACK_FLOOR
from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.process import Child
from pytest_flamegate.profile.frames import fold_profile, parse_folded
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import perf, perf_data, pyspy
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.callgrind import count_program
from pytest_flamegate.profile.profilers.instructions import build_instruction_profile
from pytest_flamegate.profile.profilers.tools import parse_wrapped, try_profiler
from pytest_flamegate.profile.source_lines import find_symbolizer
from pytest_flamegate.profile.stacks import cut_stacks_error, trim_stacks
from tests.tools import require

measures = pytest.mark.measures
nightly = [pytest.mark.measures, pytest.mark.nightly]

SETUP = Setup(project=Path(__file__).parent)
OLD_PYTHON = Setup(python=(3, 11, 0), project=Path(__file__).parent)
MAKE: dict[str, Callable[[Setup], Profiler]] = {
    "perf": perf.make_profiler,
    "py-spy": pyspy.make_profiler,
}
# After half a second of loading, two kinds of work under the workload's root. It announces itself
# on stdout once it is warm, and ends quietly on SIGINT.
ENGINE = """
import ctypes, sys, time
import numpy as np
A, X = np.ones((600, 600)), np.ones(600)

def matvec():
    for _ in range(20):
        A @ X

def rms_norm(n):
    total = 0.0
    for value in range(n):
        total += value * value
    return total

def load_model():
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        sum(range(1000))

def measured_sequences(end):
    while time.monotonic() < end:
        matvec()
        rms_norm(2000)

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
load_model()
measured_sequences(time.monotonic() + 0.1)
print("ready", flush=True)
try:
    measured_sequences(time.monotonic() + 60)
except KeyboardInterrupt:
    pass
"""


@cache
def probe(name: str) -> Probe:
    return try_profiler(MAKE[name](SETUP))


def require_usable(*names: str) -> None:
    for name in names:
        require(probe(name).usable, f"{name} cannot be used: {probe(name).reason}")


def start_engine(*flags: str) -> Child:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    child = process.start([sys.executable, *flags, "-c", ENGINE], env=env)
    deadline = time.monotonic() + 30
    while b"ready" not in child.stdout_bytes() and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert child.poll() is None, child.stderr_text()
    return child


def sample(profiler: Profiler, directory: Path, cpu_s: float = 0.5) -> Profile:
    """Sample ``cpu_s`` seconds of CPU time of the engine, cut to its root."""
    child = start_engine(*profiler.python_flags)
    try:
        started = clocks.read_start_ticks(child.pid)
        recording = profiler.attach(child.pid, directory)
        until_ns = clocks.read_clocks(child.pid).cpu_ns + round(cpu_s * 1e9)
        deadline = time.monotonic() + 30
        while clocks.read_clocks(child.pid).cpu_ns < until_ns:  # however busy the machine is
            assert time.monotonic() < deadline
            time.sleep(0.02)
        raw = recording.stop()
        recording.close()
        child.interrupt()
        assert child.wait(10) == 0
        profile = trim_stacks(profiler.parse(raw))
    finally:
        child.end()
        profiler.clean_up(child.pid)
    assert (profile.pids, profile.started_ticks) == ((child.pid,), (started,))
    assert not any(frame.name == "load_model" for stack in profile.stacks for frame in stack)
    assert parse_folded(fold_profile(profile)) == profile.stacks
    assert not perf_data.jitdump_path(child.pid).exists()
    return profile


@measures
def test_py_spy_finds_where_python_spends_its_time(tmp_path: Path) -> None:
    require_usable("py-spy")
    # Long enough for a function of a few percent to be sampled.
    profile = sample(pyspy.make_profiler(SETUP), tmp_path, cpu_s=2.0)
    assert profile.samples >= 10
    assert profile.completeness >= 0.99
    assert profile.python == SETUP.python_text
    spots = {spot.name: spot for spot in rank_hotspots(profile, 1.0)}
    assert {"matvec", "rms_norm", "measured_sequences"} <= set(spots)
    assert (spots["matvec"].category, spots["rms_norm"].category) == ("matmul", "norm")
    assert spots["measured_sequences"].inclusive_share >= 0.99


@measures
@pytest.mark.parametrize(
    ("name", "setup", "call_graph"),
    [
        ("py-spy", replace(SETUP, native=True), "python+native"),
        ("perf", OLD_PYTHON, "dwarf,32768"),
    ],
)
def test_native_frames_are_those_of_the_library_that_computes(
    name: str, setup: Setup, call_graph: str, tmp_path: Path
) -> None:
    require_usable(name)
    profile = sample(MAKE[name](setup), tmp_path)
    assert profile.samples >= 10
    assert profile.call_graph == call_graph
    assert profile.completeness >= 0.9
    assert (perf.OLD_PYTHON in profile.degraded) == (name == "perf")
    leaves = {stack[-1] for stack in profile.stacks}
    assert any(leaf.kind == "native" and "blas" in leaf.module for leaf in leaves)


@measures
@pytest.mark.skipif(sys.version_info < (3, 13), reason="perf_jit came with CPython 3.13")
def test_perf_finds_python_frames(tmp_path: Path) -> None:
    require_usable("perf")
    profile = sample(perf.make_profiler(SETUP), tmp_path)
    assert profile.completeness >= 0.9
    within = {s.name: s.inclusive_share for s in rank_hotspots(profile) if s.kind == "python"}
    assert within["measured_sequences"] >= 0.9
    assert within["matvec"] > 0.1


@measures
def test_a_wrapped_command_keeps_its_status_and_its_output(tmp_path: Path) -> None:
    require_usable(*MAKE)
    profiler = perf.make_profiler(Setup(python_engine=False))
    program = "import sys; sum(range(20_000_000)); print('out'); sys.exit(3)"
    wrapped = profiler.wrap([sys.executable, "-S", "-c", program], tmp_path)
    result = process.run(wrapped.argv, timeout_s=60)
    assert (result.returncode, result.stdout) == (3, b"out\n")
    profile = trim_stacks(parse_wrapped(profiler, wrapped.recording, result.stderr), None)
    assert profile.samples >= 5
    assert (profile.completeness >= 0.8, profile.python, len(profile.pids)) == (True, "", 1)

    program = "import time\ndef busy(end):\n  while time.time() < end: sum(range(100))\n"
    program += "print('out')\nbusy(time.time() + 0.5)"
    wrapped = pyspy.make_profiler(SETUP).wrap([sys.executable, "-c", program], tmp_path)
    result = process.run(wrapped.argv, timeout_s=60)
    assert wrapped.clean is not None
    assert wrapped.clean(result.stdout) == b"out\n"
    profile = pyspy.make_profiler(SETUP).parse(wrapped.recording)
    assert profile.samples >= 5
    assert rank_hotspots(profile)[0].name == "busy"


@measures
def test_a_process_that_cannot_be_sampled_is_an_error(tmp_path: Path) -> None:
    require_usable(*MAKE)
    child = process.start(["sleep", "60"])
    try:
        with pytest.raises(FlamegateError, match=r"E_PROFILER_BLIND.*Failed to find python"):
            pyspy.make_profiler(SETUP).attach(child.pid, tmp_path)
    finally:
        child.end()
    for make in MAKE.values():
        with pytest.raises(FlamegateError, match="E_PROCESS_GONE"):
            make(SETUP).attach(child.pid, tmp_path)


@measures
def test_a_process_that_ends_while_it_is_sampled_leaves_a_profile(tmp_path: Path) -> None:
    require_usable(*MAKE)
    for make in MAKE.values():
        child = start_engine()
        try:
            profiler = make(OLD_PYTHON)
            recording = profiler.attach(child.pid, tmp_path)
            time.sleep(0.3)
            child.interrupt()
            assert child.wait(10) == 0
            assert profiler.parse(recording.stop()).samples > 5
        finally:
            child.end()


# Its layers keep 20 KB on the stack, as those of llama.cpp keep more.
DEEP = """
__attribute__((noinline)) double gemv(int n)
{ volatile double s = 0; for (int i = 0; i < n; i++) s += i * 1.5; return s; }
__attribute__((noinline)) double layer(int n)
{ volatile char kept[20000]; for (int i = 0; i < 20000; i += 256) kept[i] = n;
  double s = gemv(n); return s + kept[0]; }
__attribute__((noinline)) double token(int n) { return layer(n) + 1; }
int main(void) { double s = 0; for (int i = 0; i < 300; i++) s += token(500000 + i); return s < 0; }
"""


def compile_program(source: str, directory: Path, *flags: str) -> Path:
    compiler = shutil.which("cc")
    require(compiler is not None, "there is no C compiler")
    assert compiler is not None
    (directory / "program.c").write_text(source)
    subprocess.run([compiler, *flags, "-o", "program", "program.c"], cwd=directory, check=True)
    return directory / "program"


@pytest.mark.parametrize(
    ("call_graph", "is_whole"),
    [
        pytest.param("dwarf,65528", True, marks=measures),
        pytest.param("dwarf,8192", False, marks=nightly),
        pytest.param("fp", False, marks=nightly),
    ],
)
def test_cut_stacks_of_a_compiled_program_are_an_error(
    call_graph: str, is_whole: bool, tmp_path: Path
) -> None:
    require_usable("perf")
    program = compile_program(DEEP, tmp_path, "-O2", "-fomit-frame-pointer")
    profiler = perf.make_profiler(Setup(python_engine=False, rate_hz=199, call_graph=call_graph))
    wrapped = profiler.wrap([str(program)], tmp_path)
    result = process.run(wrapped.argv, timeout_s=120)
    assert result.returncode == 0, result.stderr
    profile = trim_stacks(parse_wrapped(profiler, wrapped.recording, result.stderr), None)
    assert (profile.call_graph, profile.samples >= 20) == (call_graph, True)
    spots = rank_hotspots(profile)
    assert spots[0].name == "gemv"
    if is_whole:
        assert profile.completeness >= 0.9
        assert {spot.name: spot.inclusive_share for spot in spots}["layer"] >= 0.9
    else:
        assert profile.completeness <= 0.1
    assert (cut_stacks_error(profile, STACK_FLOOR) is None) is is_whole


SPLIT = """
#include <stdlib.h>
static volatile unsigned sink;
__attribute__((noinline)) void gemv(int n) { for (int i = 0; i < n; i++) sink = sink * 3 + i; }
__attribute__((noinline)) void norm(int n) { for (int i = 0; i < n; i++) sink = sink * 3 + i; }
__attribute__((noinline)) void walk(int depth, int n) {
    if (depth) { walk(depth - 1, n); sink++; } else gemv(n);
}
__attribute__((noinline)) void attention(int n) { gemv(n); sink++; }
int main(int argc, char **argv) {
    for (int token = atoi(argv[argc - 1]); token; token--) {
        attention(6000);
        walk(4, 3000);
        norm(1000);
    }
    return 0;
}
"""


@measures
def test_callgrind_counts_a_known_split_by_function_and_by_caller(tmp_path: Path) -> None:
    """Loops of 6, 3 and 1 thousand rounds are exact, for any caller and depth."""
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    flags = ("-O1", "-fno-inline", "-fno-optimize-sibling-calls")
    program = str(compile_program(SPLIT, tmp_path, *flags))
    few, many = (
        count_program([program, tokens], env=os.environ, cwd=tmp_path, timeout_s=60.0)
        for tokens in ("1", "9")
    )
    profile = build_instruction_profile(many, few, python="", notes=())
    assert profile.samples == many.instructions - few.instructions
    spots = {spot.name: spot for spot in rank_hotspots(profile)}
    shares = spots["gemv"].self_share, spots["norm"].self_share
    assert shares == pytest.approx((0.9, 0.1), abs=0.001)
    inclusive = spots["attention"].inclusive_share, spots["walk"].inclusive_share
    assert inclusive == pytest.approx((0.6, 0.3), abs=0.001)
    assert profile.completeness > 0.999


@measures
def test_callgrind_counts_a_wrapper_with_its_engine_and_explains_failures(tmp_path: Path) -> None:
    """A shell script that runs one program and becomes another: all three are counted."""
    require(shutil.which("valgrind") is not None, "valgrind is not installed")
    script = tmp_path / "wrapper"
    script.write_text('#!/bin/sh\n"$1" first\nexec "$1" second\n')
    script.chmod(0o755)
    echo = shutil.which("echo")
    assert echo is not None
    alone = count_program([echo, "second"], env=os.environ, cwd=None, timeout_s=60.0)
    wrapped = count_program(["./wrapper", echo], env=os.environ, cwd=tmp_path, timeout_s=60.0)
    assert (alone.stdout, wrapped.stdout) == (b"second\n", b"first\nsecond\n")
    assert wrapped.instructions > 1.9 * alone.instructions
    assert list(tmp_path.iterdir()) == [script]
    with pytest.raises(FlamegateError, match="E_CANNOT_START"):
        count_program(["/nowhere/engine"], env=os.environ, cwd=None, timeout_s=60.0)


KERNELS = {"embed": 60, "attend": 20, "project": 10, "rotate": 6, "sample": 4}
"""Thousands of rounds of the same loop, so percent of the time."""
# For each language a kernel, its call, and the program around the calls.
MAIN_IN_C = "int main(void) {\n double x = 1;\n for (int t = 0; t < 22500; t++) {\n"
END_IN_C = " }\n return x < 0;\n}\n"
LANGUAGES = {
    "c": (
        """
static inline __attribute__((always_inline)) double NAME(double x, int n)
{ for (int i = 0; i < n; i++) x = x * 0.999 + 1.0; return x; }
""",
        "NAME(x, ROUNDS)",
        (MAIN_IN_C, END_IN_C),
    ),
    "c++": (
        """
template <int N> struct L_NAME { static inline __attribute__((always_inline)) double NAME(double x)
{ for (int i = 0; i < N; i++) x = x * 0.999 + 1.0; return x; } };
""",
        "L_NAME<ROUNDS>::NAME(x)",
        (MAIN_IN_C, END_IN_C),
    ),
    "rust": (
        """
#[inline(always)]
fn NAME(mut x: f64, n: u32) -> f64 { let mut i = 0; while i < n { x = x * 0.999 + 1.0; i += 1; } x }
""",
        "NAME(x, ROUNDS)",
        (
            "fn main() {\n let mut x = std::hint::black_box(1.0);\n for _ in 0..22500 {\n",
            " }\n std::hint::black_box(x);\n}\n",
        ),
    ),
}


@pytest.mark.parametrize(
    "language",
    [
        pytest.param("c", marks=measures),
        pytest.param("c++", marks=nightly),
        pytest.param("rust", marks=nightly),
    ],
)
def test_inlined_kernels_have_their_shares_and_lines(language: str, tmp_path: Path) -> None:
    """Five kernels, compiled into one function."""
    require_usable("perf")
    require(find_symbolizer() is not None, "neither llvm-symbolizer nor addr2line is installed")
    kernel, call, (begin, end) = LANGUAGES[language]
    source = "".join(kernel.replace("NAME", name) for name in KERNELS) + begin
    for name, part in KERNELS.items():
        source += f"  x = {call.replace('NAME', name).replace('ROUNDS', f'{part}000')};\n"
    source += end
    if language == "rust":
        require(shutil.which("rustc") is not None, "there is no Rust compiler")
        (tmp_path / "program.rs").write_text(source)
        subprocess.run(["rustc", "-O", "-g", "program.rs"], cwd=tmp_path, check=True)
        program = tmp_path / "program"
    else:
        # -fno-ipa-icf: equal functions stay functions of their own.
        options = ["-x", language, "-O2", "-g", "-fno-ipa-icf", "-fno-tree-tail-merge"]
        program = compile_program(source, tmp_path, *options)
    profiler = perf.make_profiler(Setup(python_engine=False, project=tmp_path, rate_hz=3997))
    wrapped = profiler.wrap([str(program)], tmp_path)
    result = process.run(wrapped.argv, timeout_s=120)
    profile = trim_stacks(parse_wrapped(profiler, wrapped.recording, result.stderr), None)
    assert profile.samples >= 8000
    shares = {
        spot.name.rpartition("::")[2]: 100 * spot.self_share for spot in rank_hotspots(profile)
    }
    found = {name: shares.get(name, 0.0) for name in KERNELS}
    assert found == pytest.approx(KERNELS, abs=2.0)
    lines = source.splitlines()
    for stack, count in profile.lines.items():
        if count > 0.02 * profile.samples:
            text = lines[stack[0].line - 1]
            assert any(f"{name}(x" in text for name in KERNELS), text

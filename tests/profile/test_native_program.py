"""perf on a compiled program: which walks reach the start of its stacks, which are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_flamegate.config.thresholds import STACK_FLOOR
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import perf
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.stacks import require_stacks, trim_stacks
from tests.tools import require

pytestmark = pytest.mark.measures

# Its layers keep 20 KB on the stack, as those of llama.cpp keep more.
PROGRAM = """
__attribute__((noinline)) double gemv(int n)
{ volatile double s = 0; for (int i = 0; i < n; i++) s += i * 1.5; return s; }
__attribute__((noinline)) double layer(int n)
{ volatile char kept[20000]; for (int i = 0; i < 20000; i += 256) kept[i] = n;
  double s = gemv(n); return s + kept[0]; }
__attribute__((noinline)) double token(int n) { return layer(n) + 1; }
int main(void) { double s = 0; for (int i = 0; i < 300; i++) s += token(500000 + i); return s < 0; }
"""


@pytest.fixture(scope="module", params=["-fomit-frame-pointer", "-fno-omit-frame-pointer"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    probe = perf.make_perf(Setup(python_engine=False)).probe()
    require(probe.usable, f"perf cannot be used: {probe.reason}")
    compiler = shutil.which("cc")
    require(compiler is not None, "there is no C compiler")
    assert compiler is not None
    directory = tmp_path_factory.mktemp("program")
    (directory / "engine.c").write_text(PROGRAM)
    made = directory / ("kept" if "no-omit" in request.param else "dropped")
    argv = [compiler, "-O2", request.param, "-o", str(made), str(directory / "engine.c")]
    built = process.run(argv, timeout_s=120)
    assert built.returncode == 0, built.stderr
    return made


def profiled(program: Path, call_graph: str, directory: Path) -> Profile:
    profiler = perf.make_perf(Setup(python_engine=False, rate_hz=199, call_graph=call_graph))
    wrapped = profiler.wrap([str(program)], directory)
    result = process.run(wrapped.argv, timeout_s=120)
    assert result.returncode == 0, result.stderr
    profile = trim_stacks(profiler.parse(wrapped.raw, result.stderr), None)
    assert profile.call_graph == call_graph
    assert profile.samples >= 20
    assert rank_hotspots(profile)[0].name == "gemv"
    return profile


@pytest.mark.parametrize("call_graph", ["fp", "dwarf,8192", "dwarf,32768", "dwarf,65528", "none"])
def test_stacks_that_reach_the_start_are_taken_and_cut_ones_refused(
    program: Path, call_graph: str, tmp_path: Path
) -> None:
    profile = profiled(program, call_graph, tmp_path)
    whole = {"fp": program.name == "kept", "dwarf,8192": False, "none": False}
    if whole.get(call_graph, True):
        assert profile.completeness >= 0.9
        inclusive = {spot.name: spot.inclusive_share for spot in rank_hotspots(profile)}
        assert inclusive["layer"] >= 0.9
        require_stacks(profile, STACK_FLOOR)
    else:
        assert profile.completeness <= 0.1
        if call_graph == "none":
            require_stacks(profile, STACK_FLOOR)
        else:
            with pytest.raises(UndecidedError, match="E_STACKS_CUT"):
                require_stacks(profile, STACK_FLOOR)

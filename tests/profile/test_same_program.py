"""Two runs of one program are one profile: nothing of a run or a place is left in it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.profile.folded import format_frame
from pytest_flamegate.profile.model import Frame, Profile
from pytest_flamegate.profile.profilers import perf, pyspy
from pytest_flamegate.profile.profilers.base import Profiler, Setup
from pytest_flamegate.profile.stacks import trim_stacks
from tests.tools import require

pytestmark = pytest.mark.measures

# Work that is the same in every run: Python's own, NumPy's, a lambda's, and the kernel's.
PROGRAM = """
import os
import numpy as np

A, X = np.ones((300, 300)), np.ones(300)

def matvec():
    for _ in range(40):
        A @ X

def rms_norm():
    return sum((lambda value: value * value)(value) for value in range(20_000))

def softmax():
    return [value / 2.0 for value in range(30_000)]

def read():
    with open(os.devnull, "wb", buffering=0) as sink, open("/dev/zero", "rb") as source:
        for _ in range(20):
            sink.write(source.read(200_000))

for _ in range(130):
    matvec()
    rms_norm()
    softmax()
    read()
"""
PLENTY = 14
"""A frame expected so often is missed altogether once in a million runs."""
MAKE: dict[str, Callable[[Path], Profiler]] = {
    "perf": lambda root: perf.make_perf(Setup(python_engine=False, project=root, rate_hz=199)),
    "py-spy": lambda root: pyspy.make_pyspy(Setup(project=root)),
    "py-spy with native frames": lambda root: pyspy.make_pyspy(Setup(project=root, native=True)),
}


def profiled(profiler: Profiler, directory: Path) -> Profile:
    (directory / "engine.py").write_text(PROGRAM)
    argv = [sys.executable, str(directory / "engine.py")]
    wrapped = profiler.wrap(argv, directory)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PLACE": str(directory)}
    result = process.run(wrapped.argv, timeout_s=120, env=environment, cwd=directory)
    assert result.returncode == 0, result.stderr
    return trim_stacks(profiler.parse(wrapped.raw, result.stderr), None)


def frames(profile: Profile) -> Counter[Frame]:
    seen: Counter[Frame] = Counter()
    for stack, samples in profile.stacks.items():
        seen.update(dict.fromkeys(stack, samples))
    return seen


@pytest.mark.parametrize("name", MAKE)
def test_two_runs_in_two_places_show_the_same_frames(name: str, tmp_path: Path) -> None:
    probe = MAKE[name](tmp_path).probe()
    require(probe.usable, f"{probe.profiler} cannot be used: {probe.reason}")
    places = [tmp_path / "one", tmp_path / "elsewhere" / "deep down"]
    found = []
    for place in places:
        place.mkdir(parents=True)
        found.append(profiled(MAKE[name](place), place))
    one, other = found
    assert one.pids != other.pids
    assert (one.event, one.rate_hz, one.call_graph) == (
        other.event,
        other.rate_hz,
        other.call_graph,
    )
    for mine, theirs in ((one, other), (other, one)):
        seen = frames(theirs)
        scale = mine.samples / theirs.samples
        often = {
            frame for frame, samples in frames(mine).items() if samples >= PLENTY * max(scale, 1)
        }
        assert len(often) >= 3
        assert {frame for frame in often if frame not in seen} == set()
    texts = "\n".join(format_frame(frame) for profile in found for frame in frames(profile))
    assert "0x" not in texts
    assert not any(word in texts for word in (str(tmp_path), "deep down", sys.prefix))
    for profile in found:
        assert not any(str(pid) in texts for pid in profile.pids if pid > 9999)

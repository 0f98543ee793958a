"""A short real trial of a profiler, on a process that does nothing but work."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, system_errors
from pytest_flamegate.profile import jitdump, programs
from pytest_flamegate.profile.base import Probe
from pytest_flamegate.profile.words import ProfilerError, hangs
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.profile.base import Profiler
    from pytest_flamegate.profile.model import Profile

TRIAL_S = 0.2
START_TIMEOUT_S = 20.0
_SPINNER = "flamegate_spinner"
# Like a measured engine it lets any process of its user trace it (Yama), and it ends by itself.
_PROGRAM = f"""
import ctypes, sys, time
def {_SPINNER}(end):
    while time.monotonic() < end:
        sum(range(1000))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
print("ready", flush=True)
try:
    {_SPINNER}(time.monotonic() + 60)
except KeyboardInterrupt:
    pass
"""


def trial(profiler: Profiler, find: Callable[[], str]) -> Probe:
    """Find the program and sample a small spinning Python process for ``TRIAL_S`` seconds.

    ``find`` returns the program's path or raises why there is none. Never raises itself.
    """
    version = ""
    try:
        with system_errors():
            version = programs.version(find())
            profile = _sample(profiler)
    except FlamegateError as error:
        return unusable(profiler.name, version, error)
    kinds = {frame.kind for stack in profile.stacks for frame in stack}
    seen = {frame.name for stack in profile.stacks for frame in stack if frame.kind == "python"}
    if not profile.samples:
        reason = f"no sample in {TRIAL_S} s of a process that does nothing but work"
        todo = "Run the profiler by hand on any process to see more, or choose another one."
        empty = ProfilerError("E_NO_SAMPLES", f"{profiler.name} took {reason}.", todo, reason)
        return unusable(profiler.name, version, empty)
    return Probe(
        profiler=profiler.name,
        version=version,
        usable=True,
        sees_python=_SPINNER in seen,
        sees_native="native" in kinds,
        event=profile.event,
        notes=profile.degraded,
    )


def unusable(name: str, version: str, error: FlamegateError) -> Probe:
    """Return the probe of a profiler that failed with ``error``."""
    return Probe(
        profiler=name,
        version=version,
        usable=False,
        sees_python=False,
        sees_native=False,
        code=error.code,
        reason=error.reason if isinstance(error, ProfilerError) else error.what,
        todo=error.todo,
    )


def _sample(profiler: Profiler) -> Profile:
    child = process.start([sys.executable, *profiler.python_flags, "-I", "-c", _PROGRAM])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"ready" not in child.stdout_bytes():
            if child.poll() is not None or time.monotonic() > deadline:
                raise hangs(profiler.name, START_TIMEOUT_S, "starting Python to try it on")
            time.sleep(0.005)
        with tempfile.TemporaryDirectory() as directory:
            recording = profiler.attach(child.pid, Path(directory))
            try:
                time.sleep(TRIAL_S)
                raw = recording.stop()
                child.interrupt()
                child.wait(START_TIMEOUT_S)
                return profiler.parse(raw)
            finally:
                recording.close()
    finally:
        child.end()
        jitdump.clean(child.pid)

"""A short real trial of a profiler, on a process that does nothing but compute."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, system_errors
from pytest_flamegate.profile.profilers.base import Probe
from pytest_flamegate.profile.profilers.errors import ProfilerError, timeout_error
from pytest_flamegate.profile.profilers.tools import tool_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.profile.profilers.base import Profiler


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


def try_profiler(profiler: Profiler, find: Callable[[], str]) -> Probe:
    """Sample a small Python process for ``TRIAL_S`` seconds; never raises.

    ``find`` returns the path of the profiler's program, or raises ``ProfilerError``.
    """
    version = ""
    try:
        with system_errors():
            version = tool_version(find())
            profile = _sample_spinner(profiler)
            if not profile.samples:
                raise _no_sample_error(profiler.name)
    except FlamegateError as error:
        return make_failed_probe(profiler.name, version, error)
    frames = {frame for stack in profile.stacks for frame in stack}
    return Probe(
        profiler=profiler.name,
        version=version,
        usable=True,
        sees_python=any(f.kind == "python" and f.name == _SPINNER for f in frames),
        sees_native=any(frame.kind == "native" for frame in frames),
        event=profile.event,
        notes=profile.degraded,
    )


def make_failed_probe(name: str, version: str, error: FlamegateError) -> Probe:
    """Return the probe of a profiler that failed with ``error``."""
    return Probe(
        profiler=name,
        version=version,
        usable=False,
        sees_python=False,
        sees_native=False,
        code=error.code,
        reason=error.reason if isinstance(error, ProfilerError) else error.problem,
        remedy=error.remedy,
    )


def _no_sample_error(profiler: str) -> ProfilerError:
    reason = f"no sample in {TRIAL_S} s of a process that does nothing but compute"
    remedy = "Run the profiler by hand on any process to see more, or choose another one."
    return ProfilerError("E_NO_SAMPLES", f"{profiler} took {reason}.", remedy, reason)


def _sample_spinner(profiler: Profiler) -> Profile:
    child = process.start([sys.executable, *profiler.python_flags, "-I", "-c", _PROGRAM])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"ready" not in child.stdout_bytes():
            if child.poll() is not None or time.monotonic() > deadline:
                raise timeout_error(profiler.name, START_TIMEOUT_S, "starting Python to try it on")
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
        profiler.clean_up(child.pid)

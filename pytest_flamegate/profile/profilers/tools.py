"""The program of a profiler: its path, its version, how to install it, and a short real trial."""

from __future__ import annotations

import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, system_errors
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Probe, Profiler
from pytest_flamegate.profile.profilers.errors import TRY_BY_HAND, ProfilerError, timeout_error

INSTALLERS = {
    "debian": "apt install",
    "ubuntu": "apt install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "arch": "pacman -S",
    "suse": "zypper install",
}
_PACKAGES = {
    ("perf", "debian"): "linux-perf",
    ("perf", "ubuntu"): "linux-tools-$(uname -r)",
}
"""By program and distribution, if the package is not called like the program."""
VERSION_TIMEOUT_S = 10.0
_VERSION = re.compile(rb"\d+\.\d+[\w.+-]*")


def install_hint(program: str) -> str:
    """Return the command that installs ``program`` on this distribution, as a sentence.

    On an unknown distribution the sentence lists the commands of all.
    """
    commands = {
        name: f"{installer} {_PACKAGES.get((program, name), program)}"
        for name, installer in INSTALLERS.items()
    }
    for name in _distribution_names():
        if name in commands:
            return f"Install it: {commands[name]}."
    every = ", ".join(f"{command} ({name.title()})" for name, command in commands.items())
    return f"Install it: {every}."


def _distribution_names() -> list[str]:
    """Return the name of the distribution, and then of those it is derived from."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("ID", ""), *release.get("ID_LIKE", "").split()]


def find_program(program: str, remedy: str) -> str:
    """Return the path of ``program``: this environment's scripts first, then ``PATH``.

    Raises ``ProfilerError`` ``E_PROFILER_ABSENT`` with ``remedy`` if it is in neither.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(program, path=scripts) or shutil.which(program)
    if path is None:
        reason = f"no program {program} in {scripts} or on PATH"
        problem = f"{program} is not installed: {reason}."
        raise ProfilerError("E_PROFILER_ABSENT", problem, remedy, reason)
    return path


@lru_cache(maxsize=16)
def tool_version(path: str) -> str:
    """Return the number in the answer to ``--version``, or ``unknown``."""
    result = process.run([path, "--version"], timeout_s=VERSION_TIMEOUT_S)
    if result.timed_out:
        name = path.rsplit("/", 1)[-1]
        raise timeout_error(name, VERSION_TIMEOUT_S, "asked for its version")
    found = _VERSION.search(result.stdout)
    return found.group().decode("ascii", "replace") if found else "unknown"


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
                reason = f"no sample in {TRIAL_S} s of a process that does nothing but compute"
                problem = f"{profiler.name} took {reason}."
                raise ProfilerError("E_NO_SAMPLES", problem, TRY_BY_HAND, reason)
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
        code=error.code,
        reason=error.reason if isinstance(error, ProfilerError) else error.problem,
        remedy=error.remedy,
    )


def _sample_spinner(profiler: Profiler) -> Profile:
    child = process.start([sys.executable, *profiler.python_flags, "-I", "-c", _PROGRAM])
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"ready" not in child.stdout_bytes():
            if child.poll() is not None or time.monotonic() > deadline:
                raise timeout_error(profiler.name, START_TIMEOUT_S, "starting Python to try it on")
            time.sleep(0.005)
        with tempfile.TemporaryDirectory() as directory:
            running = profiler.attach(child.pid, Path(directory))
            try:
                time.sleep(TRIAL_S)
                recording = running.stop()
                child.interrupt()
                child.wait(START_TIMEOUT_S)
                return profiler.parse(recording)
            finally:
                running.close()
    finally:
        child.end()
        profiler.clean_up(child.pid)

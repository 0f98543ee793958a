"""A short real trial of a profiler, on a process that does nothing but work."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, system_errors
from pytest_flamegate.profile.profilers import jitdump
from pytest_flamegate.profile.profilers.base import Probe
from pytest_flamegate.profile.profilers.errors import ABSENT, ProfilerError, timeout_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.profile.profilers.base import Profiler


OS_RELEASE = Path("/etc/os-release")
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "perf": {
        "debian": "apt install linux-perf",
        "ubuntu": "apt install linux-tools-$(uname -r)",
        "fedora": "dnf install perf",
        "rhel": "dnf install perf",
        "arch": "pacman -S perf",
        "suse": "zypper install perf",
    },
    "valgrind": {
        "debian": "apt install valgrind",
        "ubuntu": "apt install valgrind",
        "fedora": "dnf install valgrind",
        "rhel": "dnf install valgrind",
        "arch": "pacman -S valgrind",
        "suse": "zypper install valgrind",
    },
}


def install_hint(program: str, os_release: Path = OS_RELEASE) -> str:
    """Return the sentence that says what to type: every command where this system is unknown."""
    commands = COMMANDS[program]
    for name in _names(os_release):
        if name in commands:
            return f"Install it: {commands[name]}."
    every = ", ".join(f"{command} ({name.title()})" for name, command in commands.items())
    return f"Install it: {every}."


def _names(os_release: Path) -> list[str]:
    """Return what the distribution calls itself, and then what it is like."""
    try:
        lines = os_release.read_text(encoding="utf-8", errors="replace").splitlines()
        values = dict(line.partition("=")[::2] for line in lines)
        return [
            name
            for key in ("ID", "ID_LIKE")
            for name in " ".join(shlex.split(values.get(key, ""))).split()
        ]
    except (OSError, ValueError):
        return []


ASK_TIMEOUT_S = 10.0
_NUMBER = re.compile(rb"\d+\.\d+[\w.+-]*")


def find_program(program: str, remedy: str) -> str:
    """Return the path of ``program``: this environment's scripts first, then ``PATH``.

    Raises ``ProfilerError`` ``E_PROFILER_ABSENT`` with ``remedy`` when it is in neither.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(program, path=scripts) or shutil.which(program)
    if path is None:
        reason = f"no program {program} in {scripts} or on PATH"
        raise ProfilerError(ABSENT, f"{program} is not installed: {reason}.", remedy, reason)
    return path


@lru_cache(maxsize=16)
def tool_version(path: str) -> str:
    """Return the number in the answer to ``--version``, or ``unknown``."""
    result = process.run([path, "--version"], timeout_s=ASK_TIMEOUT_S)
    if result.timed_out:
        raise timeout_error(path.rsplit("/", 1)[-1], ASK_TIMEOUT_S, "asked for its version")
    found = _NUMBER.search(result.stdout)
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
    """Find the program and sample a small spinning Python process for ``TRIAL_S`` seconds.

    ``find`` returns the program's path or raises why there is none. Never raises itself.
    """
    version = ""
    try:
        with system_errors():
            version = tool_version(find())
            profile = _sample(profiler)
    except FlamegateError as error:
        return unusable_probe(profiler.name, version, error)
    kinds = {frame.kind for stack in profile.stacks for frame in stack}
    seen = {frame.name for stack in profile.stacks for frame in stack if frame.kind == "python"}
    if not profile.samples:
        reason = f"no sample in {TRIAL_S} s of a process that does nothing but work"
        remedy = "Run the profiler by hand on any process to see more, or choose another one."
        empty = ProfilerError("E_NO_SAMPLES", f"{profiler.name} took {reason}.", remedy, reason)
        return unusable_probe(profiler.name, version, empty)
    return Probe(
        profiler=profiler.name,
        version=version,
        usable=True,
        sees_python=_SPINNER in seen,
        sees_native="native" in kinds,
        event=profile.event,
        notes=profile.degraded,
    )


def unusable_probe(name: str, version: str, error: FlamegateError) -> Probe:
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


def _sample(profiler: Profiler) -> Profile:
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
        jitdump.remove_jit_files(child.pid)

"""The programs of profilers: path, version, a short real trial, and errors for their messages."""

import re
import shutil
import sys
import sysconfig
import tempfile
import time
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.core.files import read_system_text
from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.profile.hotspots import no_samples_error
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Recording

PROC = Path("/proc")
CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
"""The capabilities that profilers use, with their bit in ``CapEff``."""
_SYSCTLS = ("kernel.perf_event_paranoid", "kernel.yama.ptrace_scope")
_SECCOMP = {"0": "no seccomp", "1": "strict seccomp", "2": "a seccomp filter"}
_EFFECTIVE = re.compile(r"^CapEff:\s+([0-9a-f]{1,16})$", re.MULTILINE)
_MODE = re.compile(r"^Seccomp:\s+([012])$", re.MULTILINE)
_SHOWN_CHARACTERS = 300
_READ_BYTES = 16384
_PROGRESS = re.compile(
    rb"^(?:\[ perf record: .*|Events (?:en|dis)abled|py-spy> .*)\n?", re.MULTILINE
)
VERSION_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 60.0
LAST_WORDS_S = 1.0
_VERSION = re.compile(rb"\d+\.\d+[\w.+-]*")


class KnownMessage(NamedTuple):
    """A row of ``messages.toml``: a message that a program prints, its code and its remedy."""

    text: str
    code: str
    remedy: str
    fatal: bool = False


class ProfilerError(ToolError):
    """A profiler failed; ``reason`` is its own message on one line."""

    def __init__(self, code: str, problem: str, reason: str, remedy: str = "") -> None:
        super().__init__(code, problem, remedy)
        self.reason = reason


_MESSAGES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("messages.toml").read_text("utf-8")
)


@cache
def known_messages(program: str) -> tuple[KnownMessage, ...]:
    """Return the messages that ``program`` is known to print, in the order of their precedence."""
    install = _MESSAGES["install"][program]
    rows = (KnownMessage(**row) for row in _MESSAGES[program])
    return tuple(row._replace(remedy=row.remedy.replace("{install}", install)) for row in rows)


def find_program(program: str) -> str:
    """Return the path of ``program``: this environment's scripts first, then ``PATH``.

    Raises ``ProfilerError`` ``E_PROFILER_ABSENT`` if it is in neither.
    """
    scripts = sysconfig.get_path("scripts")
    path = shutil.which(program, path=scripts) or shutil.which(program)
    if path is None:
        reason = f"no program {program} in {scripts} or on PATH"
        problem = f"{program} is not installed: {reason}."
        remedy = _MESSAGES["install"][program]
        raise ProfilerError("E_PROFILER_ABSENT", problem, reason, remedy)
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


def describe_permissions(proc: Path = PROC) -> str:
    """Return the limits that the kernel puts on profilers here, in one line; never raises."""
    values = {name: read_system_text(proc / "sys" / name.replace(".", "/")) for name in _SYSCTLS}
    limits = [f"{name} is {value}" for name, value in values.items() if value]
    status = read_system_text(proc / "self/status")
    if effective := _EFFECTIVE.search(status):
        bits = int(effective[1], 16)
        limits += [
            f"{name} is {'held' if bits >> bit & 1 else 'not held'}"
            for name, bit in CAPABILITIES.items()
        ]
    if mode := _MODE.search(status):
        limits.append(f"{_SECCOMP[mode[1]]} is in force")
    return ", ".join(limits) or "the kernel does not report its limits"


def quote_output(output: bytes) -> str:
    """Return a tool's output on one line: without progress and backtrace, escaped, bounded."""
    text = _clean_output(output)
    shown = escape_name(text[:_SHOWN_CHARACTERS], _READ_BYTES).replace("\\x3b", ";")
    return shown if len(text) <= _SHOWN_CHARACTERS else shown.rstrip() + " …"


def _clean_output(output: bytes) -> str:
    text = _PROGRESS.sub(b"", output).split(b"Stack backtrace:", 1)[0]
    return " ".join(decode_name(text[:_READ_BYTES]).split())


def failure_error(program: str, output: bytes, returncode: int | None) -> ProfilerError:
    """Build the error for a program that ended with ``returncode`` and printed ``output``."""
    if (error := find_known_error(program, output)) is not None:
        return error
    reason = quote_output(output) or f"exit status {returncode}, no words"
    return ProfilerError("E_PROFILER_FAILED", f'{program} failed: "{reason}".', reason)


def find_known_error(program: str, output: bytes) -> ProfilerError | None:
    """Build the error for the first known message in ``output``, None if it holds none."""
    text = _clean_output(output)
    found = next((row for row in known_messages(program) if row.text in text), None)
    if found is None:
        return None
    reason, remedy = quote_output(output), found.remedy
    if found.code == "E_PROFILER_DENIED":
        remedy = f"{remedy} Here {describe_permissions()}."
    return ProfilerError(found.code, f'{program} failed: "{reason}".', reason, remedy)


def parse_wrapped(
    profiler: Profiler,
    recording: Recording,
    stderr: bytes,
    window_ns: tuple[int, int] | None = None,
) -> Profile:
    """Parse the recording of a wrapped command, as ``Profiler.parse`` does.

    An error has the cause that ``stderr`` names, the messages of the profiler and of the command.
    Without a known cause it quotes them.
    """
    try:
        return profiler.parse(recording, window_ns)
    except FlamegateError as error:
        if (cause := find_known_error(profiler.name, stderr)) is not None:
            raise cause from None
        quoted = quote_output(stderr)
        if not quoted or not isinstance(error, ProfilerError):
            raise
        problem = f'{error.problem} Its standard error says: "{quoted}".'
        raise ProfilerError(error.code, problem, error.reason, error.remedy) from None


def timeout_error(program: str, timeout_s: float, activity: str) -> ProfilerError:
    """Build the error for a program that did not finish ``activity`` in time."""
    reason = f"no answer within {timeout_s:g} s while {activity}"
    remedy = "Try again on an idle machine, or choose another profiler."
    return ProfilerError("E_PROFILER_FAILED", f"{program} hangs: {reason}.", reason, remedy)


def output_error(profiler: str, reason: str) -> ProfilerError:
    """Build the error for output that cannot be read."""
    reason = escape_name(reason.rstrip("."), _SHOWN_CHARACTERS)
    problem = f"The output of {profiler} cannot be read: {reason}."
    return ProfilerError("E_PROFILER_OUTPUT", problem, reason)


TRIAL_S = 0.2
START_TIMEOUT_S = 20.0
_SPINNER = "flamegate_spinner"
# Like a measured engine it lets any process of its user trace it (Yama), and it ends by itself.
_PROGRAM = f"""
import ctypes, sys, time
def {_SPINNER}(end):
    while time.monotonic() < end:
        sum(range(1000))
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
print("ready", flush=True)
try:
    {_SPINNER}(time.monotonic() + 60)
except KeyboardInterrupt:
    pass
"""


def try_profiler(profiler: Profiler) -> Probe:
    """Sample a small Python process for ``TRIAL_S`` seconds; never raises."""
    version = ""
    try:
        with system_errors():
            version = tool_version(find_program(profiler.name))
            profile = _sample_spinner(profiler)
            if not profile.samples:
                raise no_samples_error(profiler.name, profile.errors, profile.lost)
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
    reason = error.reason if isinstance(error, ProfilerError) else error.problem
    return Probe(name, version, code=error.code, reason=reason, remedy=error.remedy)


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

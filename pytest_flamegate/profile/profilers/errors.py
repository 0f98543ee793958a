"""Errors of profilers: a code and a remedy for the messages that the tools are known to print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.text import decode_name, escape_name

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
TRY_BY_HAND = "Run the profiler by hand on any process to see more, or choose another one."


class KnownMessage(NamedTuple):
    """A message that a tool is known to print, the code it stands for, and the remedy."""

    text: str
    code: str
    remedy: str


DISK_FULL = KnownMessage(
    "No space left on device",
    "E_PROFILER_OUTPUT",
    "Make room on the disk (TMPDIR says where recordings go), or lower the rate.",
)
GONE = KnownMessage(
    "No such process", "E_PROCESS_GONE", "The process ended before it could be sampled."
)


class ProfilerError(ToolError):
    """A profiler failed; ``reason`` is its own message on one line."""

    def __init__(self, code: str, problem: str, remedy: str, reason: str) -> None:
        super().__init__(code, problem, remedy)
        self.reason = reason


def describe_permissions(proc: Path = PROC) -> str:
    """Return the limits that the kernel puts on profilers here, in one line; never raises."""
    values = {name: _read_text(proc / "sys" / name.replace(".", "/")) for name in _SYSCTLS}
    limits = [f"{name} is {value}" for name, value in values.items() if value]
    status = _read_text(proc / "self/status")
    if effective := _EFFECTIVE.search(status):
        bits = int(effective[1], 16)
        limits += [
            f"{name} is {'held' if bits >> bit & 1 else 'not held'}"
            for name, bit in CAPABILITIES.items()
        ]
    if mode := _MODE.search(status):
        limits.append(f"{_SECCOMP[mode[1]]} is in force")
    return ", ".join(limits) or "the kernel does not report its limits"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def quote_output(output: bytes) -> str:
    """Return a tool's output on one line: without progress and backtrace, escaped, bounded."""
    text = _clean_output(output)
    shown = escape_name(text[:_SHOWN_CHARACTERS], _READ_BYTES).replace("\\x3b", ";")
    return shown if len(text) <= _SHOWN_CHARACTERS else shown.rstrip() + " …"


def failure_error(
    profiler: str, output: bytes, returncode: int | None, known: Sequence[KnownMessage]
) -> ProfilerError:
    """Build the error for a tool that ended with ``returncode`` and printed ``output``."""
    if (error := find_known_error(profiler, output, known)) is not None:
        return error
    reason = quote_output(output) or f"exit status {returncode}, no words"
    return ProfilerError(
        "E_PROFILER_FAILED", f'{profiler} failed: "{reason}".', TRY_BY_HAND, reason
    )


def find_known_error(
    profiler: str, output: bytes, known: Sequence[KnownMessage]
) -> ProfilerError | None:
    """Build the error for the first known message in ``output``, None if it holds none."""
    text = _clean_output(output)
    for message in known:
        if message.text in text:
            reason = quote_output(output)
            remedy = message.remedy
            if message.code == "E_PROFILER_DENIED":
                remedy = f"{remedy} Here {describe_permissions()}."
            return ProfilerError(message.code, f'{profiler} failed: "{reason}".', remedy, reason)
    return None


def explain_error(
    profiler: str, stderr: bytes, known: Sequence[KnownMessage], error: FlamegateError
) -> FlamegateError:
    """Return the cause of ``error`` in reading the profile of a wrapped command.

    ``stderr`` holds the messages of the profiler and of the command. Without a known cause the
    error comes back with that text quoted.
    """
    if (cause := find_known_error(profiler, stderr, known)) is not None:
        return cause
    quoted = quote_output(stderr)
    if not quoted or not isinstance(error, ProfilerError):
        return error
    problem = f'{error.problem} Its standard error says: "{quoted}".'
    return ProfilerError(error.code, problem, error.remedy, error.reason)


def timeout_error(profiler: str, timeout_s: float, activity: str) -> ProfilerError:
    """Build the error for a tool that did not finish ``activity`` in time."""
    reason = f"no answer within {timeout_s:g} s while {activity}"
    remedy = "Try again on an idle machine, or choose another profiler."
    return ProfilerError("E_PROFILER_FAILED", f"{profiler} hangs: {reason}.", remedy, reason)


def output_error(profiler: str, reason: str) -> ProfilerError:
    """Build the error for output that cannot be read."""
    reason = escape_name(reason.rstrip("."), _SHOWN_CHARACTERS)
    problem = f"The output of {profiler} cannot be read: {reason}."
    remedy = "Measure again; if it stays, report it with the version of the profiler."
    return ProfilerError("E_PROFILER_OUTPUT", problem, remedy, reason)


def _clean_output(output: bytes) -> str:
    text = _PROGRESS.sub(b"", output).split(b"Stack backtrace:", 1)[0]
    return " ".join(decode_name(text[:_READ_BYTES]).split())

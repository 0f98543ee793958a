"""What this machine lets a profiler do: two sysctls, capabilities, seccomp. Only read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.text import decode_name, escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence


PROC = Path("/proc")
CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38}
"""Those that profilers ask for, by their bit in ``CapEff``."""
_SECCOMP = {"0": "no seccomp", "1": "strict seccomp", "2": "a seccomp filter"}
_EFFECTIVE = re.compile(r"^CapEff:\s+([0-9a-f]{1,16})$", re.MULTILINE)
_MODE = re.compile(r"^Seccomp:\s+(\d)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the kernel says of this process; None where it does not say.

    ``perf_event_paranoid`` and ``ptrace_scope`` are the sysctls' own text; the second
    exists under Yama alone. ``capabilities`` are those of ``CAPABILITIES`` that are held.
    """

    perf_event_paranoid: str | None
    ptrace_scope: str | None
    capabilities: frozenset[str] | None
    seccomp: str | None

    @property
    def words(self) -> str:
        """All of it in one line, ready to be read."""
        told = []
        if self.perf_event_paranoid is not None:
            told.append(f"kernel.perf_event_paranoid is {self.perf_event_paranoid}")
        if self.ptrace_scope is not None:
            told.append(f"kernel.yama.ptrace_scope is {self.ptrace_scope}")
        if self.capabilities is not None:
            told += [
                f"{name} is {'held' if name in self.capabilities else 'not held'}"
                for name in CAPABILITIES
            ]
        if self.seccomp is not None:
            told.append(f"{self.seccomp} is in force")
        return ", ".join(told) or "the kernel does not say"


def read_permissions(proc: Path = PROC) -> Permissions:
    """Read what ``proc`` tells of this process; never raises."""
    status = _text(proc / "self/status") or ""
    effective, mode = _EFFECTIVE.search(status), _MODE.search(status)
    held = None
    if effective:
        bits = int(effective[1], 16)
        held = frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)
    return Permissions(
        perf_event_paranoid=_text(proc / "sys/kernel/perf_event_paranoid"),
        ptrace_scope=_text(proc / "sys/kernel/yama/ptrace_scope"),
        capabilities=held,
        seccomp=_SECCOMP.get(mode[1]) if mode else None,
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


ABSENT = "E_PROFILER_ABSENT"
DENIED = "E_PROFILER_DENIED"
SECCOMP = "E_PROFILER_SECCOMP"
VERSION = "E_PROFILER_VERSION"
HANGS = "E_PROFILER_HANGS"
FAILED = "E_PROFILER_FAILED"
OUTPUT = "E_PROFILER_OUTPUT"
NOT_PYTHON = "E_NOT_PYTHON"
GONE = "E_PROCESS_GONE"
RATE = "E_PROFILER_RATE"

_WORDS = 300
_READ_BYTES = 16384
_CHATTER = re.compile(
    rb"^(?:\[ perf record: .*|Events (?:en|dis)abled|py-spy> .*)\n?", re.MULTILINE
)


class KnownMessage(NamedTuple):
    """Words that a tool is known to say, the code they mean and what to do."""

    words: str
    code: str
    remedy: str


DISK_FULL = KnownMessage(
    "No space left on device",
    OUTPUT,
    "Make room on the disk (TMPDIR says where recordings go), or lower the rate.",
)


class ProfilerError(ToolError):
    """A profiler failed; ``reason`` holds its own words."""

    def __init__(self, code: str, what: str, remedy: str, reason: str) -> None:
        super().__init__(code, what, remedy)
        self.reason = reason


def quote_output(output: bytes) -> str:
    """Return what a tool said on one line: no progress, no backtrace, escaped, bounded."""
    said = _plain(output)
    shown = escape_name(said[:_WORDS], _READ_BYTES).replace("\\x3b", ";")
    return shown if len(said) <= _WORDS else shown.rstrip() + " …"


def failure_error(
    profiler: str, output: bytes, returncode: int | None, known: Sequence[KnownMessage]
) -> ProfilerError:
    """Return the error for a tool that ended with ``returncode`` and said ``output``."""
    if (error := find_known_error(profiler, output, known)) is not None:
        return error
    reason = quote_output(output) or f"exit status {returncode}, no words"
    remedy = "Run the profiler by hand on any process to see more, or choose another one."
    return ProfilerError(FAILED, f'{profiler} failed: "{reason}".', remedy, reason)


def find_known_error(
    profiler: str, output: bytes, known: Sequence[KnownMessage]
) -> ProfilerError | None:
    """Return the error that words in ``output`` stand for; None where none is known."""
    said = _plain(output)
    for entry in known:
        if entry.words in said:
            reason = quote_output(output)
            remedy = entry.remedy
            if entry.code in (DENIED, SECCOMP):
                remedy = f"{remedy} Here {read_permissions().words}."
            return ProfilerError(entry.code, f'{profiler} failed: "{reason}".', remedy, reason)
    return None


def explain_error(
    profiler: str, said: bytes, known: Sequence[KnownMessage], error: FlamegateError
) -> FlamegateError:
    """Return what explains ``error`` in reading a wrapped command's profile.

    ``said`` is the command's standard error: the profiler's words and the program's own.
    """
    if (cause := find_known_error(profiler, said, known)) is not None:
        return cause
    words = quote_output(said)
    if not words or not isinstance(error, ProfilerError):
        return error
    return ProfilerError(
        error.code,
        f'{error.problem} Its standard error says: "{words}".',
        error.remedy,
        error.reason,
    )


def timeout_error(profiler: str, timeout_s: float, doing: str) -> ProfilerError:
    """Return the error for a tool that did not finish ``doing`` in time."""
    reason = f"no answer within {timeout_s:g} s while {doing}"
    remedy = "Try again on an idle machine, or choose another profiler."
    return ProfilerError(HANGS, f"{profiler} hangs: {reason}.", remedy, reason)


def output_error(profiler: str, why: str) -> ProfilerError:
    """Return the error for output that cannot be read."""
    why = escape_name(why, _WORDS)
    remedy = "Measure again; if it stays, report it with the version of the profiler."
    return ProfilerError(OUTPUT, f"The output of {profiler} cannot be read: {why}.", remedy, why)


def _plain(output: bytes) -> str:
    said = _CHATTER.sub(b"", output).split(b"Stack backtrace:", 1)[0]
    return " ".join(decode_name(said[:_READ_BYTES]).split())

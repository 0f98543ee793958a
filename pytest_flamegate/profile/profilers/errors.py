"""Errors of profilers: a code and a remedy for the messages that the tools are known to print."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.text import decode_name, escape_name
from pytest_flamegate.profile.profilers.permissions import read_permissions

if TYPE_CHECKING:
    from collections.abc import Sequence


ABSENT = "E_PROFILER_ABSENT"
DENIED = "E_PROFILER_DENIED"
VERSION = "E_PROFILER_VERSION"
FAILED = "E_PROFILER_FAILED"
OUTPUT = "E_PROFILER_OUTPUT"
OPTION = "E_PROFILER_OPTION"
NOT_PYTHON = "E_NOT_PYTHON"
GONE = "E_PROCESS_GONE"
CANNOT_START = "E_CANNOT_START"

_SHOWN_CHARACTERS = 300
_READ_BYTES = 16384
_PROGRESS = re.compile(
    rb"^(?:\[ perf record: .*|Events (?:en|dis)abled|py-spy> .*)\n?", re.MULTILINE
)
_TRY_BY_HAND = "Run the profiler by hand on any process to see more, or choose another one."


class KnownMessage(NamedTuple):
    """A message that a tool is known to print, the code it stands for, and the remedy."""

    text: str
    code: str
    remedy: str


DISK_FULL = KnownMessage(
    "No space left on device",
    OUTPUT,
    "Make room on the disk (TMPDIR says where recordings go), or lower the rate.",
)


class ProfilerError(ToolError):
    """A profiler failed; ``reason`` is its own message on one line."""

    def __init__(self, code: str, problem: str, remedy: str, reason: str) -> None:
        super().__init__(code, problem, remedy)
        self.reason = reason


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
    return ProfilerError(FAILED, f'{profiler} failed: "{reason}".', _TRY_BY_HAND, reason)


def find_known_error(
    profiler: str, output: bytes, known: Sequence[KnownMessage]
) -> ProfilerError | None:
    """Build the error for the first known message in ``output``, None if it holds none."""
    text = _clean_output(output)
    for message in known:
        if message.text in text:
            reason = quote_output(output)
            remedy = message.remedy
            if message.code == DENIED:
                remedy = f"{remedy} Here {read_permissions().describe()}."
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
    return ProfilerError(FAILED, f"{profiler} hangs: {reason}.", remedy, reason)


def output_error(profiler: str, reason: str) -> ProfilerError:
    """Build the error for output that cannot be read."""
    reason = escape_name(reason.rstrip("."), _SHOWN_CHARACTERS)
    remedy = "Measure again; if it stays, report it with the version of the profiler."
    return ProfilerError(
        OUTPUT, f"The output of {profiler} cannot be read: {reason}.", remedy, reason
    )


def _clean_output(output: bytes) -> str:
    text = _PROGRESS.sub(b"", output).split(b"Stack backtrace:", 1)[0]
    return " ".join(decode_name(text[:_READ_BYTES]).split())

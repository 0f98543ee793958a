"""A tool's own words, and what the user can do about them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.errors import FlamegateError, ToolError
from pytest_flamegate.profile import permissions
from pytest_flamegate.profile.text import decode, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Known(NamedTuple):
    """Words that a tool is known to say, the code they mean and what to do."""

    words: str
    code: str
    todo: str


DISK_FULL = Known(
    "No space left on device",
    OUTPUT,
    "Make room on the disk (TMPDIR says where recordings go), or lower the rate.",
)


class ProfilerError(ToolError):
    """A profiler failed; ``reason`` holds its own words."""

    def __init__(self, code: str, what: str, todo: str, reason: str) -> None:
        super().__init__(code, what, todo)
        self.reason = reason


def quoted(output: bytes) -> str:
    """Return what a tool said on one line: no progress, no backtrace, escaped, bounded."""
    said = _plain(output)
    shown = escape(said[:_WORDS], _READ_BYTES).replace("\\x3b", ";")
    return shown if len(said) <= _WORDS else shown.rstrip() + " …"


def failed(
    profiler: str, output: bytes, returncode: int | None, known: Sequence[Known]
) -> ProfilerError:
    """Return the error for a tool that ended with ``returncode`` and said ``output``."""
    if (error := in_its_words(profiler, output, known)) is not None:
        return error
    reason = quoted(output) or f"exit status {returncode}, no words"
    todo = "Run the profiler by hand on any process to see more, or choose another one."
    return ProfilerError(FAILED, f'{profiler} failed: "{reason}".', todo, reason)


def in_its_words(profiler: str, output: bytes, known: Sequence[Known]) -> ProfilerError | None:
    """Return the error that words in ``output`` stand for; None where none is known."""
    said = _plain(output)
    for entry in known:
        if entry.words in said:
            reason = quoted(output)
            todo = entry.todo
            if entry.code in (DENIED, SECCOMP):
                todo = f"{todo} Here {permissions.read().words}."
            return ProfilerError(entry.code, f'{profiler} failed: "{reason}".', todo, reason)
    return None


def explained(
    profiler: str, said: bytes, known: Sequence[Known], error: FlamegateError
) -> FlamegateError:
    """Return what explains ``error`` in reading a wrapped command's profile.

    ``said`` is the command's standard error: the profiler's words and the program's own.
    """
    if (cause := in_its_words(profiler, said, known)) is not None:
        return cause
    words = quoted(said)
    if not words or not isinstance(error, ProfilerError):
        return error
    return ProfilerError(
        error.code, f'{error.what} Its standard error says: "{words}".', error.todo, error.reason
    )


def hangs(profiler: str, timeout_s: float, doing: str) -> ProfilerError:
    """Return the error for a tool that did not finish ``doing`` in time."""
    reason = f"no answer within {timeout_s:g} s while {doing}"
    todo = "Try again on an idle machine, or choose another profiler."
    return ProfilerError(HANGS, f"{profiler} hangs: {reason}.", todo, reason)


def unreadable(profiler: str, why: str) -> ProfilerError:
    """Return the error for output that cannot be read."""
    why = escape(why, _WORDS)
    todo = "Measure again; if it stays, report it with the version of the profiler."
    return ProfilerError(OUTPUT, f"The output of {profiler} cannot be read: {why}.", todo, why)


def _plain(output: bytes) -> str:
    said = _CHATTER.sub(b"", output).split(b"Stack backtrace:", 1)[0]
    return " ".join(decode(said[:_READ_BYTES]).split())

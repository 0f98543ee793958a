"""The lines that ``perf script`` prints: what a header, a frame and a loss say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.profile.normalise import native_frame
from pytest_flamegate.profile.text import decode, escape
from pytest_flamegate.profile.words import ProfilerError, unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.profile.model import Frame

NAME = "perf"
HEADER = re.compile(rb"\s*(-?\d+)/(-?\d+)\s+(\d+\.\d{6,9}):\s+([\w:.\-/]+):\s*([0-9a-f]+ .*)?")
"""Process, thread, time, event, and the only frame of a sample without a call chain."""

_LOST = re.compile(rb"PERF_RECORD_LOST(?P<samples>_SAMPLES)? lost (?:samples )?(?P<count>\d{1,18})")
_FRAME = re.compile(rb"\t *[0-9a-f]+ (.*)", re.DOTALL)
_PID_DIGITS = 10
_SECOND_DIGITS = 12


class Loss(NamedTuple):
    """Samples lost: told by a kernel that counts them, or of a chunk that was overwritten."""

    samples: int
    counted: bool


def header(line: bytes) -> re.Match[bytes]:
    """Match a header. Raises ``ProfilerError`` where the line is none or out of range."""
    found = HEADER.fullmatch(line.rstrip())
    if found is None:
        raise unexpected(line)
    if len(found[1]) > _PID_DIGITS or found[3].index(b".") > _SECOND_DIGITS:
        raise unreadable(NAME, "a process id or time is out of range")
    return found


def nanoseconds(time: bytes) -> int:
    """Return a header's time in nanoseconds."""
    seconds, _, fraction = time.partition(b".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))


def loss(line: bytes) -> Loss | None:
    """Return what a line between samples says of lost ones; None where it says nothing."""
    found = _LOST.search(line)
    return Loss(int(found["count"]), found["samples"] is not None) if found else None


def frame_text(line: bytes) -> bytes:
    """Return what follows the address in a frame's line. Raises ``ProfilerError``."""
    found = _FRAME.fullmatch(line.rstrip(b"\n"))
    if found is None:
        raise unexpected(line)
    return found[1]


def frame(described: bytes, roots: Sequence[str]) -> Frame | None:
    """Return the frame of what follows an address; None for a trampoline."""
    text = decode(described)
    # Symbols and paths may hold " (" themselves; a path starts with "/" or "[".
    at = max(text.rfind(" (/"), text.rfind(" (["))
    if at < 0:
        at = text.rfind(" (")
    if at < 0 or not text.endswith(")"):
        return native_frame(text, "", roots)
    return native_frame(text[:at], text[at + 2 : -1], roots)


def unexpected(line: bytes) -> ProfilerError:
    """Return the refusal of a line that is none of perf's."""
    return unreadable(NAME, f"unexpected line {escape(decode(line.strip()))!r}")

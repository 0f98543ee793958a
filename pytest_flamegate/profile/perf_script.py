"""Reading what ``perf script`` prints.

One sample is a header line, its frames from leaf to root, and an empty line. Equal
frames come thousands of times, so everything after the address is looked up in a cache
as bytes before anything is decoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.profile.normalise import UNKNOWN, native_frame
from pytest_flamegate.profile.text import decode, escape
from pytest_flamegate.profile.words import ProfilerError, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flamegate.profile.model import Frame, Stack

FIELDS = "pid,tid,time,event,ip,sym,dso"
"""No ``comm``: a process names itself, and may put a line break in it."""

NAME = "perf"
_HEADER = re.compile(rb"\s*(-?\d+)/(-?\d+)\s+(\d+)\.(\d{6,9}):\s+([\w:.\-/]+):\s*([0-9a-f]+ .*)?")
_LOST = re.compile(rb"PERF_RECORD_LOST(?P<samples>_SAMPLES)? lost (?:samples )?(?P<count>\d{1,18})")
_FRAME = re.compile(rb"\t *[0-9a-f]+ (.*)", re.DOTALL)
_ADDRESS_END = 18


@dataclass(slots=True)
class Script:
    """What was read so far: stacks with samples, losses, processes, times."""

    stacks: dict[Stack, int] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    first_ns: int | None = None
    last_ns: int = 0
    lost_chunks: int = 0
    lost_samples: int = 0
    window_ns: tuple[int, int] | None = None
    inside: bool = True

    @property
    def span_ns(self) -> int:
        """Time from the first sample to the last, in nanoseconds."""
        return 0 if self.first_ns is None else max(self.last_ns - self.first_ns, 0)

    @property
    def lost(self) -> int:
        """Samples lost: kernels that count them count the same loss in the chunks."""
        return max(self.lost_chunks, self.lost_samples)


def parse_script(
    lines: Iterable[bytes],
    roots: Sequence[str] = (),
    window_ns: tuple[int, int] | None = None,
) -> Script:
    """Read lines of ``perf script -F FIELDS --show-lost-events``.

    Of samples outside ``window_ns``, first and last time in nanoseconds, nothing is kept.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` at a line that is none of perf's, and
    where the last sample is cut off.
    """
    script = Script(window_ns=window_ns)
    cache: dict[bytes, Frame | None] = {}
    frames: list[Frame] = []
    inside = False
    for line in lines:
        if inside and line.startswith(b"\t"):
            key = line[_ADDRESS_END:]
            if key not in cache:
                cache[key] = _frame(line, roots)
            frame = cache[key]
            if frame is not None:
                frames.append(frame)
        elif line.strip():
            if inside:
                raise _unexpected(line)
            inside = _header(script, line, roots)
        elif inside:
            _add(script, frames)
            frames, inside = [], False
    if inside:
        raise unreadable(NAME, "the last sample is cut off")
    return script


def _header(script: Script, line: bytes, roots: Sequence[str]) -> bool:
    """Read a line between samples; True if it is a header that frames follow."""
    if found := _LOST.search(line):
        count = int(found["count"])
        script.lost_samples += count if found["samples"] else 0
        script.lost_chunks += 0 if found["samples"] else count
        return False
    header = _HEADER.fullmatch(line.rstrip())
    if header is None:
        raise _unexpected(line)
    _note(script, header)
    if header[6] is None:
        return True
    frame = _frame(b"\t" + header[6], roots)
    _add(script, [frame] if frame else [])
    return False


def _frame(line: bytes, roots: Sequence[str]) -> Frame | None:
    found = _FRAME.fullmatch(line.rstrip(b"\n"))
    if found is None:
        raise _unexpected(line)
    text = decode(found[1])
    # Symbols and paths may hold " (" themselves; a path starts with "/" or "[".
    at = max(text.rfind(" (/"), text.rfind(" (["))
    if at < 0:
        at = text.rfind(" (")
    if at < 0 or not text.endswith(")"):
        return native_frame(text, "", roots)
    return native_frame(text[:at], text[at + 2 : -1], roots)


def _add(script: Script, leaf_first: list[Frame]) -> None:
    if not script.inside:
        return
    stack: list[Frame] = []
    for frame in reversed(leaf_first):
        # Frames that lost their address tell nothing apart: one stands for a run of them.
        if not (stack and frame == stack[-1] and frame.name.startswith("[")):
            stack.append(frame)
    key = tuple(stack) or (UNKNOWN,)
    script.stacks[key] = script.stacks.get(key, 0) + 1


def _note(script: Script, header: re.Match[bytes]) -> None:
    if len(header[1]) > 10 or len(header[3]) > 12:
        raise unreadable(NAME, "a process id or time is out of range")
    at_ns = int(header[3]) * 10**9 + int(header[4].ljust(9, b"0"))
    if script.window_ns is not None:
        script.inside = script.window_ns[0] <= at_ns <= script.window_ns[1]
        if not script.inside:
            return
    script.pids.add(int(header[1]))
    if script.first_ns is None:
        script.first_ns = at_ns
    script.last_ns = max(script.last_ns, at_ns)


def _unexpected(line: bytes) -> ProfilerError:
    return unreadable(NAME, f"unexpected line {escape(decode(line.strip()))!r}")

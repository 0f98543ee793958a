"""What ``perf script`` prints, read in the plainest way: line by line, and nothing kept."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame
from pytest_flamegate.profile.model import Frame, Stack

HEADER = re.compile(rb"\s*(-?\d+)/-?\d+\s+(\d+)\.(\d{6,9}):\s+[\w:.\-/]+:\s*([0-9a-f]+ .*)?")
LOST = re.compile(rb"PERF_RECORD_LOST(_SAMPLES)? lost (?:samples )?(\d{1,18})")
FRAME = re.compile(rb"\t *[0-9a-f]+ (.*)", re.DOTALL)


class Refused(Exception):  # noqa: N818
    """It is none of perf's output."""


@dataclass
class Plain:
    """What ``Script`` holds."""

    window_ns: tuple[int, int] | None
    stacks: Counter[Stack] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    times: list[int] = field(default_factory=list)
    lost: Counter[bool] = field(default_factory=Counter)
    sample: tuple[int, int, list[Frame | None]] | None = None

    def line(self, line: bytes) -> None:
        if self.sample is not None and line.startswith(b"\t"):
            self.sample[2].append(frame(line))
        elif not line.strip():
            self.ended()
        elif self.sample is not None:
            raise Refused
        elif lost := LOST.search(line):
            self.lost[lost[1] is not None] += int(lost[2])
        else:
            self.header(line)

    def header(self, line: bytes) -> None:
        found = HEADER.fullmatch(line.rstrip())
        if found is None or len(found[1]) > 10 or len(found[2]) > 12:
            raise Refused
        at_ns = int(found[2]) * 10**9 + int(found[3].ljust(9, b"0"))
        self.sample = (int(found[1]), at_ns, [])
        if found[4] is not None:
            self.line(b"\t" + found[4])
            self.ended()

    def ended(self) -> None:
        if self.sample is None:
            return
        pid, at_ns, leaf_first = self.sample
        self.sample = None
        if self.window_ns and not self.window_ns[0] <= at_ns <= self.window_ns[1]:
            return
        stack: list[Frame] = []
        for each in reversed(leaf_first):
            again = stack and each == stack[-1] and each.name.startswith("[")
            if each is not None and not again:
                stack.append(each)
        self.stacks[tuple(stack) or (UNKNOWN,)] += 1
        self.pids.add(pid)
        self.times.append(at_ns)


def plain(text: bytes, window_ns: tuple[int, int] | None = None) -> Plain | None:
    """Read it; None where it is to be refused."""
    found = Plain(window_ns)
    lines = text.split(b"\n")
    try:
        for line in lines if lines[-1] else lines[:-1]:
            found.line(line)
    except Refused:
        return None
    return found if found.sample is None else None


def frame(line: bytes) -> Frame | None:
    """Return the frame of ``address symbol (library)``."""
    described = FRAME.fullmatch(line)
    if described is None:
        raise Refused
    text = described[1].decode("utf-8", "surrogateescape")
    at = max(text.rfind(" (/"), text.rfind(" (["))
    at = text.rfind(" (") if at < 0 else at
    if at < 0 or not text.endswith(")"):
        return make_native_frame(text, "")
    return make_native_frame(text[:at], text[at + 2 : -1])

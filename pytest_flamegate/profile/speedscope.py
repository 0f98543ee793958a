"""What py-spy writes, in speedscope's format: how often each stack of a thread was sampled.

Unlike py-spy's ``raw`` text it keeps names apart from what separates them: a function
called ``a;b (c.py:1)`` stays one frame.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.profile.normalise import UNKNOWN, native_frame, python_frame
from pytest_flamegate.profile.speedscope_file import SpeedscopeError, parse_speedscope_file
from pytest_flamegate.profile.words import unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.profile.model import Frame, Stack
    from pytest_flamegate.profile.speedscope_file import FrameText, SpeedscopeFile

NAME = "py-spy"
_THREAD = re.compile(r'Thread (\d{1,10}) "(.*)"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Stacks and their samples, the thread ids seen, and the length of the recording."""

    stacks: Mapping[Stack, int]
    threads: tuple[int, ...]
    duration_ns: int


def parse_speedscope(raw: bytes, roots: Sequence[str] = (), *, native: bool = False) -> Sampled:
    """Parse the bytes of py-spy's file. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``.

    ``native`` says that native frames stand among Python's: they have no line.
    """
    try:
        return count_samples(parse_speedscope_file(raw), roots, native=native)
    except SpeedscopeError as error:
        raise unreadable(NAME, error.why) from None


def count_samples(file: SpeedscopeFile, roots: Sequence[str], *, native: bool) -> Sampled:
    """Return what py-spy sampled; ``native`` is as for ``parse_speedscope``."""
    frames = [_frame(text, roots, native=native) for text in file.frames]
    stacks: dict[Stack, int] = {}
    threads = []
    for track in file.tracks:
        for path, count in track.samples.items():
            stack = _stack([frames[index] for index in path])
            stacks[stack] = stacks.get(stack, 0) + count
        if found := _THREAD.fullmatch(track.name):
            threads.append(int(found.group(1)))
    longest_s = max((track.length for track in file.tracks), default=0)
    return Sampled(stacks, tuple(sorted(threads)), round(longest_s * 1e9))


def _frame(text: FrameText, roots: Sequence[str], *, native: bool) -> Frame | None:
    name, file, line = text
    if native and not line and not file.endswith(".py") and not file.startswith("<"):
        return native_frame(name, "" if file == "?" else file, roots)
    return python_frame(name, file, roots)


def _stack(root_first: Sequence[Frame | None]) -> Stack:
    stack: list[Frame] = []
    for frame in root_first:
        # Frames that lost their address tell nothing apart: one stands for a run of them.
        nameless = frame is not None and frame.kind == "native" and frame.name.startswith("[")
        if frame is not None and not (nameless and stack and frame == stack[-1]):
            stack.append(frame)
    # A thread that has no Python frame at this moment is sampled all the same.
    return tuple(stack) or (UNKNOWN,)

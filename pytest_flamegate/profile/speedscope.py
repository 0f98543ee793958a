"""Reading py-spy's speedscope file.

Unlike py-spy's ``raw`` text it keeps names apart from what separates them: a function
called ``a;b (c.py:1)`` stays one frame.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_flamegate.profile.normalise import UNKNOWN, native_frame, python_frame
from pytest_flamegate.profile.words import unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.profile.model import Frame, Stack

NAME = "py-spy"
_THREAD = re.compile(r'Thread (\d{1,10}) "(.*)"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Stacks and their samples, the thread ids seen, and the length of the recording."""

    stacks: Mapping[Stack, int]
    threads: tuple[int, ...]
    duration_ns: int


def parse_speedscope(raw: bytes, roots: Sequence[str] = (), *, native: bool = False) -> Sampled:
    """Parse the bytes of a speedscope file. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``.

    ``native`` says that native frames stand among Python's: they have no line.
    """
    try:
        data: Any = json.loads(raw, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise unreadable(NAME, f"no JSON ({error})") from None
    try:
        frames = [_frame(frame, roots, native=native) for frame in data["shared"]["frames"]]
        stacks: dict[Stack, int] = {}
        threads, longest_s = [], 0.0
        for profile in data["profiles"]:
            _count(profile["samples"], frames, stacks)
            longest_s = max(longest_s, sum(map(float, profile["weights"])))
            if found := _THREAD.fullmatch(_text(profile["name"])):
                threads.append(int(found.group(1)))
        return Sampled(stacks, tuple(sorted(threads)), round(longest_s * 1e9))
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise unreadable(NAME, f"not what py-spy writes ({error!r})") from None


def _frame(frame: Any, roots: Sequence[str], *, native: bool) -> Frame | None:
    name, file = _text(frame["name"]), _text(frame["file"])
    if native and not frame["line"] and not file.endswith(".py") and not file.startswith("<"):
        return native_frame(name, "" if file == "?" else file, roots)
    return python_frame(name, file, roots)


def _count(samples: Any, frames: Sequence[Frame | None], stacks: dict[Stack, int]) -> None:
    indices: dict[tuple[int, ...], int] = {}
    for sample in samples:
        key = tuple(sample)
        indices[key] = indices.get(key, 0) + 1
    for key, count in indices.items():
        if any(type(index) is not int or index < 0 for index in key):
            raise ValueError("a sample holds no frame numbers")
        stack = _stack([frames[index] for index in key])
        stacks[stack] = stacks.get(stack, 0) + count


def _stack(root_first: Sequence[Frame | None]) -> Stack:
    stack: list[Frame] = []
    for frame in root_first:
        # Frames that lost their address tell nothing apart: one stands for a run of them.
        nameless = frame is not None and frame.kind == "native" and frame.name.startswith("[")
        if frame is not None and not (nameless and stack and frame == stack[-1]):
            stack.append(frame)
    # A thread that has no Python frame at this moment is sampled all the same.
    return tuple(stack) or (UNKNOWN,)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value

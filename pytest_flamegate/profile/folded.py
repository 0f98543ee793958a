"""Folded stacks: one line a stack, frames from root to leaf, then its samples.

``root [lib.so];function (module.py);copy [kernel] 12``: Python frames in round
brackets, native ones in square brackets, the kernel's always ``[kernel]``. The text is
sorted, so that equal profiles are equal bytes, and reads back to the very same frames.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ReceiptError, ToolError
from pytest_flamegate.core.text import escape_name, is_clean
from pytest_flamegate.profile.frames import KERNEL
from pytest_flamegate.profile.model import Frame, FrameKind, Profile, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


_COUNT_DIGITS = 15


@lru_cache(maxsize=65536)
def format_frame(frame: Frame) -> str:
    """Return how a frame is written.

    Raises ``ToolError`` ``E_FRAME_NAME`` for a frame that was not normalised, and
    would not read back as itself.
    """
    opening, closing = ("(", ")") if frame.kind == "python" else ("[", "]")
    text = f"{frame.name} {opening}{frame.module}{closing}"
    if is_clean(text) and _frame(text) == frame:
        return text
    raise ToolError(
        "E_FRAME_NAME",
        f"The frame {escape_name(repr(tuple(frame)))} cannot be written down.",
        "Frames come from normalise.py, which escapes what is unsafe; report this.",
    )


def fold_profile(profile: Profile) -> str:
    """Return the profile's stacks as folded text, sorted, each line ending in a newline."""
    lines = sorted(
        f"{';'.join(map(format_frame, stack))} {samples}\n"
        for stack, samples in profile.stacks.items()
    )
    return "".join(lines)


def parse_folded(text: str) -> Mapping[Stack, int]:
    """Read folded text back. Raises ``ReceiptError`` ``E_FOLDED`` where it is malformed."""
    if text and not text.endswith("\n"):
        raise _malformed(text.count("\n") + 1, "the last line is cut off")
    stacks: dict[Stack, int] = {}
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        path, separator, count = line.rpartition(" ")
        if not separator or not _is_count(count):
            raise _malformed(number, "it does not end in a number of samples")
        frames = [_frame(part) for part in path.split(";")] if path else []
        stack = tuple(frame for frame in frames if frame is not None)
        if len(stack) != len(frames) or not is_clean(path.replace(";", "")):
            raise _malformed(number, "it holds a frame that flamegate does not write")
        if stack in stacks:
            raise _malformed(number, "its stack occurred before")
        stacks[stack] = int(count)
    return stacks


@lru_cache(maxsize=65536)
def _frame(text: str) -> Frame | None:
    if text.endswith(")"):
        return _split(text, " (", "python")
    if text.endswith(f" [{KERNEL}]"):
        return _split(text, " [", "system")
    return _split(text, " [", "native") if text.endswith("]") else None


def _split(text: str, separator: str, kind: FrameKind) -> Frame | None:
    name, found, module = text[:-1].rpartition(separator)
    return Frame(name, module, kind) if found else None


def _is_count(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS
    return digits and not text.startswith("0")


def _malformed(number: int, why: str) -> ReceiptError:
    return ReceiptError(
        "E_FOLDED",
        f"Line {number} of the folded profile is malformed: {why}.",
        "Restore the file from version control, or measure again.",
    )

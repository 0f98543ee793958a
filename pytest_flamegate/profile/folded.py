"""Folded stacks in flamegate's own notation: one line a stack, root to leaf, then its count.

``root [lib.so];function (module.py);copy [kernel] 12``: Python frames in round brackets, native
ones in square brackets, those of the kernel always ``[kernel]``. The text is sorted, so that
equal profiles are equal bytes, and it reads back to the very same frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import is_clean
from pytest_flamegate.profile.frames import KERNEL
from pytest_flamegate.profile.model import Frame, FrameKind, Profile, Stack

CODE = "E_PROFILE_FILE"
_COUNT_DIGITS = 15


@lru_cache(maxsize=65536)
def format_frame(frame: Frame) -> str:
    """Return the notation of a frame, for example ``gemv (kernels.py)``.

    Raises ValueError for a frame that is not normalised, and would not read back as itself.
    """
    opening, closing = ("(", ")") if frame.kind == "python" else ("[", "]")
    text = f"{frame.name} {opening}{frame.module}{closing}"
    if is_clean(text) and _parse_frame(text) == frame:
        return text
    raise ValueError(f"{tuple(frame)!a} is not normalised")


def fold_profile(profile: Profile) -> str:
    """Return the profile's stacks as folded text, sorted, each line ending in a newline."""
    lines = sorted(
        f"{';'.join(map(format_frame, stack))} {samples}\n"
        for stack, samples in profile.stacks.items()
    )
    return "".join(lines)


def parse_folded(text: str) -> Mapping[Stack, int]:
    """Return the stacks of folded text. Raises ``ReceiptError`` ``E_PROFILE_FILE``."""
    if text and not text.endswith("\n"):
        raise _malformed(text.count("\n") + 1, "the last line is cut off")
    stacks: dict[Stack, int] = {}
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        path, separator, count = line.rpartition(" ")
        if not separator or not _is_count(count):
            raise _malformed(number, "it does not end in a number of samples")
        frames = [_parse_frame(part) for part in path.split(";")] if path else []
        stack = tuple(frame for frame in frames if frame is not None)
        if len(stack) != len(frames) or not is_clean(path.replace(";", "")):
            raise _malformed(number, "it holds a frame that flamegate does not write")
        if stack in stacks:
            raise _malformed(number, "its stack occurred before")
        stacks[stack] = int(count)
    return stacks


@lru_cache(maxsize=65536)
def _parse_frame(text: str) -> Frame | None:
    if text.endswith(")"):
        return _split_frame(text, " (", "python")
    if text.endswith(f" [{KERNEL}]"):
        return _split_frame(text, " [", "system")
    return _split_frame(text, " [", "native") if text.endswith("]") else None


def _split_frame(text: str, separator: str, kind: FrameKind) -> Frame | None:
    name, found, module = text[:-1].rpartition(separator)
    return Frame(name, module, kind) if found else None


def _is_count(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS
    return digits and not text.startswith("0")


def _malformed(number: int, reason: str) -> ReceiptError:
    return ReceiptError(
        CODE,
        f"Line {number} of the folded profile is malformed: {reason}.",
        "Restore the file from version control, or measure again.",
    )

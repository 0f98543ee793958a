"""Reading Tachyon's collapsed stacks: ``tid:7;engine.py:decode:12;<GC> 3``, root first.

A frame is the file's base name, the function and the line, or the bare name of a frame
that is no function: ``<GC>``, ``<native>``. Lines of one function are one frame here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_flamegate.profile.normalise import python_frame
from pytest_flamegate.profile.words import unreadable

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Frame, Stack

NAME = "tachyon"
_LINE = re.compile(r"tid:\d{1,20};(.+) ([1-9]\d{0,14})")
_FUNCTION = re.compile(r"(.*?):(.+):-?\d{1,9}")


def parse_collapsed(content: bytes) -> dict[Stack, int]:
    """Return the samples of each stack, threads taken together.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` where a line is none that Tachyon writes.
    """
    stacks: dict[Stack, int] = {}
    for number, line in enumerate(content.decode("utf-8", "surrogateescape").split("\n"), 1):
        if not line:
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise unreadable(NAME, f"line {number} is no collapsed stack")
        stack = tuple(map(_frame, found[1].split(";")))
        stacks[stack] = stacks.get(stack, 0) + int(found[2])
    return stacks


@lru_cache(maxsize=65536)
def _frame(text: str) -> Frame:
    # A frozen module's name and a lambda's hold no colon, and a line number is always last.
    found = _FUNCTION.fullmatch(text)
    return python_frame(found[2], found[1]) if found is not None else python_frame(text, "")

"""Folded stacks of other tools: ``a;b;c 12``, one stack a line."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.foreign_frame import frame_reader
from pytest_flamegate.profile.imported import Gathered, foreign_profile
from pytest_flamegate.profile.normalise import UNKNOWN
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_flamegate.profile.model import Profile

_CODE = "E_FOLDED"
_TODO = "Write the stacks again, one a line: frames apart by ;, then a space and a count."
_COUNT = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})?")
_SHOWN = 60


def parse_foreign_folded(text: str, roots: Sequence[str] = ()) -> Profile:
    """Read folded text that another tool wrote.

    Line numbers, process ids and addresses are taken out of the frames, and equal stacks
    added up. Raises ``ReceiptError`` ``E_FOLDED`` at a malformed line and where counts are
    negative, too large or fractions that cannot be rounded.
    """
    read = frame_reader(tuple(roots))
    # Equal lines are added up first: each different path is looked at once.
    counts: dict[str, float] = {}
    for number, line in _lines(text):
        path, count = _split(number, line)
        counts[path] = counts.get(path, 0) + count
    gathered = Gathered(_CODE)
    for path, count in counts.items():
        frames = (read(part.strip()) for part in path.split(";"))
        stack = tuple(frame for frame in frames if frame is not None)
        gathered.add(stack or (UNKNOWN,), count)
    if counts and all(_COUNT.fullmatch(path.rpartition(" ")[2]) for path in counts):
        raise ReceiptError(
            _CODE,
            "Every line ends in two counts: this is the difference of two profiles.",
            "Import each of the two by itself, and compare them with flamegate diff.",
        )
    stacks, notes = gathered.counts()
    told = ["imported folded stacks tell neither profiler, event, rate nor unit", *notes]
    if not text.endswith("\n"):
        told.append("the last line has no end, and its count may be cut off")
    return foreign_profile(stacks, told)


def is_folded(text: str) -> bool:
    """Whether the first line that is no comment ends in a count."""
    first = next(_lines(text), (0, ""))[1]
    return _COUNT.fullmatch(first.replace("\t", " ").rpartition(" ")[2].lstrip("-")) is not None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start, number = 0, 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        number += 1
        line = text[start:end].rstrip(" \t\r")
        start = end + 1
        if line and line != "#" and not line.startswith("# "):
            yield number, line


def _split(number: int, line: str) -> tuple[str, float]:
    path, separator, count = line.replace("\t", " ").rpartition(" ")
    if not separator or not _COUNT.fullmatch(count):
        shown = escape(line[-_SHOWN:]).replace("\\x3b", ";")
        raise ReceiptError(
            _CODE, f'Line {number} of the folded stacks does not end in a count: "{shown}".', _TODO
        )
    if count.isdigit():
        return path, int(count)
    value = float(count)
    if not math.isfinite(value):
        raise ReceiptError(_CODE, f"The count of line {number} is too large.", _TODO)
    return path, value

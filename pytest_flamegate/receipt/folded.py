"""Folded stacks as text, read back into counts by function.

One line a stack: labels joined by ``;``, a space, a count. A label is ``name (module.py)``
for Python, ``name [lib.so]`` for native code, ``name [kernel]`` for the system.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.findings import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Folded:
    """Samples in all, by leaf name and by name anywhere in a stack (once a stack).

    ``problems`` names the lines that are no stack, in words.
    """

    samples: int
    self_samples: Mapping[str, int]
    inclusive_samples: Mapping[str, int]
    problems: tuple[str, ...]


def read_folded(data: bytes) -> Folded:
    """Return what the folded text ``data`` holds; never raises."""
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    problems: list[str] = []
    samples = 0
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        return Folded(0, {}, {}, (f"It is not UTF-8: byte {error.start} cannot be decoded.",))
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        stack, _, digits = line.rpartition(" ")
        count = int(digits) if _is_count(digits) else 0
        labels = stack.split(";")
        if not count or not all(labels):
            problems.append(f"Line {number} is no folded stack: {shown(line)}.")
            continue
        names = [name_of(label) for label in labels]
        samples += count
        own[names[-1]] += count
        for name in set(names):
            inclusive[name] += count
    return Folded(samples, own, inclusive, tuple(problems))


def name_of(label: str) -> str:
    """Return the function's name of a frame label, without its module."""
    for opening, closing in ((" (", ")"), (" [", "]")):
        if label.endswith(closing):
            name, _, _ = label.rpartition(opening)
            if name:
                return name
    return label


def _is_count(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS

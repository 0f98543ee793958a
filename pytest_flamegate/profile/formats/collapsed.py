"""Read folded stacks of other tools: py-spy's raw format, perf's and inferno's collapsers.

A line is a stack, frames separated by ``;``, and a count. The text of a frame has no grammar that
all tools share: this module knows the habits of the tools above, and takes any other text for a
native function.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.frames import CODE, UNKNOWN, make_native_frame, make_python_frame
from pytest_flamegate.profile.model import Frame, Profile, Stack

MAX_DEPTH = 2048
"""Frames of one stack; Python itself ends recursion at about a thousand."""
MAX_FRAMES = 4_000_000
"""Frames of all different stacks together."""
MAX_COUNT = 10**15 - 1
"""The largest count that a line of folded text holds."""
UNKNOWN_TEXT = "unknown"
_NOTABLE_ROUNDING = 1e-6
_MOST_ROUNDING = 0.01


@dataclass(slots=True)
class WeightedStacks:
    """Weights by stack, as they come out of a file; ``code`` is that of its errors."""

    code: str
    weights: dict[Stack, float] = field(default_factory=dict)
    frames: int = 0

    def add(self, stack: Stack, weight: float) -> None:
        """Add ``weight`` (finite, 0 or more) to ``stack``.

        Raises ``ReceiptError`` if a stack, or all stacks together, hold too many frames.
        """
        present = self.weights.get(stack)
        if present is not None:
            self.weights[stack] = present + weight
            return
        self.frames += len(stack)
        if len(stack) > MAX_DEPTH or self.frames > MAX_FRAMES:
            raise ReceiptError(
                self.code,
                f"A stack is deeper than {MAX_DEPTH:,} frames, or all stacks together hold more "
                f"than {MAX_FRAMES:,}.",
                "Record a shorter time, or cut stacks where the tool records them.",
            )
        self.weights[stack] = weight

    def to_counts(self) -> tuple[dict[Stack, int], tuple[str, ...]]:
        """Return whole counts, and a note if they were rounded.

        Raises ``ReceiptError`` if rounding would change shares or a count is too large, and
        ``UndecidedError`` ``E_NO_SAMPLES`` if all weights are zero.
        """
        weights = {stack: weight for stack, weight in self.weights.items() if weight}
        if not weights:
            raise UndecidedError(
                "E_NO_SAMPLES", "The file holds no samples.", "Record for a longer time."
            )
        if not all(value <= MAX_COUNT for value in weights.values()):
            raise ReceiptError(
                self.code,
                f"A stack counts more than {MAX_COUNT:,}.",
                "Write the counts in a larger unit.",
            )
        whole = {stack: round(value) for stack, value in weights.items()}
        moved = math.fsum(abs(value - whole[stack]) for stack, value in weights.items())
        share = moved / math.fsum(weights.values())
        if share > _MOST_ROUNDING:
            raise ReceiptError(
                self.code,
                "Its counts are fractions, and rounded ones would be other shares.",
                "Write whole counts, or the weights in a smaller unit.",
            )
        notes = ("counts rounded to whole ones",) if share > _NOTABLE_ROUNDING else ()
        return {stack: count for stack, count in whole.items() if count}, notes


def make_foreign_profile(stacks: dict[Stack, int], notes: Sequence[str], **stated: Any) -> Profile:
    """Return the profile of a file that states only the fields ``stated``, and no others."""
    unknown = dict.fromkeys(("profiler", "event", "call_graph"), UNKNOWN_TEXT)
    fields = {**unknown, "profiler_version": "", "covers": "process", **stated}
    return Profile(stacks=stacks, complete=sum(stacks.values()), degraded=tuple(notes), **fields)


_KALLSYMS, _JIT_MAP = "[kernel.kallsyms]", "/perf-0.map"
_SUFFIXES = {"_[k]": _KALLSYMS, "_[j]": _JIT_MAP, "_[i]": ""}
"""Collapsers mark a name this way: kernel, just-in-time code, inlined."""
_PLACED = re.compile(r"(?P<name>.*) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)", re.DOTALL)
_IN_LIBRARY = re.compile(r"(?P<name>.*) \[(?P<library>[^\[\]\s]+)\]", re.DOTALL)
_LIBRARY_ALONE = re.compile(r"\[(\[?[^\[\]]+\]?)\]")
_PROCESS = re.compile(r'process \d+(?::".*")?', re.DOTALL)
_THREAD = re.compile(r"thread \((?:0x[0-9A-Fa-f]+|\d+)\)(?:: (?P<name>.*))?", re.DOTALL)
_PYTHON_FILE = re.compile(r"<.*>|.*\.py[ixw]?", re.DOTALL)
_NATIVE_FILE = re.compile(
    r".*(?:\.so\b|\.(?:c|cc|cpp|cxx|h|hpp|rs|go|cu|f|f90|s|S|dylib|dll|exe)$)"
)
_LONGEST_NAME = 1024
"""A longer text matches no pattern of a name: it is cut and kept as it is."""
_KERNEL = re.compile(r"(?:guest\.)?kernel(?:\.(?:kallsyms|vmlinux).*)?")
_ADDRESS = re.compile(r"0x[0-9A-Fa-f]+")
_NUMBERED = re.compile(r"(?:.*:)?\d+|0x[0-9A-Fa-f]+", re.DOTALL)
_COUNT = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})?")
_SHOWN = 60
_REMEDY = "Write the stacks again, one a line: frames separated by ;, then a space and a count."


def is_foreign_frame(frame: Frame) -> bool:
    """Whether flamegate never writes ``frame``, which was parsed from its own notation.

    It has a line number, an address, an absolute path, or a library in the brackets of Python.
    """
    if frame.module.startswith("/") or _ADDRESS.fullmatch(frame.name):
        return True
    if frame.kind != "python" or _PYTHON_FILE.fullmatch(frame.module):
        return False
    return bool(_NUMBERED.fullmatch(frame.module) or _NATIVE_FILE.match(frame.module))


def make_frame_reader(roots: tuple[str, ...] = ()) -> Callable[[str], Frame | None]:
    """Return a function from the text of a frame to the frame; None for a trampoline.

    Paths below one of ``roots`` become relative.
    """
    return lru_cache(maxsize=65536)(lambda text: _read_frame(text, roots))


def _read_frame(text: str, roots: tuple[str, ...]) -> Frame | None:
    if not text:
        return UNKNOWN
    if len(text) > _LONGEST_NAME:
        return Frame(escape_name(text), "unknown", "native")
    if (library := _SUFFIXES.get(text[-4:])) is not None:
        return make_native_frame(text[:-4], library, roots)
    if text.startswith("py::"):
        return make_native_frame(text, _JIT_MAP, roots)
    if _PROCESS.fullmatch(text):
        return make_native_frame("process", "")
    if thread := _THREAD.fullmatch(text):
        return make_native_frame(f"thread {thread['name'] or ''}".strip(), "")
    return _read_placed(text, roots)


def _read_placed(text: str, roots: tuple[str, ...]) -> Frame | None:
    """Return the frame of a name with or without a file or library behind it."""
    if placed := _PLACED.fullmatch(text):
        name, file, line = placed.groups()
        if _PYTHON_FILE.fullmatch(file) or _NATIVE_FILE.match(file) or line or "/" in file:
            return make_placed_frame(name, file, roots, has_line=line is not None)
    elif inside := _IN_LIBRARY.fullmatch(text):
        return make_native_frame(inside["name"], _library(inside["library"]), roots)
    elif alone := _LIBRARY_ALONE.fullmatch(text):
        return make_native_frame("", _library(alone[1]), roots)
    return make_native_frame(text, "", roots)


def make_placed_frame(
    name: str, file: str, roots: tuple[str, ...] = (), *, has_line: bool = False
) -> Frame | None:
    """Return the frame of a function in ``file``.

    It is Python's if the file is, or if it has a line and the file is no source or library of
    another language.
    """
    if len(name) > _LONGEST_NAME:
        name = escape_name(name)
    if _PYTHON_FILE.fullmatch(file) or (has_line and not _NATIVE_FILE.match(file)):
        return make_python_frame(name, file, roots)
    return make_native_frame(name, _library(file), roots)


def _library(module: str) -> str:
    """Return a module in perf's notation: the kernel in brackets, ``unknown`` as no module."""
    if _KERNEL.fullmatch(module):
        return _KALLSYMS
    return "" if module in ("unknown", "?") else module


def read_collapsed(text: str, roots: Sequence[str] = ()) -> Profile:
    """Return the profile in folded text of another tool.

    Line numbers, process ids and addresses are removed from the frames, and equal stacks added
    up. Raises ``ReceiptError`` ``E_PROFILE_FILE`` at a malformed line, and if counts are negative,
    too large, or fractions that cannot be rounded.
    """
    read = make_frame_reader(tuple(roots))
    # Equal lines are added up first, so that each different path is parsed once.
    counts: dict[str, float] = {}
    for number, line in _lines(text):
        path, count = _split_line(number, line)
        counts[path] = counts.get(path, 0) + count
    weighted = WeightedStacks(CODE)
    for path, count in counts.items():
        frames = (read(part.strip()) for part in path.split(";"))
        stack = tuple(frame for frame in frames if frame is not None)
        weighted.add(stack or (UNKNOWN,), count)
    parts = [path.rpartition(" ") for path in counts]
    has_two = bool(parts) and all(_COUNT.fullmatch(count) for *_, count in parts)
    # Names may end in a number, too: without it "layer 1" and "layer 2" would be one path.
    if has_two and len({path for path, *_ in parts}) == len(parts):
        raise ReceiptError(
            CODE,
            "Every line ends in two counts: this is the difference of two profiles.",
            "Import each of the two by itself, and compare them with flamegate diff.",
        )
    stacks, rounded = weighted.to_counts()
    notes = ["imported folded stacks do not state profiler, event, rate or unit", *rounded]
    if not text.endswith("\n"):
        notes.append("the last line has no end, and its count may be cut off")
    return make_foreign_profile(stacks, notes)


def is_collapsed(text: str) -> bool:
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


def _split_line(number: int, line: str) -> tuple[str, float]:
    path, separator, count = line.replace("\t", " ").rpartition(" ")
    if not separator or not _COUNT.fullmatch(count):
        shown = escape_name(line[-_SHOWN:]).replace("\\x3b", ";")
        message = f'Line {number} of the folded stacks does not end in a count: "{shown}".'
        raise ReceiptError(CODE, message, _REMEDY)
    return path, int(count) if count.isdigit() else float(count)

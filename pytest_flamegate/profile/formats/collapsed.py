"""One frame as other tools write it in folded text, read into a ``Frame``.

The text has no grammar that all tools share, so this knows the habits of py-spy,
perf's and inferno's collapsers, and takes any other text for a native function.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.formats.imported import WeightedStacks, foreign_profile
from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame, make_python_frame
from pytest_flamegate.profile.model import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_flamegate.profile.model import Profile


_KALLSYMS, _JIT_MAP = "[kernel.kallsyms]", "/perf-0.map"
_ANNOTATED = {"_[k]": _KALLSYMS, "_[j]": _JIT_MAP, "_[i]": ""}
"""What collapsers put behind a name: kernel, just-in-time code, inlined."""
_PLACED = re.compile(r"(?P<name>.*) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)", re.DOTALL)
_MODULED = re.compile(r"(?P<name>.*) \[(?P<module>[^\[\]\s]+)\]", re.DOTALL)
_BARE = re.compile(r"\[(\[?[^\[\]]+\]?)\]")
_PROCESS = re.compile(r'process \d+(?::".*")?', re.DOTALL)
_THREAD = re.compile(r"thread \((?:0x[0-9A-Fa-f]+|\d+)\)(?:: (?P<name>.*))?", re.DOTALL)
_PYTHON = re.compile(r"<.*>|.*\.py[ixw]?", re.DOTALL)
_NATIVE = re.compile(r".*(?:\.so\b|\.(?:c|cc|cpp|cxx|h|hpp|rs|go|cu|f|f90|s|S|dylib|dll|exe)$)")
_LONGEST = 1024
"""A longer text is no name that a pattern would know, and is kept as it is, cut."""
_KERNEL = re.compile(r"(?:guest\.)?kernel(?:\.(?:kallsyms|vmlinux).*)?")
_ADDRESS = re.compile(r"0x[0-9A-Fa-f]+")
_NUMBERED = re.compile(r"(?:.*:)?\d+|0x[0-9A-Fa-f]+", re.DOTALL)


def is_foreign(frame: Frame) -> bool:
    """Whether ``frame``, as read from our own notation, is one that we never write.

    Line numbers, addresses, absolute paths, and libraries in the brackets of Python.
    """
    if frame.module.startswith("/") or _ADDRESS.fullmatch(frame.name):
        return True
    if frame.kind != "python" or _PYTHON.fullmatch(frame.module):
        return False
    return bool(_NUMBERED.fullmatch(frame.module) or _NATIVE.match(frame.module))


def frame_reader(roots: tuple[str, ...] = ()) -> Callable[[str], Frame | None]:
    """Return a reader of frames; it answers None for a trampoline.

    Paths below one of ``roots`` are shown relative to it.
    """

    @lru_cache(maxsize=65536)
    def read(text: str) -> Frame | None:
        return foreign_frame(text, roots)

    return read


def foreign_frame(text: str, roots: tuple[str, ...] = ()) -> Frame | None:
    """Return the frame that ``text`` stands for, normalised and escaped; None: leave it out."""
    if not text:
        return UNKNOWN
    if len(text) > _LONGEST:
        return Frame(escape_name(text), "unknown", "native")
    if (library := _ANNOTATED.get(text[-4:])) is not None:
        return make_native_frame(text[:-4], library, roots)
    if text.startswith("py::"):
        return make_native_frame(text, _JIT_MAP, roots)
    if _PROCESS.fullmatch(text):
        return make_native_frame("process", "")
    if thread := _THREAD.fullmatch(text):
        return make_native_frame(f"thread {thread['name'] or ''}".strip(), "")
    return _placed(text, roots)


def placed_frame(
    name: str, file: str, roots: tuple[str, ...] = (), *, line: bool = False
) -> Frame | None:
    """Return the frame of a function in ``file``.

    Python's are those in its own files, and those with a ``line`` in what is no source or
    library of another language.
    """
    if len(name) > _LONGEST:
        name = escape_name(name)
    if _PYTHON.fullmatch(file) or (line and not _NATIVE.match(file)):
        return make_python_frame(name, file, roots)
    return make_native_frame(name, _library(file), roots)


def _placed(text: str, roots: tuple[str, ...]) -> Frame | None:
    """Return the frame of a name with a file, a library or neither beside it."""
    if placed := _PLACED.fullmatch(text):
        name, file, line = placed.groups()
        if _PYTHON.fullmatch(file) or _NATIVE.match(file) or line or "/" in file:
            return placed_frame(name, file, roots, line=line is not None)
    elif moduled := _MODULED.fullmatch(text):
        return make_native_frame(moduled["name"], _library(moduled["module"]), roots)
    elif bare := _BARE.fullmatch(text):
        return make_native_frame("", _library(bare[1]), roots)
    return make_native_frame(text, "", roots)


def _library(module: str) -> str:
    """Return a module as perf names it: the kernel in brackets, ``unknown`` as no module."""
    if _KERNEL.fullmatch(module):
        return _KALLSYMS
    return "" if module in ("unknown", "?") else module


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
    gathered = WeightedStacks(_CODE)
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
        shown = escape_name(line[-_SHOWN:]).replace("\\x3b", ";")
        raise ReceiptError(
            _CODE, f'Line {number} of the folded stacks does not end in a count: "{shown}".', _TODO
        )
    if count.isdigit():
        return path, int(count)
    value = float(count)
    if not math.isfinite(value):
        raise ReceiptError(_CODE, f"The count of line {number} is too large.", _TODO)
    return path, value

"""The file callgrind writes: instructions by stack, checked against its own total.

Of its grammar only what bears on self cost is read. A name is written out once and
then called by its number: ``fn=(12) main``, later ``fn=(12)``. A cost line is a
position for each column of ``positions:`` (absolute, ``+N``, ``-N`` or ``*``) and a
figure for each of ``events:``, zeros at the end left out. The line after ``calls=`` is
what the called function cost, and no cost of the caller.

Under ``--separate-callers=N`` a function is written once for each way it was called:
``gemv'attention'layer`` is ``gemv`` called by ``attention`` called by ``layer``, and a
number after the function is how deep it stands within itself: ``walk'2'layer``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_flamegate.profile.normalise import UNKNOWN, native_frame
from pytest_flamegate.profile.words import ProfilerError, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flamegate.profile.model import Frame, Stack

NAME = "callgrind"
EVENT = "Ir"
CALLERS = 10
"""How many callers a stack goes up. More take memory and time: CPython's calls go round."""
CONTRADICTS = "E_PROFILE_CONTRADICTS"
_MAGIC = "# callgrind format"
_NUMBERED = re.compile(r"\((\d{1,9})\)(?: (.*))?$", re.DOTALL)
_POSITION = re.compile(r"(?:[+-]?(?:0x[0-9a-fA-F]{1,16}|\d{1,20})|\*)$")
_CALL = re.compile(r"calls=\d{1,20} ")
_FIGURE = re.compile(r"\d{1,19}$")
_UNKNOWN = "???"
_CALLED_BY = re.compile(r"(?<![&<(\s])'")
"""An apostrophe between two functions; one after ``&`` or ``<`` begins a lifetime of Rust's."""
_KEPT_LINES = 1 << 16
_CALLED = frozenset({"cfn", "cfi", "cfl", "cob"})
_FILES = frozenset({"fl", "fi", "fe", "jump", "jcnd"})
_MOST_COLUMNS = 128
_COST_STARTS = frozenset("0123456789+-*")


@dataclass(frozen=True, slots=True)
class Instructions:
    """What one process executed: the whole, and what each function did itself, by its callers."""

    total: int
    by_stack: Mapping[Stack, int]


def parse_callgrind(lines: Iterable[str]) -> Instructions:
    """Read one file, of one part or of several.

    A function's name is normalised like that of any native frame. Raises
    ``ProfilerError``: ``E_PROFILER_OUTPUT`` where the file is no such file or was cut off,
    ``E_PROFILE_CONTRADICTS`` where its functions do not add up to its total.
    """
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            reader.take(line.rstrip("\r\n"))
        except ValueError as error:
            raise unreadable(NAME, f"line {number}: {error}") from None
    return reader.finish()


@dataclass(slots=True)
class _Names:
    """Names by the numbers they were given."""

    known: dict[str, str] = field(default_factory=dict)

    def read(self, text: str) -> str:
        found = _NUMBERED.match(text)
        if found is None:
            return text
        number, name = found.groups()
        if name is not None:
            self.known[number] = name
        elif number not in self.known:
            raise ValueError(f"no name was given the number {number}")
        return self.known[number]


@dataclass(slots=True)
class _Reader:
    functions: _Names = field(default_factory=_Names)
    objects: _Names = field(default_factory=_Names)
    costs: dict[tuple[str, str], int] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    """What cost lines of this part say: the same few thousand come again and again."""
    function: str | None = None
    object: str = ""
    positions: int = 1
    column: int | None = None
    part: int = 0
    total: int = 0
    begun: bool = False
    totalled: bool = False
    is_call: bool = False

    def take(self, line: str) -> None:
        """Read one line; ``ValueError`` says what is wrong with it."""
        if not self.begun:
            self._begin(line)
        elif not line or line.startswith("#"):
            return
        elif line[0] in _COST_STARTS:
            if self.is_call:
                self.is_call = False
            else:
                self._cost(line)
        elif self.is_call:
            raise ValueError("a call without what it cost")
        elif (at := line.find("=")) > 0 and line[:at].isalpha():
            self._place(line[:at], line[at + 1 :], line)
        else:
            self._head(*line.partition(":")[::2])

    def finish(self) -> Instructions:
        """Return what the parts hold together."""
        if not self.begun or not self.totalled or self.part:
            raise unreadable(NAME, "it ends before its totals")
        if not self.costs:
            raise unreadable(NAME, "it counted nothing")
        return Instructions(self.total, MappingProxyType(_stacks(self.costs)))

    def _begin(self, line: str) -> None:
        # Older ones begin with the version instead.
        if line.strip() and line != _MAGIC and not line.startswith("version:"):
            raise ValueError("it does not begin like a file of callgrind's")
        self.begun = bool(line.strip())

    def _cost(self, line: str) -> None:
        if self.function is None:
            raise ValueError("a cost that belongs to no event or no function")
        cost = self.figures.get(line)
        if cost is None:
            cost = self._figure(line)
            if len(self.figures) < _KEPT_LINES:
                self.figures[line] = cost
        key = (self.object, self.function)
        self.costs[key] = self.costs.get(key, 0) + cost
        self.part += cost

    def _figure(self, line: str) -> int:
        if self.column is None:
            raise ValueError("a cost that belongs to no event or no function")
        words = _columns(line)
        figures = words[self.positions :]
        if not all(_POSITION.match(word) for word in words[: self.positions]) or not all(
            _FIGURE.match(word) for word in figures
        ):
            raise ValueError("it is no cost line")
        return int(figures[self.column]) if self.column < len(figures) else 0

    def _place(self, kind: str, text: str, line: str) -> None:
        if kind == "fn":
            self.function = self.functions.read(text)
        elif kind == "ob":
            self.object = self.objects.read(text)
        elif kind == "cfn":
            self.functions.read(text)
        elif kind == "cob":
            self.objects.read(text)
        elif kind == "calls":
            if not _CALL.match(line):
                raise ValueError("it is no call")
            self.is_call = True
        elif kind not in _CALLED and kind not in _FILES:
            raise ValueError(f"what {kind}= means is not known")

    def _head(self, key: str, value: str) -> None:
        if key == "events":
            events = _columns(value)
            if EVENT not in events:
                raise ValueError(f"it holds no event {EVENT}")
            self.column = events.index(EVENT)
            self.figures.clear()
        elif key == "positions":
            self.positions = len(_columns(value))
            self.figures.clear()
        elif key == "part":
            self.totalled = False
        elif key == "totals":
            self._total(value)

    def _total(self, value: str) -> None:
        figures = _columns(value)
        if self.column is None or not all(_FIGURE.match(figure) for figure in figures):
            raise ValueError("its totals are no figures")
        stated = int(figures[self.column]) if self.column < len(figures) else 0
        if stated != self.part:
            raise contradicts(
                f"its functions add up to {self.part} instructions and its total says {stated}"
            )
        self.total += stated
        self.part, self.totalled, self.function = 0, True, None


def _columns(text: str) -> list[str]:
    """Split a line; ``ValueError`` where it is one that callgrind does not write."""
    words = text.split(None, _MOST_COLUMNS)
    if len(words) > _MOST_COLUMNS:
        raise ValueError("it has more columns than there are events")
    return words


def contradicts(why: str) -> ProfilerError:
    """Return the refusal of counts that cannot all be true."""
    todo = "Measure again; if it stays, report it with the version of valgrind."
    return ProfilerError(CONTRADICTS, f"What {NAME} wrote contradicts itself: {why}.", todo, why)


def _stacks(costs: Mapping[tuple[str, str], int]) -> dict[Stack, int]:
    """Return what each stack cost, from what each function cost by its callers."""
    split = {context: _named(context) for context in {context for _, context in costs}}
    libraries = _libraries(costs, split)
    frames: dict[tuple[str, str], Frame] = {}

    def frame(name: str, library: str) -> Frame:
        key = (name, library)
        if key not in frames:
            symbol, told = name.replace(_UNKNOWN, ""), library.replace(_UNKNOWN, "")
            frames[key] = native_frame(symbol, told) or native_frame("", told) or UNKNOWN
        return frames[key]

    stacks: dict[Stack, int] = {}
    for (library, context), cost in costs.items():
        leaf, *callers = split[context]
        called = (frame(name, libraries.get(name, "")) for name in reversed(callers))
        # What has neither name nor library is a jump through the linker's table.
        stack = (*(each for each in called if each != UNKNOWN), frame(leaf, library))
        stacks[stack] = stacks.get(stack, 0) + cost
    return stacks


def _named(context: str) -> tuple[str, ...]:
    """Return the functions of ``leaf'caller'caller``, the leaf first, without depths."""
    most = 2 * (CALLERS + 1)  # each may have a depth; no file that was asked for holds more
    leaf, *callers = _CALLED_BY.split(context, maxsplit=most)[:most]
    return (leaf, *(name for name in callers if name and not name.isdecimal()))


def _libraries(
    costs: Mapping[tuple[str, str], int], split: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return the library of each function: callers come without. The costliest is taken."""
    seen: dict[str, dict[str, int]] = {}
    for (library, context), cost in costs.items():
        of = seen.setdefault(split[context][0], {})
        of[library] = of.get(library, 0) + cost
    return {name: max(sorted(of), key=of.__getitem__) for name, of in seen.items()}

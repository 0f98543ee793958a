"""Parse the file that callgrind writes: the own cost of each function, by its callers.

Names are written out once and then given by number, positions by their difference to the last
one. A cost line after ``calls=`` holds the cost of the callee, which is counted there already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_flamegate.profile.frames import UNKNOWN, make_native_frame
from pytest_flamegate.profile.model import Frame, Stack
from pytest_flamegate.profile.profilers.tools import output_error

NAME = "callgrind"
EVENT = "Ir"
CALLERS = 10
"""Callers of a stack. More take memory and time: the calls of CPython's C functions form cycles."""
_MAGIC = "# callgrind format"
_NUMBERED = re.compile(r"\((\d{1,9})\)(?: (.*))?$", re.DOTALL)
_COST = re.compile(r"(?:(?:[+-]?(?:0x[0-9a-fA-F]{1,16}|\d{1,20})|\*)(?: +|$)){1,128}$")
_CALL = re.compile(r"calls=\d{1,20} ")
_FIGURE = re.compile(r"\d{1,19}$")
_COST_STARTS = frozenset("0123456789+-*")
_IGNORED = frozenset({"fl", "fi", "fe", "cfi", "cfl", "jump", "jcnd"})
_UNNAMED = "???"
_CALLED_BY = re.compile(r"(?<![&<(\s])'")
"""An apostrophe between two functions; one after ``&`` or ``<`` begins a lifetime of Rust's."""


def parse_callgrind(lines: Iterable[str]) -> dict[Stack, int]:
    """Return the own instructions of each stack in one file, which may have several parts.

    Names of functions are normalised like those of any native frame. Raises ``ProfilerError``
    ``E_PROFILER_OUTPUT`` if the file is malformed or cut off, and if its functions do not add up
    to its total.
    """
    parser = _CallgrindParser()
    for number, line in enumerate(lines, 1):
        try:
            parser.take(line.rstrip("\r\n"))
        except ValueError as error:
            raise output_error(NAME, f"line {number}: {error}") from None
    if not parser.totalled or parser.part:
        raise output_error(NAME, "it ends before its totals")
    if not parser.costs:
        raise output_error(NAME, "it counted nothing")
    return _build_stacks(parser.costs)


@dataclass(slots=True)
class _CallgrindParser:
    """Adds up costs by library and function; a function is named together with its callers.

    ``part`` is the sum since the last totals, ``column`` the place of the event among the figures
    behind the ``positions`` of a cost line.
    """

    costs: dict[tuple[str, str], int] = field(default_factory=dict)
    names: dict[str, dict[str, str]] = field(default_factory=lambda: {"fn": {}, "ob": {}})
    function: str | None = None
    library: str = ""
    positions: int = 1
    column: int | None = None
    part: int = 0
    begun: bool = False
    totalled: bool = False
    follows_call: bool = False

    def take(self, line: str) -> None:
        """Parse one line; raises ``ValueError``, whose text names the fault."""
        if not self.begun:
            # Older versions begin with the version instead.
            if line.strip() and line != _MAGIC and not line.startswith("version:"):
                raise ValueError("it does not begin like a file of callgrind's")
            self.begun = bool(line.strip())
        elif not line or line.startswith("#"):
            return
        elif line[0] in _COST_STARTS:
            if not self.follows_call:
                self._add_cost(line)
            self.follows_call = False
        elif self.follows_call:
            raise ValueError("a call without its cost")
        elif (at := line.find("=")) > 0 and line[:at].isalpha():
            self._position(line[:at], line[at + 1 :], line)
        else:
            self._header(*line.partition(":")[::2])

    def _add_cost(self, line: str) -> None:
        if self.function is None or self.column is None:
            raise ValueError("a cost that belongs to no event or no function")
        if not _COST.match(line):
            raise ValueError("it is no cost line")
        cost = self._figure(line.split()[self.positions :])
        key = (self.library, self.function)
        self.costs[key] = self.costs.get(key, 0) + cost
        self.part += cost

    def _figure(self, figures: Sequence[str]) -> int:
        """Return the figure of the event; zeros at the end of a line are left out."""
        if self.column is None or not all(map(_FIGURE.match, figures)):
            raise ValueError("it holds no figures of events")
        return int(figures[self.column]) if self.column < len(figures) else 0

    def _position(self, key: str, text: str, line: str) -> None:
        if key == "calls":
            if not _CALL.match(line):
                raise ValueError("it is no call")
            self.follows_call = True
        elif key in ("fn", "ob", "cfn", "cob"):
            name = self._name(key[-2:], text)
            if key == "fn":
                self.function = name
            elif key == "ob":
                self.library = name
        elif key not in _IGNORED:
            raise ValueError(f"{key}= is unknown")

    def _name(self, kind: str, text: str) -> str:
        """Return a name, which is written out once and then given by its number."""
        found = _NUMBERED.match(text)
        if found is None:
            return text
        number, name = found.groups()
        if name is not None:
            self.names[kind][number] = name
        elif number not in self.names[kind]:
            raise ValueError(f"no name was given the number {number}")
        return self.names[kind][number]

    def _header(self, key: str, value: str) -> None:
        if key == "events":
            events = value.split(None, 128)
            if EVENT not in events:
                raise ValueError(f"it holds no event {EVENT}")
            self.column = events.index(EVENT)
        elif key == "positions":
            self.positions = len(value.split(None, 128))
        elif key == "part":
            self.totalled = False
        elif key == "totals":
            total = self._figure(value.split(None, 128))
            if total != self.part:
                raise ValueError(
                    f"its functions add up to {self.part} instructions and its total says {total}"
                )
            self.part, self.totalled, self.function = 0, True, None


def _build_stacks(costs: Mapping[tuple[str, str], int]) -> dict[Stack, int]:
    """Return the cost of each stack, from that of each function by its callers."""
    split = {context: _split_context(context) for _, context in costs}
    libraries = _find_libraries(costs, split)
    frames: dict[tuple[str, str], Frame] = {}

    def frame(name: str, library: str) -> Frame:
        if (name, library) not in frames:
            symbol, path = name.replace(_UNNAMED, ""), library.replace(_UNNAMED, "")
            made = make_native_frame(symbol, path) or make_native_frame("", path)
            frames[name, library] = made or UNKNOWN
        return frames[name, library]

    stacks: dict[Stack, int] = {}
    for (library, context), cost in costs.items():
        leaf, *callers = split[context]
        called = (frame(name, libraries.get(name, "")) for name in reversed(callers))
        # A caller with neither name nor library is a jump through the linker's table.
        stack = (*(each for each in called if each != UNKNOWN), frame(leaf, library))
        stacks[stack] = stacks.get(stack, 0) + cost
    return stacks


def _split_context(context: str) -> tuple[str, ...]:
    """Return the functions of ``leaf'caller'caller``, the leaf first, without depths."""
    most = 2 * (CALLERS + 1)  # each may have a depth; no file that was asked for holds more
    leaf, *callers = _CALLED_BY.split(context, maxsplit=most)[:most]
    return (leaf, *(name for name in callers if name and not name.isdecimal()))


def _find_libraries(
    costs: Mapping[tuple[str, str], int], split: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return the library in which each function costs most: callers are written without one."""
    by_name: dict[str, dict[str, int]] = {}
    for (library, context), cost in costs.items():
        own = by_name.setdefault(split[context][0], {})
        own[library] = own.get(library, 0) + cost
    return {name: max(sorted(own), key=own.__getitem__) for name, own in by_name.items()}

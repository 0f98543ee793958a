"""Traces of events as Chrome reads them: what torch.profiler and onnxruntime write, in common.

Only complete events (``ph`` is ``X``) are read: each has a beginning and a length, and those of
one track lie inside each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.profile.imported import MAX_DEPTH, Gathered, foreign_profile
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_flamegate.profile.model import Frame, Profile

CODE = "E_TRACE"
_TODO = "Have the tool that wrote it write it again."
_SHOWN = 200
_NS = 1000
"""Nanoseconds of a microsecond, which is what the times of a trace are in."""
_LARGEST_US = 3e15
"""95 years: many traces count from 1970. Three times it, in nanoseconds, fits 63 bits."""


class TraceError(ReceiptError):
    """The trace is malformed; ``why`` says how in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(CODE, f"The trace is malformed: {escape(why, _SHOWN)}.", _TODO)


class Event(NamedTuple):
    """One complete event: times in microseconds of the trace's own clock, ``args`` as written."""

    name: str
    category: str
    track: tuple[str, str]
    start_us: float
    length_us: float
    args: Mapping[str, Any]


class Kernels(NamedTuple):
    """How often each kernel ran by what ``source`` wrote down."""

    source: str
    counts: Mapping[str, int]


def loads(data: bytes) -> Any:
    """Return the JSON that ``data`` holds. Raises ``TraceError`` ``E_TRACE``."""
    try:
        return json.loads(data, parse_constant=_refused)
    except RecursionError:
        raise TraceError("no JSON (it is nested too deeply)") from None
    except ValueError as error:
        raise TraceError(f"no JSON ({error}); the tool may have been ended too early") from None


def complete_events(values: Any) -> list[Event]:
    """Return the complete events among ``values``, a trace's list, in the order written."""
    if not isinstance(values, list):
        raise TraceError("its events are no list")
    return [_event(each) for each in values if _fields(each, "an event").get("ph") == "X"]


def counts(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name occurs, as it can be shown, the most frequent first."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    told: dict[str, int] = {}
    for name, count in sorted(found.items(), key=lambda each: (-each[1], each[0])):
        shown = escape(name, _SHOWN)
        told[shown] = told.get(shown, 0) + count
    return told


def nested_profile(
    events: Sequence[Event],
    stack_of: Callable[[Event], tuple[Frame, ...]],
    roots: Callable[[Event], tuple[Frame, ...]],
    profiler: str,
    notes: Sequence[str],
) -> Profile:
    """Return the self time of nested events, in nanoseconds; the stacks of all tracks together.

    ``stack_of`` gives the frames of one event, ``roots`` those below which its track stands.
    ``UndecidedError`` ``E_NO_SAMPLES`` where no event took any time.
    """
    tracks: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        tracks.setdefault(event.track, []).append(event)
    gathered, cut = Gathered(CODE), 0
    for track in tracks.values():
        nest = _Nest()
        for event in sorted(track, key=lambda each: (each.start_us, -each.length_us)):
            nest.open(event, stack_of(event))
        nest.close_until(float("inf"))
        nest.gather(roots(track[0]), gathered)
        cut += nest.cut
    stacks, rounded = gathered.counts()
    begun = min(event.start_us for event in events)
    ended = max(event.start_us + event.length_us for event in events)
    told = [*notes, *rounded]
    if cut:
        told.append(f"{cut:,} events reach beyond the one they began in, and were cut there")
    return foreign_profile(
        stacks,
        told,
        profiler=profiler,
        unit="nanoseconds",
        duration_ns=round((ended - begun) * _NS),
    )


@dataclass(slots=True)
class _Nest:
    """The events of one track: which lie in which, and what each spent outside of others."""

    cut: int = 0
    _nodes: dict[tuple[int, tuple[Frame, ...]], int] = field(default_factory=dict)
    _keys: list[tuple[int, tuple[Frame, ...]]] = field(default_factory=list)
    _spent_us: list[float] = field(default_factory=list)
    _opened: list[tuple[float, int]] = field(default_factory=list)  # end, node
    _now_us: float = 0.0

    def open(self, event: Event, frames: tuple[Frame, ...]) -> None:
        self.close_until(event.start_us)
        end_us = event.start_us + event.length_us
        if self._opened and end_us > self._opened[-1][0]:
            # Clocks are read a little apart: an event may end after the one that it is part of.
            end_us = self._opened[-1][0]
            self.cut += 1
        if len(self._opened) >= MAX_DEPTH:
            raise TraceError(f"more than {MAX_DEPTH} events are open at once")
        key = (self._opened[-1][1] if self._opened else -1, frames)
        node = self._nodes.setdefault(key, len(self._keys))
        if node == len(self._keys):
            self._keys.append(key)
            self._spent_us.append(0.0)
        self._opened.append((end_us, node))

    def close_until(self, start_us: float) -> None:
        """Count the time up to ``start_us`` for what was open, and close what ended by then."""
        while self._opened and self._opened[-1][0] <= start_us:
            end_us, node = self._opened.pop()
            self._spend(node, end_us)
        if self._opened:
            self._spend(self._opened[-1][1], start_us)
        self._now_us = max(self._now_us, start_us)

    def gather(self, roots: tuple[Frame, ...], gathered: Gathered) -> None:
        for node, spent_us in enumerate(self._spent_us):
            if spent_us > 0:
                gathered.add((*roots, *self._path(node)), spent_us * _NS)

    def _spend(self, node: int, until_us: float) -> None:
        self._spent_us[node] += max(until_us - self._now_us, 0.0)
        self._now_us = max(self._now_us, until_us)

    def _path(self, node: int) -> tuple[Frame, ...]:
        """Return the frames down to ``node``; only those that spent something are asked for."""
        parts: list[tuple[Frame, ...]] = []
        while node >= 0:
            node, frames = self._keys[node]
            parts.append(frames)
        return tuple(frame for part in reversed(parts) for frame in part)


def _event(fields: dict[str, Any]) -> Event:
    name, category = fields.get("name"), fields.get("cat", "")
    if not isinstance(name, str) or not isinstance(category, str):
        raise TraceError("an event has no name, or a category that is no text")
    args = fields.get("args", {})
    return Event(
        name,
        category,
        (_identity(fields.get("pid")), _identity(fields.get("tid"))),
        _time(fields.get("ts"), "begins at", -_LARGEST_US),
        _time(fields.get("dur"), "lasts", 0),
        args if isinstance(args, dict) else {},
    )


def _fields(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TraceError(f"{what} is no object")
    return value


def _identity(value: Any) -> str:
    return str(value) if type(value) in (int, str) else ""


def _time(value: Any, what: str, least: float) -> float:
    if type(value) not in (int, float) or not least <= value <= _LARGEST_US:
        raise TraceError(f"an event {what} no time, or one that is out of range")
    number: float = value
    return number


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")

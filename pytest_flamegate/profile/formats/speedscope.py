"""The speedscope file format: frames, and profiles of them, sampled or evented.

Read strictly: what a frame number, a weight or an event means is checked before it counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.formats.imported import MAX_DEPTH, MAX_FRAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SCHEMA = "https://www.speedscope.app/file-format-schema.json"
CODE = "E_SPEEDSCOPE"
_TODO = "Have the tool that wrote it write it again."
_SHOWN = 200
_LARGEST = 1e19
"""Nanoseconds since 1970 are below it."""

Path = tuple[int, ...]
"""Numbers of frames, root first."""


class SpeedscopeError(ReceiptError):
    """The file is malformed; ``why`` says how in a few words."""

    def __init__(self, why: str) -> None:
        self.why = escape_name(why, _SHOWN)
        super().__init__(CODE, f"The speedscope file is malformed: {self.why}.", _TODO)


class FrameText(NamedTuple):
    """A frame as the file has it; ``file`` is empty and ``line`` 0 where there is none."""

    name: str
    file: str
    line: int


@dataclass(slots=True)
class Track:
    """One profile of the file, of a thread mostly.

    ``weights`` are in ``unit`` (none, seconds, …, bytes), ``samples`` how often each path
    was sampled, and ``length`` is in ``unit`` too: from the first to the last.
    """

    name: str
    unit: str
    length: float = 0
    weights: dict[Path, float] = field(default_factory=dict)
    samples: dict[Path, int] = field(default_factory=dict)
    each_weight: float | None = None
    """The one weight that all samples have, None where they differ."""


@dataclass(frozen=True, slots=True)
class SpeedscopeFile:
    """What a file holds. ``extra`` is what flamegate itself added to it."""

    frames: tuple[FrameText, ...]
    tracks: tuple[Track, ...]
    exporter: str
    name: str
    extra: Mapping[str, Any]


def parse_speedscope_file(raw: bytes) -> SpeedscopeFile:
    """Parse the bytes of a speedscope file. Raises ``SpeedscopeError`` ``E_SPEEDSCOPE``."""
    try:
        data = json.loads(raw, parse_constant=_refused, object_pairs_hook=_unique)
    except RecursionError:
        raise SpeedscopeError("no JSON (it is nested too deeply)") from None
    except ValueError as error:
        raise SpeedscopeError(f"no JSON ({error})") from None
    data = _fields(data, "the file")
    frames = tuple(map(_frame, _list(_fields(data.get("shared"), "shared"), "frames")))
    tracks = tuple(_track(each, len(frames)) for each in _list(data, "profiles"))
    extra = data.get("flamegate")
    return SpeedscopeFile(
        frames=frames,
        tracks=tracks,
        exporter=_text(data, "exporter"),
        name=_text(data, "name"),
        extra=extra if isinstance(extra, dict) else {},
    )


def _frame(value: Any) -> FrameText:
    fields = _fields(value, "a frame")
    if not isinstance(fields.get("name"), str):
        raise SpeedscopeError("a frame has no name")
    line = fields.get("line")
    return FrameText(fields["name"], _text(fields, "file"), line if type(line) is int else 0)


def _track(value: Any, frames: int) -> Track:
    fields = _fields(value, "a profile")
    track = Track(_text(fields, "name"), _text(fields, "unit") or "none")
    kind = fields.get("type", "sampled")
    if kind == "sampled":
        _sampled(track, _list(fields, "samples"), _list(fields, "weights"), frames)
    elif kind == "evented":
        _evented(track, _list(fields, "events"), frames)
    else:
        raise SpeedscopeError(f"a profile is of the type {kind!r}, neither sampled nor evented")
    return track


def _sampled(track: Track, samples: Sequence[Any], weights: Sequence[Any], frames: int) -> None:
    if len(samples) != len(weights):
        raise SpeedscopeError(f"{len(samples)} samples have {len(weights)} weights")
    for sample, given in zip(samples, weights, strict=True):
        weight = _number(given, "a weight")
        if weight < 0:
            raise SpeedscopeError("a weight is negative")
        if not isinstance(sample, list):
            raise SpeedscopeError("a sample is no list of frame numbers")
        path = tuple(sample)
        try:
            counted = track.samples.get(path, 0)
        except TypeError:
            raise SpeedscopeError("a sample holds no frame numbers") from None
        if not counted:
            for index in path:
                _index(index, frames)
        track.samples[path] = counted + 1
        track.weights[path] = track.weights.get(path, 0) + weight
        track.length += weight
    distinct = set(weights)
    track.each_weight = distinct.pop() if len(distinct) == 1 else None


def _evented(track: Track, events: Sequence[Any], frames: int) -> None:
    """Count the time between two events for what was open then; nothing where nothing was."""
    opened: list[tuple[int, int]] = []  # frame, node
    nodes: dict[tuple[int, int], int] = {}  # parent node and frame, to node
    spent: list[float] = []
    before: float | None = None
    for value in events:
        event = _fields(value, "an event")
        at = _number(event.get("at"), "the time of an event")
        if before is not None and at < before:
            raise SpeedscopeError("an event is earlier than the one before it")
        if opened and before is not None:
            spent[opened[-1][1]] += at - before
            track.length += at - before
        before = at
        frame = _index(event.get("frame"), frames)
        if event.get("type") == "O":
            if len(opened) >= MAX_DEPTH:
                raise SpeedscopeError(f"more than {MAX_DEPTH} frames are open at once")
            node = nodes.setdefault((opened[-1][1] if opened else -1, frame), len(spent))
            if node == len(spent):
                spent.append(0)
            opened.append((frame, node))
        elif event.get("type") != "C":
            raise SpeedscopeError("an event neither opens nor closes a frame")
        elif not opened or opened.pop()[0] != frame:
            raise SpeedscopeError("a frame is closed that was not the last one opened")
    if opened:
        raise SpeedscopeError("a frame is opened and never closed")
    paths = _paths(nodes)
    track.weights = {path: weight for path, weight in zip(paths, spent, strict=True) if weight}


def _paths(nodes: Mapping[tuple[int, int], int]) -> list[Path]:
    """Return the path to each node; they are numbered in their order, parents first."""
    paths: list[Path] = []
    total = 0
    for parent, frame in nodes:
        path = (*(paths[parent] if parent >= 0 else ()), frame)
        paths.append(path)
        total += len(path)
        if total > MAX_FRAMES:
            raise SpeedscopeError(f"its stacks hold more than {MAX_FRAMES:,} frames together")
    return paths


def _index(value: Any, frames: int) -> int:
    if type(value) is not int or not 0 <= value < frames:
        raise SpeedscopeError(f"{value!r} is the number of no frame")
    return value


def _number(value: Any, what: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= _LARGEST:
        raise SpeedscopeError(f"{what} is no number, or out of range")
    number: float = value
    return number


def _fields(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpeedscopeError(f"{what} is no object")
    return value


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise SpeedscopeError(f"{name} is no list")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    """Return a text that need not be there."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SpeedscopeError(f"{name} is no text")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return fields


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")

"""The speedscope file format: frames, and sampled or evented profiles of them.

https://www.speedscope.app/file-format-schema.json describes it. The types check the shape of a
file, ``count_paths`` that its frame numbers, weights and events make sense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import Limits, decode_json
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.folded import CODE
from pytest_flamegate.profile.formats.imported import MAX_DEPTH, MAX_FRAMES

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
SUBJECT = "The speedscope file"
_LIMITS = Limits(256 << 20)
_LARGEST = 1e19
"""Nanoseconds since 1970 are below it."""
_SHOWN = 200

Number = int | float
Path = tuple[int, ...]
"""Frame numbers, root first."""
FrameNumber = Annotated[int, Meta(ge=0)]


class SpeedscopeFrame(Struct, frozen=True):
    """A function; ``line`` is left unchecked, because only its presence matters."""

    name: str
    file: str | None = None
    line: Any = None


class FrameEvent(Struct, frozen=True):
    """A frame is opened or closed at a time."""

    type: Literal["O", "C"]
    frame: FrameNumber
    at: Number


class FileProfile(Struct, frozen=True):
    """One profile of a file: samples with their weights, or events in the order of time."""

    type: Literal["sampled", "evented"]
    name: str = ""
    unit: str = "none"
    samples: tuple[tuple[FrameNumber, ...], ...] = ()
    weights: tuple[Number, ...] = ()
    events: tuple[FrameEvent, ...] = ()


class Shared(Struct, frozen=True):
    """The frames that all profiles number."""

    frames: tuple[SpeedscopeFrame, ...]


class SpeedscopeFile(Struct, frozen=True):
    """A file. ``flamegate`` is added by flamegate to the files that it writes."""

    shared: Shared
    profiles: tuple[FileProfile, ...]
    exporter: str = ""
    name: str = ""
    flamegate: Any = None


class SpeedscopeError(ReceiptError):
    """The file is malformed; ``reason`` is a short clause that goes into the message."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            CODE,
            f"{SUBJECT} is malformed: {escape_name(reason, _SHOWN)}.",
            "Export the profile again with the tool that recorded it.",
        )


@dataclass(slots=True)
class Track:
    """The paths of one profile of a file, mostly of one thread.

    Attributes:
        weights: The sum of the weights of each path, in ``unit``.
        samples: How often each path was sampled; empty for an evented profile.
        length: The sum of all weights, in ``unit``.
        each_weight: The weight that all samples share, None if they differ.
    """

    name: str
    unit: str
    weights: Mapping[Path, Number] = field(default_factory=dict)
    samples: Mapping[Path, int] = field(default_factory=dict)
    length: Number = 0
    each_weight: Number | None = None


def parse_speedscope(data: bytes) -> SpeedscopeFile:
    """Parse the bytes of a file.

    Raises ``ReceiptError`` ``E_PROFILE_FILE`` for a wrong shape, and ``E_JSON_…`` codes.
    """
    return decode_json(data, SpeedscopeFile, _LIMITS, subject=SUBJECT, code=CODE)


def count_paths(file: SpeedscopeFile) -> list[Track]:
    """Return what each profile of the file counts. Raises ``SpeedscopeError``."""
    frames = len(file.shared.frames)
    return [
        _count_sampled(profile, frames)
        if profile.type == "sampled"
        else _count_evented(profile, frames)
        for profile in file.profiles
    ]


def _count_sampled(profile: FileProfile, frames: int) -> Track:
    if len(profile.samples) != len(profile.weights):
        raise SpeedscopeError(f"{len(profile.samples)} samples have {len(profile.weights)} weights")
    for weight in set(profile.weights):
        if not 0 <= weight <= _LARGEST:
            raise SpeedscopeError("a weight is negative or out of range")
    samples = Counter(profile.samples)
    _require_frames((number for path in samples for number in path), frames)
    weights: dict[Path, Number] = {}
    for path, weight in zip(profile.samples, profile.weights, strict=True):
        weights[path] = weights.get(path, 0) + weight
    distinct = set(profile.weights)
    return Track(
        profile.name,
        profile.unit,
        weights,
        samples,
        length=sum(profile.weights),
        each_weight=distinct.pop() if len(distinct) == 1 else None,
    )


def _count_evented(profile: FileProfile, frames: int) -> Track:
    """Count the time between two events for the path that was open then."""
    _require_frames((event.frame for event in profile.events), frames)
    opened: list[tuple[int, int]] = []  # frame, node
    nodes: dict[tuple[int, int], int] = {}  # parent node and frame, to node
    spent: list[Number] = []
    before: Number | None = None
    for event in profile.events:
        if abs(event.at) > _LARGEST or (before is not None and event.at < before):
            raise SpeedscopeError("an event is earlier than the one before it, or out of range")
        if opened and before is not None:
            spent[opened[-1][1]] += event.at - before
        before = event.at
        if event.type == "O":
            if len(opened) >= MAX_DEPTH:
                raise SpeedscopeError(f"more than {MAX_DEPTH} frames are open at once")
            node = nodes.setdefault((opened[-1][1] if opened else -1, event.frame), len(spent))
            if node == len(spent):
                spent.append(0)
            opened.append((event.frame, node))
        elif not opened or opened.pop()[0] != event.frame:
            raise SpeedscopeError("a frame is closed that was not the last one opened")
    if opened:
        raise SpeedscopeError("a frame is opened and never closed")
    paths = _spell_paths(nodes)
    weights = {path: weight for path, weight in zip(paths, spent, strict=True) if weight}
    return Track(profile.name, profile.unit, weights, length=sum(spent))


def _spell_paths(nodes: Iterable[tuple[int, int]]) -> list[Path]:
    """Return the path to each node; parents come before their children."""
    paths: list[Path] = []
    total = 0
    for parent, frame in nodes:
        path = (*(paths[parent] if parent >= 0 else ()), frame)
        paths.append(path)
        total += len(path)
        if total > MAX_FRAMES:
            raise SpeedscopeError(f"its stacks hold more than {MAX_FRAMES:,} frames together")
    return paths


def _require_frames(numbers: Iterable[int], frames: int) -> None:
    largest = max(numbers, default=-1)
    if largest >= frames:
        raise SpeedscopeError(f"it refers to frame {largest} of {frames}")

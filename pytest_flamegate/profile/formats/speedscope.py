"""Speedscope files: read those of any tool as a profile, and write a profile as one.

https://www.speedscope.app/file-format-schema.json describes the format. The types check the shape
of a file, ``count_paths`` that its frame numbers, weights and events make sense.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_json, decode_plain
from pytest_flamegate.core.json_parser import Limits
from pytest_flamegate.core.text import escape_name, is_clean
from pytest_flamegate.profile.formats import collapsed
from pytest_flamegate.profile.frames import (
    CODE,
    UNKNOWN,
    format_frame,
    is_wait,
    make_native_frame,
    make_python_frame,
    make_source_line,
    make_stack,
)
from pytest_flamegate.profile.model import (
    Frame,
    FrameKind,
    LineStack,
    Profile,
    SampledStacks,
    Stack,
    Unit,
)

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
SUBJECT = "The speedscope file"
EXPORTER, _PYSPY = "pytest-flamegate", "py-spy"
_LIMITS = Limits(256 << 20)
_LARGEST = 1e19
"""Nanoseconds since 1970 are below it."""
_LONGEST_NS = 10**18
_SHOWN = 200
_UNITS: dict[str, tuple[Unit, float]] = {
    "none": ("samples", 1),
    "nanoseconds": ("nanoseconds", 1),
    "microseconds": ("nanoseconds", 1e3),
    "milliseconds": ("nanoseconds", 1e6),
    "seconds": ("nanoseconds", 1e9),
    "bytes": ("bytes", 1),
}
"""The unit of a profile for each unit of a weight, and how many of it one weight is."""
_LONGEST_TEXT = 300
_THREAD = re.compile(r'Thread (\d{1,10}) "(.*)"', re.DOTALL)

Number = int | float
Path = tuple[int, ...]
"""Frame numbers, root first."""
FrameNumber = Annotated[int, Meta(ge=0)]


class SpeedscopeFrame(Struct, frozen=True):
    """A function; ``line`` is left unchecked: some tools write other things than a number."""

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
    flamegate: Any = None


def malformed_error(reason: str) -> ReceiptError:
    """Build the error for a malformed file; ``reason`` is a short clause."""
    return ReceiptError(
        CODE,
        f"{SUBJECT} is malformed: {escape_name(reason, _SHOWN)}.",
        "Export the profile again with the tool that recorded it.",
    )


@dataclass(slots=True)
class Track:
    """The paths of one profile of a file, mostly of one thread.

    ``weights`` sums up the weights of each path and ``length`` all of them, in ``unit``.
    ``samples`` says how often each path was sampled; it is empty for an evented profile.
    ``each_weight`` is the weight that all samples share, None if they differ.
    """

    name: str
    unit: str
    weights: Mapping[Path, Number]
    length: Number
    samples: Mapping[Path, int] = field(default_factory=dict)
    each_weight: Number | None = None


def parse_speedscope(data: bytes) -> SpeedscopeFile:
    """Parse the bytes of a file. Raises ``E_PROFILE_FILE`` or ``E_JSON_…`` if it is malformed."""
    return decode_json(data, SpeedscopeFile, _LIMITS, subject=SUBJECT, code=CODE)


def count_paths(file: SpeedscopeFile) -> list[Track]:
    """Return the sums of each profile of the file. Raises ``ReceiptError``."""
    counters = {"sampled": _count_sampled, "evented": _count_evented}
    frames = len(file.shared.frames)
    return [counters[profile.type](profile, frames) for profile in file.profiles]


def _count_sampled(profile: FileProfile, frames: int) -> Track:
    if len(profile.samples) != len(profile.weights):
        raise malformed_error(f"{len(profile.samples)} samples have {len(profile.weights)} weights")
    distinct = set(profile.weights)
    if not all(0 <= weight <= _LARGEST for weight in distinct):
        raise malformed_error("a weight is negative or out of range")
    samples = Counter(profile.samples)
    _require_frames((number for path in samples for number in path), frames)
    weights: dict[Path, Number] = {}
    for path, weight in zip(profile.samples, profile.weights, strict=True):
        weights[path] = weights.get(path, 0) + weight
    each_weight = distinct.pop() if len(distinct) == 1 else None
    return Track(profile.name, profile.unit, weights, sum(profile.weights), samples, each_weight)


def _count_evented(profile: FileProfile, frames: int) -> Track:
    """Count the time between two events for the path that was open then."""
    _require_frames((event.frame for event in profile.events), frames)
    opened: list[tuple[int, int]] = []  # frame, node
    nodes: dict[tuple[int, int], int] = {}  # parent node and frame, to node
    spent: list[Number] = []
    before: Number | None = None
    for event in profile.events:
        if abs(event.at) > _LARGEST or (before is not None and event.at < before):
            raise malformed_error("an event is earlier than the one before it, or out of range")
        if opened and before is not None:
            spent[opened[-1][1]] += event.at - before
        before = event.at
        if event.type == "O":
            if len(opened) >= collapsed.MAX_DEPTH:
                raise malformed_error(f"more than {collapsed.MAX_DEPTH} frames are open at once")
            node = nodes.setdefault((opened[-1][1] if opened else -1, event.frame), len(spent))
            if node == len(spent):
                spent.append(0)
            opened.append((event.frame, node))
        elif not opened or opened.pop()[0] != event.frame:
            raise malformed_error("a frame is closed that was not the last one opened")
    if opened:
        raise malformed_error("a frame is opened and never closed")
    paths = _spell_paths(nodes)
    weights = {path: weight for path, weight in zip(paths, spent, strict=True) if weight}
    return Track(profile.name, profile.unit, weights, sum(spent))


def _spell_paths(nodes: Iterable[tuple[int, int]]) -> list[Path]:
    """Return the path to each node; parents come before their children."""
    paths: list[Path] = []
    total = 0
    for parent, frame in nodes:
        paths.append((*(paths[parent] if parent >= 0 else ()), frame))
        total += len(paths[-1])
        if total > collapsed.MAX_FRAMES:
            raise malformed_error(
                f"its stacks hold more than {collapsed.MAX_FRAMES:,} frames together"
            )
    return paths


def _require_frames(numbers: Iterable[int], frames: int) -> None:
    largest = max(numbers, default=-1)
    if largest >= frames:
        raise malformed_error(f"it refers to frame {largest} of {frames}")


def count_pyspy_samples(
    file: SpeedscopeFile, roots: Sequence[str], *, native: bool
) -> SampledStacks:
    """Count the samples of each stack in a file of py-spy. Raises ``ReceiptError``.

    With ``native`` some frames are native: those without a line.
    """
    frames: list[Frame | None] = []
    for frame in file.shared.frames:
        path = frame.file or ""
        if native and not frame.line and not path.endswith(".py") and not path.startswith("<"):
            path = "" if path == "?" else path
            frames.append(make_native_frame(frame.name, path, roots))
        else:
            frames.append(make_python_frame(frame.name, path, roots))
    places = [
        make_source_line(frame.file or "", frame.line, roots) if type(frame.line) is int else None
        for frame in file.shared.frames
    ]
    stacks: dict[Stack, int] = {}
    lines: Counter[LineStack] = Counter()
    tracks = count_paths(file)
    waits: set[int] = set()
    if len(tracks) > 1:  # a single thread that looks whether something is ready computes, too
        named = enumerate(file.shared.frames)
        waits = {each for each, frame in named if is_wait(frame.name, frame.file or "", roots)}
    for track in tracks:
        for numbers, count in track.samples.items():
            if numbers and numbers[-1] in waits:
                continue
            # A thread without a Python frame at this moment is sampled all the same.
            stack = make_stack(frames[number] for number in numbers)
            stacks[stack] = stacks.get(stack, 0) + count
            lines[tuple(line for number in numbers if (line := places[number]))] += count
    lines.pop((), None)
    threads = [int(found[1]) for track in tracks if (found := _THREAD.fullmatch(track.name))]
    longest_s = max((track.length for track in tracks), default=0)
    return SampledStacks(stacks, lines, tuple(sorted(threads)), round(longest_s * 1e9))


_OWN_FIELDS = tuple(each.name for each in fields(Profile) if each.name not in ("stacks", "lines"))


def write_speedscope(profile: Profile, title: str) -> bytes:
    """Return ``profile`` as a speedscope file; equal profiles give equal bytes.

    The format has no place for the conditions of a profile and the kinds of its frames:
    ``flamegate`` holds them.
    """
    stacks = sorted(profile.stacks.items())
    numbers: dict[Frame, int] = {}
    samples = [[numbers.setdefault(f, len(numbers)) for f in stack] for stack, _ in stacks]
    own = {name: getattr(profile, name) for name in _OWN_FIELDS}
    document = {
        "$schema": SCHEMA,
        "exporter": f"{EXPORTER}@{__version__}",
        "name": title,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame.name, "file": frame.module} for frame in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": f"{title} ({profile.unit})",
                "unit": profile.unit if profile.unit in _UNITS else "none",
                "startValue": 0,
                "endValue": profile.samples,
                "samples": samples,
                "weights": [count for _, count in stacks],
            }
        ],
        "flamegate": {**own, "kinds": [frame.kind for frame in numbers]},
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def read_speedscope(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Return the profile in any speedscope file; its profiles (mostly threads) are added up.

    Times become nanoseconds, and weights without a unit count as samples. Of py-spy's files the
    samples are counted instead of their weights. Raises as ``parse_profile`` does.
    """
    file = parse_speedscope(data)
    tracks = [track for track in count_paths(file) if track.weights]
    if file.exporter.startswith(f"{EXPORTER}@") and isinstance(file.flamegate, dict):
        return _read_own(file, file.flamegate, tracks)
    if file.exporter.startswith(f"{_PYSPY}@"):
        return _read_pyspy(file, tracks, roots)
    return _read_foreign(file, tracks, tuple(roots))


def _read_own(file: SpeedscopeFile, own: dict[str, Any], tracks: Sequence[Track]) -> Profile:
    kinds = decode_plain(own.get("kinds"), tuple[FrameKind, ...], subject=SUBJECT, code=CODE)
    if len(kinds) != len(file.shared.frames):
        raise malformed_error("it has more or fewer kinds than frames")
    frames = []
    for text, kind in zip(file.shared.frames, kinds, strict=True):
        frame = Frame(text.name, text.file or "", kind)
        try:
            format_frame(frame)
        except ValueError:
            raise malformed_error("it holds a frame that flamegate does not write") from None
        frames.append(frame)
    weighted = collapsed.WeightedStacks(CODE)
    for track in tracks:
        for path, weight in track.weights.items():
            weighted.add(tuple(frames[index] for index in path), weight)
    facts = {name: _escape_unclean(own[name]) for name in _OWN_FIELDS if name in own}
    facts["stacks"] = weighted.to_counts()[0]
    return decode_plain(facts, Profile, subject=SUBJECT, code=CODE)


def _escape_unclean(value: object) -> object:
    """Return a text as one safe line, as flamegate writes it; a file may be edited by hand."""
    if isinstance(value, list):
        return list(map(_escape_unclean, value))
    if not isinstance(value, str):
        return value
    safe = is_clean(value.replace(";", "")) and len(value) <= _LONGEST_TEXT
    return value if safe else escape_name(value, _LONGEST_TEXT)


def _read_pyspy(file: SpeedscopeFile, tracks: Sequence[Track], roots: Sequence[str]) -> Profile:
    weighted = collapsed.WeightedStacks(CODE)
    for stack, count in count_pyspy_samples(file, roots, native=True).stacks.items():
        weighted.add(stack, count)
    intervals_s = {track.each_weight for track in tracks if track.unit == "seconds"}
    interval_s = intervals_s.pop() if len(intervals_s) == 1 else None
    profiler, _, version = file.exporter.partition("@")
    return collapsed.make_foreign_profile(
        weighted.to_counts()[0],
        [f"imported from {_exporter(file)}: it does not state event, call graph or Python"],
        profiler=profiler,
        profiler_version=escape_name(version),
        rate_hz=round(1 / interval_s) if interval_s and interval_s >= 1e-9 else 0,
        duration_ns=_duration_ns(tracks),
    )


def _read_foreign(file: SpeedscopeFile, tracks: Sequence[Track], roots: tuple[str, ...]) -> Profile:
    read = collapsed.make_frame_reader(roots)
    frames = [
        collapsed.make_placed_frame(text.name, text.file, roots) if text.file else read(text.name)
        for text in file.shared.frames
    ]
    units = {_unit(track)[0] for track in tracks}
    if len(units) > 1:
        raise malformed_error(f"its profiles count different things: {', '.join(sorted(units))}")
    weighted = collapsed.WeightedStacks(CODE)
    for track in tracks:
        for path, weight in track.weights.items():
            stack = tuple(frame for index in path if (frame := frames[index]) is not None)
            weighted.add(stack or (UNKNOWN,), weight * _unit(track)[1])
    stacks, rounded = weighted.to_counts()
    notes = [
        f"imported from {_exporter(file)}: it does not state profiler, event or rate",
        *rounded,
    ]
    if any(track.unit == "none" for track in tracks):
        notes.append("weights without a unit taken for samples")
    unit = units.pop() if units else "samples"
    return collapsed.make_foreign_profile(
        stacks, notes, unit=unit, duration_ns=_duration_ns(tracks)
    )


def _unit(track: Track) -> tuple[Unit, float]:
    if track.unit not in _UNITS:
        raise malformed_error(f"{track.unit!r} is no unit of the format")
    return _UNITS[track.unit]


def _duration_ns(tracks: Sequence[Track]) -> int:
    """Return the length of the longest profile of time, 0 if there is none."""
    units = [(track.length, *_unit(track)) for track in tracks]
    lengths_ns = [length * worth for length, unit, worth in units if unit == "nanoseconds"]
    longest_ns = round(max(lengths_ns, default=0))
    if longest_ns > _LONGEST_NS:
        raise malformed_error("it lasts longer than thirty years")
    return longest_ns


def _exporter(file: SpeedscopeFile) -> str:
    return escape_name(file.exporter) or f"a speedscope file of {collapsed.UNKNOWN_TEXT} origin"

"""Write a profile as a speedscope file, and read any speedscope file as a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from pytest_flamegate.core import __version__
from pytest_flamegate.core.json import decode_plain
from pytest_flamegate.core.text import escape_name, is_clean
from pytest_flamegate.profile.folded import CODE, format_frame
from pytest_flamegate.profile.formats.collapsed import make_frame_reader, make_placed_frame
from pytest_flamegate.profile.formats.imported import (
    UNKNOWN_TEXT,
    WeightedStacks,
    make_foreign_profile,
)
from pytest_flamegate.profile.formats.speedscope import (
    SCHEMA,
    SUBJECT,
    Number,
    SpeedscopeError,
    SpeedscopeFile,
    Track,
    count_paths,
    parse_speedscope,
)
from pytest_flamegate.profile.frames import UNKNOWN
from pytest_flamegate.profile.model import Covers, Frame, FrameKind, Profile, Unit
from pytest_flamegate.profile.profilers.pyspy import NAME, count_samples

EXPORTER = "pytest-flamegate"
MAX_FIGURE = 10**18
"""As nanoseconds, thirty years."""
_UNITS: dict[str, tuple[Unit, float]] = {
    "none": ("samples", 1),
    "nanoseconds": ("nanoseconds", 1),
    "microseconds": ("nanoseconds", 1e3),
    "milliseconds": ("nanoseconds", 1e6),
    "seconds": ("nanoseconds", 1e9),
    "bytes": ("bytes", 1),
}
"""The unit of a profile for each unit of a weight, and how many of it one weight is."""
_SHORTEST_INTERVAL_S = 1e-9
_LONGEST_TEXT = 300

Figure = Annotated[int, Meta(ge=0, le=MAX_FIGURE)]


class OwnFacts(Struct, frozen=True):
    """The part of a profile that the format has no place for: conditions, and kinds of frames."""

    profiler: str
    profiler_version: str
    event: str
    call_graph: str
    python: str
    rate_hz: Figure
    errors: Figure
    lost: Figure
    complete: Figure
    duration_ns: Figure
    covers: Covers
    unit: Unit
    pids: tuple[Figure, ...]
    degraded: tuple[str, ...]
    kinds: tuple[FrameKind, ...]


_COPIED = tuple(name for name in OwnFacts.__struct_fields__ if name != "kinds")


def write_speedscope(profile: Profile, title: str) -> bytes:
    """Return ``profile`` as a speedscope file; equal profiles give equal bytes."""
    stacks = sorted(profile.stacks.items())
    numbers: dict[Frame, int] = {}
    samples = [[numbers.setdefault(f, len(numbers)) for f in stack] for stack, _ in stacks]
    own = {name: getattr(profile, name) for name in _COPIED}
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
    samples are counted instead of their weights.

    Raises:
        ReceiptError: ``E_PROFILE_FILE`` or ``E_JSON_…`` if the file is malformed.
        UndecidedError: ``E_NO_SAMPLES``.
    """
    file = parse_speedscope(data)
    tracks = [track for track in count_paths(file) if track.weights]
    if file.exporter.startswith(f"{EXPORTER}@") and file.flamegate:
        return _read_own(file, tracks)
    if file.exporter.startswith(f"{NAME}@"):
        return _read_pyspy(file, tracks, roots)
    return _read_foreign(file, tracks, tuple(roots))


def _read_own(file: SpeedscopeFile, tracks: Sequence[Track]) -> Profile:
    own = decode_plain(file.flamegate, OwnFacts, subject=SUBJECT, code=CODE)
    if len(own.kinds) != len(file.shared.frames):
        raise SpeedscopeError("it has more or fewer kinds than frames")
    frames = []
    for text, kind in zip(file.shared.frames, own.kinds, strict=True):
        frame = Frame(text.name, text.file or "", kind)
        try:
            format_frame(frame)
        except ValueError:
            raise SpeedscopeError("it holds a frame that flamegate does not write") from None
        frames.append(frame)
    weighted = WeightedStacks(CODE)
    for track in tracks:
        for path, weight in track.weights.items():
            weighted.add(tuple(frames[index] for index in path), weight)
    facts = {name: _escape_unclean(getattr(own, name)) for name in _COPIED}
    return Profile(**facts, stacks=weighted.to_counts()[0])  # type: ignore[arg-type]


def _escape_unclean(value: object) -> object:
    """Return a text as one safe line, as flamegate writes it; a file may be edited by hand."""
    if isinstance(value, tuple):
        return tuple(map(_escape_unclean, value))
    if not isinstance(value, str):
        return value
    safe = is_clean(value.replace(";", "")) and len(value) <= _LONGEST_TEXT
    return value if safe else escape_name(value, _LONGEST_TEXT)


def _read_pyspy(file: SpeedscopeFile, tracks: Sequence[Track], roots: Sequence[str]) -> Profile:
    weighted = WeightedStacks(CODE)
    for stack, count in count_samples(file, roots, native=True).stacks.items():
        weighted.add(stack, count)
    profiler, _, version = file.exporter.partition("@")
    return make_foreign_profile(
        weighted.to_counts()[0],
        [f"imported from {_exporter(file)}: it does not state event, call graph or Python"],
        profiler=escape_name(profiler),
        profiler_version=escape_name(version),
        rate_hz=_rate_hz(tracks),
        duration_ns=_duration_ns(tracks),
    )


def _read_foreign(file: SpeedscopeFile, tracks: Sequence[Track], roots: tuple[str, ...]) -> Profile:
    read = make_frame_reader(roots)
    frames = [
        make_placed_frame(text.name, text.file, roots) if text.file else read(text.name)
        for text in file.shared.frames
    ]
    units = {_unit(track)[0] for track in tracks}
    if len(units) > 1:
        raise SpeedscopeError(f"its profiles count different things: {', '.join(sorted(units))}")
    weighted = WeightedStacks(CODE)
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
    return make_foreign_profile(stacks, notes, unit=unit, duration_ns=_duration_ns(tracks))


def _unit(track: Track) -> tuple[Unit, float]:
    if track.unit not in _UNITS:
        raise SpeedscopeError(f"{track.unit!r} is no unit of the format")
    return _UNITS[track.unit]


def _rate_hz(tracks: Sequence[Track]) -> int:
    """Return samples a second, if all samples stand for the same time, else 0."""
    intervals_s: set[Number | None] = {
        track.each_weight for track in tracks if track.unit == "seconds"
    }
    interval_s = intervals_s.pop() if len(intervals_s) == 1 else None
    return round(1 / interval_s) if interval_s and interval_s >= _SHORTEST_INTERVAL_S else 0


def _duration_ns(tracks: Sequence[Track]) -> int:
    """Return the length of the longest profile of time, 0 if there is none."""
    units = [(track.length, *_unit(track)) for track in tracks]
    lengths_ns = [length * worth for length, unit, worth in units if unit == "nanoseconds"]
    longest_ns = round(max(lengths_ns, default=0))
    if longest_ns > MAX_FIGURE:
        raise SpeedscopeError("it lasts longer than thirty years")
    return longest_ns


def _exporter(file: SpeedscopeFile) -> str:
    return escape_name(file.exporter) or f"a speedscope file of {UNKNOWN_TEXT} origin"

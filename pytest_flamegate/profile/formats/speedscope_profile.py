"""A profile as a speedscope file, and any speedscope file as a profile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.text import escape_name, is_clean
from pytest_flamegate.profile.folded import format_frame
from pytest_flamegate.profile.formats.collapsed import frame_reader, placed_frame
from pytest_flamegate.profile.formats.imported import UNKNOWN_TEXT, WeightedStacks, foreign_profile
from pytest_flamegate.profile.formats.speedscope import (
    CODE,
    SCHEMA,
    SpeedscopeError,
    parse_speedscope_file,
)
from pytest_flamegate.profile.frames import UNKNOWN
from pytest_flamegate.profile.model import Covers, Frame, FrameKind, Profile, Unit
from pytest_flamegate.profile.profilers.pyspy import NAME, count_pyspy_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.profile.formats.speedscope import SpeedscopeFile, Track
    from pytest_flamegate.profile.model import Stack


EXPORTER = "pytest-flamegate"
_TEXTS = ("profiler", "profiler_version", "event", "call_graph", "python")
_COUNTS = ("rate_hz", "errors", "lost", "complete", "duration_ns")
_CHOICES = {"covers": get_args(Covers), "unit": get_args(Unit)}
LARGEST = 10**18
"""Of a figure: as nanoseconds, thirty years."""
_LONGEST = 300


def added(profile: Profile, frames: Sequence[Frame]) -> dict[str, object]:
    """Return what the file says beyond the format: how ``profile`` was taken, kinds of frames."""
    plain = {name: getattr(profile, name) for name in (*_TEXTS, *_COUNTS, *_CHOICES)}
    listed = {"pids": list(profile.pids), "degraded": list(profile.degraded)}
    return {**plain, **listed, "kinds": [frame.kind for frame in frames]}


def is_own(file: SpeedscopeFile) -> bool:
    """Whether flamegate wrote the file."""
    return file.exporter.startswith(f"{EXPORTER}@") and bool(file.extra)


def own_frames(file: SpeedscopeFile) -> list[Frame]:
    """Return the frames as they were written. Raises ``SpeedscopeError``."""
    kinds = file.extra.get("kinds")
    if not isinstance(kinds, list) or len(kinds) != len(file.frames):
        raise _malformed("kinds")
    frames = []
    for text, kind in zip(file.frames, kinds, strict=True):
        if kind not in get_args(FrameKind):
            raise _malformed("kinds")
        frame = Frame(text.name, text.file, kind)
        try:
            format_frame(frame)
        except ToolError:
            raise SpeedscopeError("it holds a frame that flamegate does not write") from None
        frames.append(frame)
    return frames


def own_profile(stacks: Mapping[Stack, int], extra: Mapping[str, Any]) -> Profile:
    """Return the profile that ``added`` told of. Raises ``SpeedscopeError``."""
    for name, choices in _CHOICES.items():
        if extra.get(name) not in choices:
            raise _malformed(name)
    plain: dict[str, Any] = {name: _text(name, extra.get(name)) for name in _TEXTS}
    plain |= {name: _count(name, extra.get(name)) for name in _COUNTS}
    plain |= {name: extra[name] for name in _CHOICES}
    return Profile(
        **plain,
        stacks=stacks,
        pids=tuple(_count("pids", pid) for pid in _list("pids", extra)),
        degraded=tuple(_text("degraded", note) for note in _list("degraded", extra)),
    )


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _malformed(name)
    # What flamegate says is one safe line already; what was put there by hand becomes one.
    safe = is_clean(value.replace(";", "")) and len(value) <= _LONGEST
    return value if safe else escape_name(value, _LONGEST)


def _count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise _malformed(name)
    return value


def _list(name: str, extra: Mapping[str, Any]) -> list[Any]:
    value = extra.get(name)
    if not isinstance(value, list):
        raise _malformed(name)
    return value


def _malformed(name: str) -> SpeedscopeError:
    return SpeedscopeError(f"what flamegate says of {name} is missing or wrong")


_UNITS: dict[str, tuple[Unit, float]] = {
    "none": ("samples", 1),
    "nanoseconds": ("nanoseconds", 1),
    "microseconds": ("nanoseconds", 1e3),
    "milliseconds": ("nanoseconds", 1e6),
    "seconds": ("nanoseconds", 1e9),
    "bytes": ("bytes", 1),
}
"""What weights of a unit count as, and how many of that one of them is."""
_SHORTEST_S = 1e-9
"""Between two samples; a shorter time is none that anything was sampled at."""


def write_speedscope(profile: Profile, name: str) -> bytes:
    """Return ``profile`` as the bytes of a speedscope file; equal profiles give equal bytes.

    Raises ``ToolError`` ``E_FRAME_NAME`` for a frame that was not normalised.
    """
    stacks = sorted(profile.stacks.items())
    numbers: dict[Frame, int] = {}
    samples = [[numbers.setdefault(f, len(numbers)) for f in stack] for stack, _ in stacks]
    frames = list(numbers)
    document = {
        "$schema": SCHEMA,
        "exporter": f"{EXPORTER}@{__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame.name, "file": frame.module} for frame in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": f"{name} ({profile.unit})",
                "unit": profile.unit if profile.unit in _UNITS else "none",
                "startValue": 0,
                "endValue": profile.samples,
                "samples": samples,
                "weights": [count for _, count in stacks],
            }
        ],
        "flamegate": added(profile, frames),
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def read_speedscope(data: bytes, roots: Sequence[str] = ()) -> Profile:
    """Read any speedscope file; its profiles (threads mostly) are added up.

    Times become nanoseconds; weights without a unit are taken for samples, and samples of
    py-spy are counted. Raises ``ReceiptError`` ``E_SPEEDSCOPE`` where it is malformed.
    """
    file = parse_speedscope_file(data)
    tracks = [track for track in file.tracks if track.weights]
    if is_own(file):
        return _own(file, tracks)
    if file.exporter.startswith(f"{NAME}@"):
        return _counted(file, tracks, roots)
    frames = _frames(file, tuple(roots))
    units = {_unit(track)[0] for track in tracks}
    if len(units) > 1:
        raise SpeedscopeError(f"its profiles count different things: {', '.join(sorted(units))}")
    gathered = WeightedStacks(CODE)
    for track in tracks:
        for path, weight in track.weights.items():
            gathered.add(_stack(path, frames), weight * _unit(track)[1])
    stacks, notes = gathered.counts()
    told = [f"imported from {_exporter(file)}: profiler, event and rate are not told", *notes]
    if any(track.unit == "none" for track in tracks):
        told.append("weights without a unit taken for samples")
    return foreign_profile(
        stacks, told, unit=units.pop() if units else "samples", duration_ns=_duration_ns(tracks)
    )


def _own(file: SpeedscopeFile, tracks: Sequence[Track]) -> Profile:
    frames, gathered = own_frames(file), WeightedStacks(CODE)
    for track in tracks:
        for path, weight in track.weights.items():
            gathered.add(tuple(frames[index] for index in path), weight)
    return own_profile(gathered.counts()[0], file.extra)


def _counted(file: SpeedscopeFile, tracks: Sequence[Track], roots: Sequence[str]) -> Profile:
    """Return the profile of a sampler: how often each stack was seen."""
    sampled, gathered = count_pyspy_samples(file, roots, native=True), WeightedStacks(CODE)
    for stack, count in sampled.stacks.items():
        gathered.add(stack, count)
    profiler, _, version = file.exporter.partition("@")
    return foreign_profile(
        gathered.counts()[0],
        [f"imported from {_exporter(file)}: event, call graph and Python are not told"],
        profiler=escape_name(profiler),
        profiler_version=escape_name(version),
        rate_hz=_rate_hz(tracks),
        duration_ns=_duration_ns(tracks),
    )


def _stack(path: tuple[int, ...], frames: Sequence[Frame | None]) -> tuple[Frame, ...]:
    stack = tuple(frame for index in path if (frame := frames[index]) is not None)
    return stack or (UNKNOWN,)


def _frames(file: SpeedscopeFile, roots: tuple[str, ...]) -> list[Frame | None]:
    read = frame_reader(roots)
    return [
        placed_frame(text.name, text.file, roots) if text.file else read(text.name)
        for text in file.frames
    ]


def _unit(track: Track) -> tuple[Unit, float]:
    if track.unit not in _UNITS:
        raise SpeedscopeError(f"{track.unit!r} is no unit of the format")
    return _UNITS[track.unit]


def _rate_hz(tracks: Sequence[Track]) -> int:
    """Return the samples a second by the one time that each stands for, 0 where it is none."""
    intervals_s = {track.each_weight for track in tracks if track.unit == "seconds"}
    interval_s = intervals_s.pop() if len(intervals_s) == 1 else None
    return round(1 / interval_s) if interval_s and interval_s >= _SHORTEST_S else 0


def _duration_ns(tracks: Sequence[Track]) -> int:
    """Return the length of the longest profile, 0 where none is of time.

    Raises ``SpeedscopeError`` for one that no clock could have measured.
    """
    lengths = [track.length * _unit(track)[1] for track in tracks if _is_time(track)]
    longest_ns = round(max(lengths, default=0))
    if longest_ns > LARGEST:
        raise SpeedscopeError("it lasts longer than thirty years")
    return longest_ns


def _is_time(track: Track) -> bool:
    return _unit(track)[0] == "nanoseconds"


def _exporter(file: SpeedscopeFile) -> str:
    return escape_name(file.exporter) or f"a speedscope file of {UNKNOWN_TEXT} origin"

"""What flamegate adds to a speedscope file, so that its own reader loses nothing.

The format knows neither kinds of frames nor how a profile was taken. Other readers pass
over the one key more, ``flamegate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pytest_flamegate.errors import ToolError
from pytest_flamegate.profile.fold import label
from pytest_flamegate.profile.model import Covers, Frame, FrameKind, Profile, Unit
from pytest_flamegate.profile.speedscope_file import SpeedscopeError
from pytest_flamegate.profile.text import escape, is_clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.profile.model import Stack
    from pytest_flamegate.profile.speedscope_file import SpeedscopeFile

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
            label(frame)
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
    return value if safe else escape(value, _LONGEST)


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

"""Whether two profiles can be compared, and which stacks of one are those of the other.

Profiles taken under different conditions differ by more than the program. And between two
revisions a function may move to another file, gain a wrapper of its own name, or recurse to
another depth: none of that is a new function.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from pytest_flamegate.profile.stacks import hide_own_frames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.profile.model import Frame, Profile, Stack


UNKNOWN = "unknown"
_NOISE_UNKNOWN = frozenset({"nanoseconds", "bytes"})
"""The number of samples behind such a count is not known, so no change is ever certain."""
_CONDITIONS = {
    "profiler": "profiler",
    "unit": "unit",
    "event": "event",
    "rate_hz": "rate (Hz)",
    "call_graph": "call graph",
    "python": "Python",
    "covers": "phase",
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One condition under which two profiles were taken differently, in words."""

    condition: str
    base: str
    head: str

    def __str__(self) -> str:
        return f"{self.condition}: {self.base} and {self.head}"


def find_mismatches(base: Profile, head: Profile) -> tuple[Mismatch, ...]:
    """Return every condition under which two profiles were taken differently.

    Two patch releases of one Python are the same condition. A condition that only one profile
    states is a mismatch. Times and bytes always are one, because their noise is unknown.
    """
    found = []
    for name, words in _CONDITIONS.items():
        old, new = _condition(base, name), _condition(head, name)
        if old != new:
            found.append(Mismatch(words, old, new))
    if {base.unit, head.unit} & _NOISE_UNKNOWN:
        found.append(Mismatch("noise", *(f"unknown of {side.unit}" for side in (base, head))))
    return tuple(found)


def _condition(profile: Profile, name: str) -> str:
    value = str(getattr(profile, name) or UNKNOWN)
    return ".".join(value.split(".")[:2]) if name == "python" else value


def align_stacks(
    base: Mapping[Stack, int], head: Mapping[Stack, int]
) -> tuple[Mapping[Stack, int], Mapping[Stack, int]]:
    """Return the stacks of both sides in terms that can be compared.

    Frames of flamegate itself are hidden, as in a profile taken today. A function that stands in
    another file on each side gets the head's frame on both. Direct recursion, and a wrapper that
    carries the name of its function, become one frame.
    """
    old, new = hide_own_frames(base), hide_own_frames(head)
    moved = _match_moved_frames(_frames_in(old), _frames_in(new))
    return _merge_repeats(old, moved), _merge_repeats(new, {})


def _frames_in(stacks: Mapping[Stack, int]) -> set[Frame]:
    return set().union(*stacks)


def _match_moved_frames(base: set[Frame], head: set[Frame]) -> dict[Frame, Frame]:
    """Return the frame in ``head`` of each function that only changed its file or kind."""
    left: dict[str, list[Frame]] = {}
    for frame in head - base:
        left.setdefault(frame.name, []).append(frame)
    moved = {}
    for frame in sorted(base - head):
        if candidates := left.get(frame.name):
            # The file name is the part of a path that survives a move most often.
            best = max(candidates, key=lambda each: (_common_end(each.module, frame.module), each))
            candidates.remove(best)
            moved[frame] = best
    return moved


def _common_end(left: str, right: str) -> int:
    """Return how many path components two modules have in common, from the end."""
    pairs = zip(reversed(left.split("/")), reversed(right.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _merge_repeats(
    stacks: Mapping[Stack, int], moved: Mapping[Frame, Frame]
) -> Mapping[Stack, int]:
    merged: dict[Stack, int] = {}
    for stack, samples in stacks.items():
        frames = [moved.get(frame, frame) for frame in stack]
        kept = tuple(frame for at, frame in enumerate(frames) if not at or frame != frames[at - 1])
        merged[kept] = merged.get(kept, 0) + samples
    return merged

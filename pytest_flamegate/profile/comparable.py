"""Whether two profiles were taken alike: where they were not, their difference may be of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Profile

UNKNOWN = "unknown"
_NOISE_UNKNOWN = frozenset({"nanoseconds", "bytes"})
"""How many samples stand behind such a count is not told, and so no change is ever certain."""
_NAMED = {
    "profiler": "profiler",
    "unit": "unit",
    "event": "event",
    "rate_hz": "rate (Hz)",
    "call_graph": "call graph",
    "python": "Python",
    "covers": "what is covered",
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One way in which two profiles were not taken alike, in words."""

    what: str
    base: str
    head: str

    def __str__(self) -> str:
        return f"{self.what}: {self.base} and {self.head}"


def mismatches(base: Profile, head: Profile) -> tuple[Mismatch, ...]:
    """Return every way in which two profiles were not taken alike.

    Of Python's version the first two numbers count. What is known of one side only is a
    mismatch, what is known of neither is none. Counts that are no samples tell no noise.
    """
    found = []
    for name, words in _NAMED.items():
        old, new = _told(base, name), _told(head, name)
        if old != new:
            found.append(Mismatch(words, old, new))
    if {base.unit, head.unit} & _NOISE_UNKNOWN:
        found.append(Mismatch("noise", *(f"unknown of {side.unit}" for side in (base, head))))
    return tuple(found)


def _told(profile: Profile, name: str) -> str:
    value = str(getattr(profile, name) or UNKNOWN)
    return ".".join(value.split(".")[:2]) if name == "python" else value

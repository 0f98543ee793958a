"""The types of a profile: stacks with their counts, and the conditions they were taken under."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import Count, NonNegative, Share

FrameKind = Literal["python", "native", "system"]
Covers = Literal["sequence", "decode", "process"]
Unit = Literal["samples", "instructions", "nanoseconds", "bytes"]
"""The unit of a stack's count. Nanoseconds come from an imported file, or are CPU time per token
of a derived profile; bytes come from imported files only."""


class Frame(NamedTuple):
    """One function: its name, the file or library that holds it, and its kind.

    Names are normalised and escaped: they hold no address, pid, absolute path or control
    character. ``frames.py`` makes frames of what a profiler prints.
    """

    name: str
    module: str
    kind: FrameKind


Stack = tuple[Frame, ...]
"""Root first, leaf last."""


class SourceLine(NamedTuple):
    """A line of a file of the project; the path is relative to the project."""

    file: str
    line: int


LineStack = tuple[SourceLine, ...]
"""The lines of a stack that lie in the project, root first."""


@dataclass(frozen=True, slots=True)
class SampledStacks:
    """The samples in a profiler's file, by stack and by lines of the project.

    ``pids`` are the sampled processes; py-spy names threads, of which the main one has the number
    of its process. ``lost`` counts samples that the kernel could not store.
    """

    stacks: Mapping[Stack, int]
    lines: Mapping[LineStack, int]
    pids: tuple[int, ...]
    duration_ns: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """Sampled stacks of one process, or of several pooled ones.

    Attributes:
        stacks: Count of each stack, in ``unit``.
        complete: Samples whose stack reaches the workload's root frame.
        covers: The phase that was sampled: whole sequences of a served engine, the decode of a
            program, or a whole process.
        degraded: Sentences about what was not as it should be.
        started_ticks: The kernel's start time of each of ``pids`` in clock ticks since boot, None
            if unknown. Together they name a process.
        lines: Samples by the project's lines that they passed, without those that passed none.
    """

    profiler: str
    profiler_version: str
    event: str
    call_graph: str
    stacks: Mapping[Stack, int]
    rate_hz: Count = 0
    python: str = ""
    errors: Count = 0
    lost: Count = 0
    complete: Count = 0
    duration_ns: Count = 0
    pids: tuple[Count, ...] = ()
    degraded: tuple[str, ...] = ()
    covers: Covers = "sequence"
    unit: Unit = "samples"
    started_ticks: tuple[Count | None, ...] = ()
    lines: Mapping[LineStack, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples in all stacks."""
        return sum(self.stacks.values())

    @property
    def completeness(self) -> float:
        """Share of the samples whose stack reaches the workload's root, 0 to 1."""
        return self.complete / self.samples if self.samples else 0.0


@dataclass(frozen=True, slots=True)
class Hotspot:
    """The cost of one function.

    Shares are of all samples, 0 to 1; a function that calls itself counts once in a stack.
    ``cpu_s_per_token`` is the self share of the CPU time of one token, None if no CPU time was
    observed.
    """

    name: str
    module: str
    kind: FrameKind
    category: str
    self_samples: Count
    inclusive_samples: Count
    self_share: Share
    inclusive_share: Share
    cpu_s_per_token: NonNegative | None


_NOISE_UNKNOWN = frozenset({"nanoseconds", "bytes"})
"""The number of samples behind such a count is not known, so no change is ever certain."""
_CONDITIONS = {  # attributes of a profile, and their names in a message
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
    value = str(getattr(profile, name) or "unknown")
    return ".".join(value.split(".")[:2]) if name == "python" else value


def merge_profiles(profiles: Sequence[Profile]) -> Profile:
    """Pool profiles, at least one. Raises ``E_PROFILES_DIFFER`` if their conditions differ."""
    first = profiles[0]
    stacks: Counter[Stack] = Counter()
    lines: Counter[LineStack] = Counter()
    for profile in profiles:
        for name in ("profiler_version", *_CONDITIONS):
            ours, theirs = getattr(first, name), getattr(profile, name)
            if ours != theirs:
                raise ToolError(
                    "E_PROFILES_DIFFER",
                    f"Profiles with {name} {ours!r} and {theirs!r} cannot be pooled.",
                )
        stacks.update(profile.stacks)
        lines.update(profile.lines)
    sums = {
        name: sum(getattr(profile, name) for profile in profiles)
        for name in ("errors", "lost", "complete", "duration_ns")
    }
    return replace(
        first,
        stacks=stacks,
        lines=lines,
        **sums,
        pids=tuple(pid for profile in profiles for pid in profile.pids),
        started_ticks=tuple(ticks for profile in profiles for ticks in profile.started_ticks),
        degraded=tuple(dict.fromkeys(note for profile in profiles for note in profile.degraded)),
    )

"""The difference of two profiles: what each function and each path costs, before and after.

Shares alone mislead: when one function gets cheaper the share of every other one rises.
So the figure compared is the cost per token (share × CPU time per token) where it is
known, and the share only where it is not. A profile of exact counts is compared by them.

Whether a change is more than sampling noise: the binomial error of a share, times
``SPREAD`` (what profiles of one program differ by), against the quantile for all
functions together, so that of two profiles of one program one in a hundred shows any
change at all; a path is held against the quantile for all paths.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.profile.hotspots import no_samples_error
from pytest_flamegate.profile.model import build_call_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.profile.model import CallNode, Frame, Profile


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


def find_mismatches(base: Profile, head: Profile) -> tuple[Mismatch, ...]:
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


Measure = Literal["cost", "share", "count"]
State = Literal["new", "vanished", "up", "down", "unchanged"]

SPREAD = 1.5
"""Standard deviation of a share over profiles of one program, in binomial ones: 0.8 to 1.5."""
COUNT_ERROR = 0.003
"""Exact counts of one program differ by as much where its path or environment differs."""
FALSE_ALARMS = 0.01
_COUNTED = 5
"""Samples that a function has to have on both sides together to be worth asking about."""


@dataclass(frozen=True, slots=True)
class ProfileSide:
    """One profile, what it is called, and the CPU time of one token in seconds.

    ``cpu_error`` is the relative standard error of that time, ``spread`` by how many binomial
    standard deviations a share differs from one profile of the program to the next.
    """

    name: str
    profile: Profile
    cpu_s_per_token: float | None = None
    cpu_error: float = 0.0
    spread: float = SPREAD
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        # Asked for with every path; the profile would add up all of its stacks each time.
        object.__setattr__(self, "samples", self.profile.samples)


@dataclass(frozen=True, slots=True)
class Change:
    """Samples of both sides, and what they are worth in the difference's measure.

    ``base`` and ``head`` are seconds per token, shares of 0 to 1, or counts; ``error`` is
    the standard error of their difference, ``z`` the difference in units of it.
    """

    base_samples: int
    head_samples: int
    base_share: float
    head_share: float
    base: float
    head: float
    error: float

    @property
    def change(self) -> float:
        """Head less base."""
        return self.head - self.base

    @property
    def shift_pp(self) -> float:
        """By how many percentage points the share moved."""
        return 100.0 * (self.head_share - self.base_share)

    @property
    def z(self) -> float:
        """The change in standard errors; infinite where something exact changed."""
        if self.error > 0.0:
            return self.change / self.error
        return math.copysign(math.inf, self.change) if self.change else 0.0


@dataclass(frozen=True, slots=True)
class FunctionChange:
    """A function on all paths together; functions of one name are one, as in ``hotspots``."""

    frame: Frame
    own: Change
    inclusive: Change
    state: State


@dataclass(frozen=True, slots=True)
class PathChange:
    """A frame as called through one path; counts are samples, inclusive and its own.

    ``state`` is that of the path's own cost: a caller is unchanged where only what it calls
    changed. Where a function changed, its paths that moved the same way carry its state.
    """

    frame: Frame
    base_samples: int
    head_samples: int
    base_self: int
    head_self: int
    state: State
    children: tuple[PathChange, ...]


@dataclass(frozen=True, slots=True)
class ProfileDifference:
    """Two profiles compared. ``functions`` are sorted by the size of their own change.

    ``certain_z`` is what a ``z`` has to reach to be no noise. ``mismatches`` say how the
    sides were not taken alike: then nothing here is about the program alone.
    """

    base: ProfileSide
    head: ProfileSide
    measure: Measure
    mismatches: tuple[Mismatch, ...]
    certain_z: float
    functions: tuple[FunctionChange, ...]
    roots: tuple[PathChange, ...]

    @property
    def changed(self) -> tuple[FunctionChange, ...]:
        """The functions whose own cost certainly changed."""
        return tuple(each for each in self.functions if each.state != "unchanged")

    @property
    def total(self) -> Change:
        """The whole profile."""
        return self.change(self.base.samples, self.head.samples)

    def change(self, base_samples: int, head_samples: int) -> Change:
        """Return what that many samples of each side are worth."""
        return _change(self.base, self.head, self.measure, base_samples, head_samples)

    def one_sided(self, path: PathChange) -> Literal["new", "vanished"] | None:
        """Return how a path, with all it calls, certainly is on one side alone, if it is."""
        if path.base_samples and path.head_samples:
            return None
        state = _state(self.change(path.base_samples, path.head_samples), self.certain_z)
        return state if state in ("new", "vanished") else None


def compare_profiles(base: ProfileSide, head: ProfileSide) -> ProfileDifference:
    """Compare two profiles. ``UndecidedError`` ``E_NO_SAMPLES`` where one holds no sample."""
    for side in (base, head):
        if not side.samples:
            raise no_samples_error(side.profile.profiler, side.profile.errors, side.profile.lost)
    measure = _measure(base, head)
    old, new = _by_name(base.profile), _by_name(head.profile)
    frames = {**old.frames, **new.frames}
    changes = {name: _change(base, head, measure, old.own[name], new.own[name]) for name in frames}
    certain_z = _certain_z(each.base_samples + each.head_samples for each in changes.values())
    states = {name: _state(change, certain_z) for name, change in changes.items()}
    functions = [
        FunctionChange(
            frame=frame,
            own=changes[name],
            inclusive=_change(base, head, measure, old.inclusive[name], new.inclusive[name]),
            state=states[name],
        )
        for name, frame in frames.items()
    ]
    functions.sort(key=lambda each: (-abs(each.own.change), each.frame))
    found = ProfileDifference(
        base=base,
        head=head,
        measure=measure,
        mismatches=find_mismatches(base.profile, head.profile),
        certain_z=certain_z,
        functions=tuple(functions),
        roots=(),
    )
    return _with_roots(found, states)


def _measure(base: ProfileSide, head: ProfileSide) -> Measure:
    if {base.profile.unit, head.profile.unit} == {"instructions"}:
        return "count"
    known = base.cpu_s_per_token is not None and head.cpu_s_per_token is not None
    return "cost" if known else "share"


def _change(
    base: ProfileSide, head: ProfileSide, measure: Measure, base_samples: int, head_samples: int
) -> Change:
    old, old_variance = _worth(base, measure, base_samples)
    new, new_variance = _worth(head, measure, head_samples)
    return Change(
        base_samples=base_samples,
        head_samples=head_samples,
        base_share=base_samples / base.samples,
        head_share=head_samples / head.samples,
        base=old,
        head=new,
        error=math.sqrt(old_variance + new_variance),
    )


def _worth(side: ProfileSide, measure: Measure, samples: int) -> tuple[float, float]:
    """Return what ``samples`` of a side are worth, and the variance of that."""
    if measure == "count":
        return float(samples), (COUNT_ERROR * samples) ** 2
    whole = side.cpu_s_per_token if measure == "cost" and side.cpu_s_per_token else 1.0
    total = side.samples
    value = whole * samples / total
    # Half a sample more on either side: none seen of few is no certainty of none.
    share = (samples + 0.5) / (total + 1.0)
    sampling = (side.spread * whole) ** 2 * share * (1.0 - share) / total
    return value, sampling + (value * side.cpu_error) ** 2


def _certain_z(samples: Iterable[int]) -> float:
    """Return what a ``z`` has to reach where so many samples on both sides are asked about."""
    asked = sum(each >= _COUNTED for each in samples)
    return NormalDist().inv_cdf(1.0 - FALSE_ALARMS / 2.0 / max(asked, 1))


def _state(change: Change, certain_z: float) -> State:
    if abs(change.z) < certain_z:
        return "unchanged"
    if not change.base_samples:
        return "new"
    if not change.head_samples:
        return "vanished"
    return "up" if change.change > 0.0 else "down"


@dataclass(frozen=True, slots=True)
class _Named:
    own: Counter[str]
    inclusive: Counter[str]
    frames: dict[str, Frame]


def _by_name(profile: Profile) -> _Named:
    """Count by name: own samples, and those of all stacks a name occurs in, each once."""
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    frames: dict[str, Frame] = {}
    heaviest: Counter[Frame] = Counter()
    for stack, samples in profile.stacks.items():
        for frame in set(stack):
            heaviest[frame] += samples
        inclusive.update(dict.fromkeys((frame.name for frame in stack), samples))
        if stack:
            own[stack[-1].name] += samples
    for frame in sorted(heaviest, key=lambda frame: (heaviest[frame], frame)):
        frames[frame.name] = frame
    return _Named(own, inclusive, frames)


@dataclass(slots=True)
class _Joined:
    """A path on both sides, and its children while they are being put together."""

    frame: Frame
    old: CallNode | None
    new: CallNode | None
    above: list[PathChange]
    children: list[PathChange]


def _with_roots(found: ProfileDifference, states: dict[str, State]) -> ProfileDifference:
    roots: list[PathChange] = []
    pending = _below(
        build_call_tree(found.base.profile.stacks),
        build_call_tree(found.head.profile.stacks),
        roots,
    )
    entered: list[_Joined] = []
    # A list and not recursion: a stack may be deeper than Python's own.
    while pending:
        joined = pending.pop()
        entered.append(joined)
        pending.extend(_below(joined.old, joined.new, joined.children))
    # There are more paths than functions, and each of them is asked about.
    certain_z = max(found.certain_z, _certain_z(map(_own_samples, entered)))
    # Whoever was entered later stands below: so children are done before their callers.
    for joined in reversed(entered):
        joined.above.append(_path(found, joined, states, certain_z))
    return replace(found, roots=tuple(sorted(roots, key=lambda path: path.frame)))


def _below(old: CallNode | None, new: CallNode | None, above: list[PathChange]) -> list[_Joined]:
    before = old.children if old is not None else {}
    after = new.children if new is not None else {}
    return [
        _Joined(frame, before.get(frame), after.get(frame), above, [])
        for frame in {**before, **after}
    ]


def _own_samples(joined: _Joined) -> int:
    return sum(node.self_samples for node in (joined.old, joined.new) if node is not None)


def _path(
    found: ProfileDifference, joined: _Joined, states: dict[str, State], certain_z: float
) -> PathChange:
    old, new = joined.old, joined.new
    base_self = old.self_samples if old is not None else 0
    head_self = new.self_samples if new is not None else 0
    own = found.change(base_self, head_self)
    state = _state(own, certain_z)
    function = states[joined.frame.name]
    if state == "unchanged" and function != "unchanged" and own.change:
        rose = function in ("up", "new")
        state = function if rose == (own.change > 0.0) else "unchanged"
    return PathChange(
        frame=joined.frame,
        base_samples=old.samples if old is not None else 0,
        head_samples=new.samples if new is not None else 0,
        base_self=base_self,
        head_self=head_self,
        state=state,
        children=tuple(sorted(joined.children, key=lambda path: path.frame)),
    )

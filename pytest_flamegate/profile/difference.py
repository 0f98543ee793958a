"""Compare two profiles: the cost of each function and of each path, before and after.

Shares alone mislead: if one function gets cheaper, the share of every other one rises. So the
figure compared is the cost per token (share × CPU time per token) if it is known, and the share
only if it is not. Exact counts of instructions are compared as they are.

A function is certain to have changed if the difference exceeds sampling noise: the binomial
error of a share, times ``SPREAD`` (how much more profiles of one program really differ), against
a quantile that is corrected for the number of functions. So one in a hundred comparisons of a
program with itself shows any change. If the gate judged a function over processes, which knows
more than one pooled profile does, its answer counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.profile import model
from pytest_flamegate.profile.hotspots import count_by_name, no_samples_error
from pytest_flamegate.profile.stacks import align_stacks

Measure = Literal["cost", "share", "count"]
State = Literal["new", "vanished", "up", "down", "unchanged"]
OneSided = Literal["new", "vanished"] | None
"""On which side a function or call is alone; None if it is on both, or may be."""

SPREAD = 1.5
"""Standard deviation of a share over profiles of one program, in binomial ones: 0.8 to 1.5."""
COUNT_ERROR = 0.003
"""Exact counts of one program differ by this part if its path or environment differs."""
FALSE_ALARMS = 0.01
"""Part of the comparisons of a program with itself that may show any change."""
LEAST_SAMPLES = 5
"""A function with fewer samples on both sides together can hardly change with certainty."""
DETECTABLE_PART = 0.1
"""A function is only called new if this part of its cost would have shown on the other side."""


@dataclass(frozen=True, slots=True)
class ProfileSide:
    """One profile of a comparison, and the CPU time of one token in seconds (None or 0: unknown).

    ``cpu_error`` is the relative standard error of that time. ``spread`` is the standard
    deviation of a share over profiles of this program, in binomial standard deviations.
    """

    name: str
    profile: model.Profile
    cpu_s_per_token: float | None = None
    cpu_error: float = 0.0
    spread: float = SPREAD
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        # Needed for every path; the property of the profile adds up all stacks each time.
        object.__setattr__(self, "samples", self.profile.samples)


@dataclass(frozen=True, slots=True)
class Change:
    """Samples of both sides, and what they are worth in the measure of the difference.

    ``base`` and ``head`` are seconds per token, shares of 0 to 1, or counts. ``error`` is the
    standard error of their difference.
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
        """Head minus base."""
        return self.head - self.base

    @property
    def shift_pp(self) -> float:
        """Change of the share in percentage points."""
        return 100.0 * (self.head_share - self.base_share)

    @property
    def z(self) -> float:
        """The change in standard errors; infinite if an exact figure changed."""
        if self.error > 0.0:
            return self.change / self.error
        return math.copysign(math.inf, self.change) if self.change else 0.0


@dataclass(frozen=True, slots=True)
class FunctionChange:
    """A function on all its paths together. Functions of one name are one, as in ``Hotspot``.

    So a function that moved to another file, is called through a wrapper of its own name, or
    calls itself, is one entry. ``one_sided`` is "new" or "vanished" if the function occurs in no
    sample of the other side although it could have been seen there; ``state`` holds these words
    only if its own cost changed for certain too.
    """

    frame: model.Frame
    own: Change
    inclusive: Change
    one_sided: OneSided
    state: State


@dataclass(frozen=True, slots=True)
class PathChange:
    """A frame as called through one path; counts are samples, inclusive and its own.

    ``state`` is that of its function, if the cost of this path moved in the same direction, else
    "unchanged". So a caller is unchanged if only its callees changed. ``one_sided`` is that of
    its function.
    """

    frame: model.Frame
    base_samples: int
    head_samples: int
    base_self: int
    head_self: int
    state: State
    one_sided: OneSided
    children: Sequence[PathChange]

    @property
    def is_idle(self) -> bool:
        """Whether it is on both sides, did no work itself and called one function alone."""
        has_work = self.base_self or self.head_self or self.one_sided is not None
        return not has_work and len(self.children) == 1


@dataclass(frozen=True, slots=True)
class ProfileDifference:
    """Two profiles compared. ``functions`` are sorted by the size of their own change.

    A change is certain if ``abs(z)`` reaches ``certain_z``. With ``mismatches`` the profiles were
    taken differently, and nothing here is about the program alone.
    """

    base: ProfileSide
    head: ProfileSide
    measure: Measure
    mismatches: tuple[model.Mismatch, ...]
    certain_z: float = math.inf
    functions: tuple[FunctionChange, ...] = ()
    roots: tuple[PathChange, ...] = ()

    @property
    def changed(self) -> tuple[FunctionChange, ...]:
        """The functions whose own cost certainly changed."""
        return tuple(each for each in self.functions if each.state != "unchanged")

    @property
    def total(self) -> Change:
        """The whole profile. All samples are its own, so its error is that of the clocks alone."""
        total = self.change(self.base.samples, self.head.samples)
        if self.measure == "count":
            return total
        return replace(total, error=self._clock_error(total.base, total.head))

    @property
    def larger_total(self) -> float:
        """The total of the side that has more: changes are parts of it."""
        total = self.total
        return max(total.base, total.head)

    @property
    def worth_of_sample(self) -> tuple[float, float]:
        """The worth of one sample of each side, base and head."""
        old, new = (_whole(side, self.measure) / side.samples for side in (self.base, self.head))
        return old, new

    def change(self, base_samples: int, head_samples: int) -> Change:
        """Return the worth of so many samples of each side."""
        base, head, measure = self.base, self.head, self.measure
        old, old_variance = _worth(base, measure, base_samples)
        new, new_variance = _worth(head, measure, head_samples)
        return Change(
            base_samples=base_samples,
            head_samples=head_samples,
            base_share=base_samples / base.samples,
            head_share=head_samples / head.samples,
            base=old,
            head=new,
            error=math.sqrt(old_variance + new_variance + self._clock_error(old, new) ** 2),
        )

    def _clock_error(self, old: float, new: float) -> float:
        """Return the standard error of a difference that the error of the CPU times makes."""
        if self.measure != "cost":
            return 0.0
        return math.hypot(self.base.cpu_error, self.head.cpu_error) * _log_mean(old, new)

    def one_sided_call(self, path: PathChange) -> OneSided:
        """Return whether this call, with all below it, certainly came or went.

        Its function may be called from elsewhere on the other side: see ``path.one_sided``.
        """
        change = self.change(path.base_samples, path.head_samples)
        if abs(change.z) < self.certain_z or (path.base_samples and path.head_samples):
            return None
        return "new" if path.head_samples else "vanished"


_NOT_JUDGED: Mapping[str, float] = MappingProxyType({})


def compare_profiles(
    base: ProfileSide, head: ProfileSide, judged: Mapping[str, float] = _NOT_JUDGED
) -> ProfileDifference:
    """Compare two profiles. Raises ``UndecidedError`` ``E_NO_SAMPLES`` if one holds no sample.

    ``judged`` has the functions whose cost was judged over processes: the change in half-widths
    of its interval, so that from 1 on it is certain.
    """
    for side in (base, head):
        if not side.samples:
            raise no_samples_error(side.profile.profiler, side.profile.errors, side.profile.lost)
    known = bool(base.cpu_s_per_token and head.cpu_s_per_token)
    measure: Measure = "cost" if known else "share"
    if {base.profile.unit, head.profile.unit} == {"instructions"}:
        measure = "count"
    mismatches = model.find_mismatches(base.profile, head.profile)
    difference = ProfileDifference(base, head, measure, mismatches)
    old_stacks, new_stacks = align_stacks(base.profile.stacks, head.profile.stacks)
    old_own, old_inclusive, old_frames = count_by_name(old_stacks)
    new_own, new_inclusive, new_frames = count_by_name(new_stacks)
    frames = {**old_frames, **new_frames}
    own = {name: difference.change(old_own[name], new_own[name]) for name in frames}
    tested = sum(each.base_samples + each.head_samples >= LEAST_SAMPLES for each in own.values())
    certain_z = NormalDist().inv_cdf(1.0 - FALSE_ALARMS / 2.0 / max(tested, 1))
    for name in own.keys() & judged.keys():
        if judged[name] > 0.0 and measure == "cost":
            error = abs(own[name].change) / (certain_z * judged[name])
            own[name] = replace(own[name], error=error)
    functions = []
    for name, frame in frames.items():
        inclusive = difference.change(old_inclusive[name], new_inclusive[name])
        one_sided = _one_sided(base, head, measure, inclusive)
        state: State = "unchanged"
        if abs(own[name].z) >= certain_z:
            state = one_sided or ("up" if own[name].change > 0.0 else "down")
        functions.append(FunctionChange(frame, own[name], inclusive, one_sided, state))
    functions.sort(key=lambda each: (-abs(each.own.change), each.frame))
    by_name = {each.frame.name: each for each in functions}
    roots = _build_paths(difference, by_name, _build_call_tree(old_stacks, new_stacks))
    return replace(difference, certain_z=certain_z, functions=tuple(functions), roots=roots)


def _log_mean(one: float, other: float) -> float:
    """Return the logarithmic mean: a relative error of a ratio times it is that of a difference.

    So a change that the clocks alone show has as many standard errors as its logarithm has. It is
    0 if one value is: a function that is new or gone is so by any clock.
    """
    if min(one, other) <= 0.0 or math.isclose(one, other):
        return min(one, other)
    return (other - one) / math.log(other / one)


def _worth(side: ProfileSide, measure: Measure, samples: int) -> tuple[float, float]:
    """Return what ``samples`` of a side are worth in ``measure``, and its sampling variance."""
    if measure == "count":
        return float(samples), (COUNT_ERROR * samples) ** 2
    whole, total = _whole(side, measure), side.samples
    value = whole * samples / total
    # Half a sample more on either side: no sample among a few is no proof of no cost.
    share = (samples + 0.5) / (total + 1.0)
    sampling = (side.spread * whole) ** 2 * share * (1.0 - share) / total
    return value, sampling


def _whole(side: ProfileSide, measure: Measure) -> float:
    """Return what all samples of a side are worth."""
    if measure == "count":
        return float(side.samples)
    return side.cpu_s_per_token or 0.0 if measure == "cost" else 1.0


def _one_sided(
    base: ProfileSide, head: ProfileSide, measure: Measure, inclusive: Change
) -> OneSided:
    """Return whether a function is on one side alone, and would have been seen on the other."""
    if not inclusive.base_samples and _is_detectable(inclusive.head, base, measure):
        return "new"
    if not inclusive.head_samples and _is_detectable(inclusive.base, head, measure):
        return "vanished"
    return None


def _is_detectable(value: float, side: ProfileSide, measure: Measure) -> bool:
    """Return whether a tenth of ``value`` would have been several samples of ``side``."""
    expected = side.samples * DETECTABLE_PART * value / max(_whole(side, measure), 1e-300)
    return expected >= LEAST_SAMPLES


@dataclass(slots=True)
class _CallNode:
    """A frame as called through one path; samples of base and head, inclusive and its own."""

    samples: list[int] = field(default_factory=lambda: [0, 0])
    self_samples: list[int] = field(default_factory=lambda: [0, 0])
    children: defaultdict[model.Frame, _CallNode] = field(
        default_factory=lambda: defaultdict(_CallNode)
    )


def _build_call_tree(*sides: Mapping[model.Stack, int]) -> _CallNode:
    """Return the root of the tree that the stacks of both sides are the paths of."""
    root = _CallNode()
    for side, stacks in enumerate(sides):
        for stack, samples in stacks.items():
            node = root
            for frame in stack:
                node = node.children[frame]
                node.samples[side] += samples
            node.self_samples[side] += samples
    return root


def _build_paths(
    difference: ProfileDifference, functions: Mapping[str, FunctionChange], root: _CallNode
) -> tuple[PathChange, ...]:
    old_worth, new_worth = difference.worth_of_sample
    roots: list[PathChange] = []
    # A list and not recursion: a stack may be deeper than Python's own.
    pending = [(root, roots)]
    while pending:
        node, siblings = pending.pop()
        for frame, child in sorted(node.children.items(), key=lambda item: item[0]):
            function = functions[frame.name]
            base_self, head_self = child.self_samples
            # A full ``Change`` for each path would take most of the time of a comparison.
            moved = head_self * new_worth - base_self * old_worth
            follows = moved > 0.0 if function.own.change > 0.0 else moved < 0.0
            children: list[PathChange] = []
            siblings.append(
                PathChange(
                    frame=frame,
                    base_samples=child.samples[0],
                    head_samples=child.samples[1],
                    base_self=base_self,
                    head_self=head_self,
                    state=function.state if follows else "unchanged",
                    one_sided=function.one_sided,
                    children=children,
                )
            )
            pending.append((child, children))
    return tuple(roots)

"""Which lines of the project got slower, and whether the change touched them.

A line is counted in every sample whose stack passes it, so that a call added on one line costs what
it calls. Lines that the change replaced are judged together, as one place; the others keep their
cost if only their numbers moved. The statistics are those of functions (``gate.costs``), place by
place, with Bonferroni's correction over all changed ones, and over all others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from pytest_flamegate.core.git import FileChange
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.costs import (
    MOST,
    CostChange,
    cost_changes,
    share_changes,
)
from pytest_flamegate.gate.measurement import Measurement
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.profile.model import Profile, SourceLine
from pytest_flamegate.receipt.types import ProcessProfile

MIN_SHARE = 0.01
"""Places with at least this share of the samples on either side are judged."""
NAMED = 3
"""So many places are named at most."""


class Place(Struct, frozen=True, order=True):
    """Lines of a file of the head, or one; ``is_changed`` if the change replaced them."""

    file: str
    first: int
    last: int
    is_changed: bool

    def __str__(self) -> str:
        lines = f"{self.first}" if self.last <= self.first else f"{self.first}-{self.last}"
        return f"{self.file}:{lines}"


@dataclass(frozen=True, slots=True)
class PlaceCounts:
    """Samples of one process by place: those that passed it, and those that ended in it."""

    samples: int
    passed: Mapping[Place, int]
    own: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class LineSamples:
    """The samples of every profiled process of both sides, by place of the head."""

    base: tuple[PlaceCounts, ...]
    head: tuple[PlaceCounts, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no sample of the head is at a known line."""
        return not any(process.own for process in self.head)


@dataclass(frozen=True, slots=True)
class LineChange:
    """The cost of one place before and after, in µs per token.

    That of a changed place has everything that it calls in it, that of another one has not.
    """

    place: Place
    cost: CostChange


def count_lines(
    base: Sequence[Profile], head: Sequence[Profile], changes: Sequence[FileChange]
) -> LineSamples:
    """Count the samples of both sides' processes by place; ``changes`` are those of the head."""
    by_base = {change.base_file: change for change in changes if change.base_file}
    by_head = {change.head_file: change for change in changes if change.head_file}

    def base_place(line: SourceLine) -> Place:
        change = by_base.get(line.file)
        return _unchanged(line.file, line.line) if change is None else _move(change, line.line)

    def head_place(line: SourceLine) -> Place:
        change = by_head.get(line.file)
        for hunk in change.hunks if change is not None else ():
            if hunk.head_start <= line.line < hunk.head_start + hunk.head_count:
                return _changed(line.file, hunk.head_start, hunk.head_count)
        return _unchanged(line.file, line.line)

    def count(profile: Profile, place: Callable[[SourceLine], Place]) -> PlaceCounts:
        passed, own = Counter[Place](), Counter[Place]()
        for stack, samples in profile.lines.items():
            places = [place(line) for line in stack]
            own[places[-1]] += samples
            passed.update(dict.fromkeys(places, samples))
            if any(each.is_changed for each in places):
                passed[_ANY_CHANGED] += samples
        return PlaceCounts(profile.samples, passed, own)

    return LineSamples(
        tuple(count(profile, base_place) for profile in base),
        tuple(count(profile, head_place) for profile in head),
    )


def _move(change: FileChange, line: int) -> Place:
    """Return the place in the head of a line of the base."""
    file, moved = change.head_file or change.base_file, 0
    for hunk in change.hunks:
        if hunk.base_count and hunk.base_start <= line < hunk.base_start + hunk.base_count:
            return _changed(file, hunk.head_start, hunk.head_count)
        if line >= hunk.base_start + max(hunk.base_count, 1):
            moved += hunk.head_count - hunk.base_count
    return _unchanged(file, line + moved)


def _changed(file: str, first: int, count: int) -> Place:
    # The place of lines that are gone is the line before them.
    return Place(file, max(first, 1), first + max(count, 1) - 1, is_changed=True)


def _unchanged(file: str, line: int) -> Place:
    return Place(file, line, line, is_changed=False)


def line_changes(
    samples: LineSamples,
    baseline: Measurement,
    current: Measurement,
    rates: ErrorRates,
    cpu: Estimate | None,
) -> tuple[LineChange, ...]:
    """Return the places whose cost certainly changed: changed places first, largest change first.

    Unchanged places follow if the changed ones explain less than most of it.
    """

    def cost_of(place: Place, kind: str) -> CostChange:
        base, head = (
            [_as_profile(each, getattr(each, kind).get(place, 0)) for each in side]
            for side in (samples.base, samples.head)
        )
        shares = share_changes(base, head, [_HERE], rates.alpha)
        costs = cost_changes(shares, baseline, current, rates, whole_changed=True, cpu=cpu)
        here = next(cost for cost in costs if cost.name == _HERE)
        return replace(here, name=str(place), no_more_than_us=math.inf)

    def find_certain(kind: str, *, is_changed: bool) -> list[LineChange]:
        places = [each for each in _places(samples, kind) if each.is_changed == is_changed]
        found = [LineChange(place, cost_of(place, kind)) for place in places]
        certain = [e for e in found if e.cost.p_adjusted * len(places) <= rates.false_alarm]
        return sorted(certain, key=lambda each: -abs(each.cost.change_us))

    certain = find_certain("passed", is_changed=True)
    # A changed line may call another one: together they explain less than their sum.
    if not certain or (cost_of(_ANY_CHANGED, "passed").explains or 0.0) < MOST:
        certain += find_certain("own", is_changed=False)
    return tuple(certain)


_HERE = "(here)"
_ANY_CHANGED = Place("", 0, 0, is_changed=True)
"""Stands for all changed places together."""


def _places(samples: LineSamples, kind: str) -> list[Place]:
    """Return the places that are worth judging."""
    found: set[Place] = set()
    for side in (samples.base, samples.head):
        counts: Counter[Place] = Counter()
        for process in side:
            counts.update(getattr(process, kind))
        total = sum(process.samples for process in side)
        found.update(place for place, count in counts.items() if count >= MIN_SHARE * total)
    return sorted(found - {_ANY_CHANGED})


def _as_profile(process: PlaceCounts, here: int) -> ProcessProfile:
    rest = process.samples - here
    counts = {_HERE: here, "(elsewhere)": rest}
    return ProcessProfile(1, process.samples, {name: n for name, n in counts.items() if n})

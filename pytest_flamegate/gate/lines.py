"""Which lines of the project got slower, and whether the change touched them.

A line is counted in every sample whose stack passes it, so that a call added on one line costs what
it calls. Lines that the change replaced are judged together, as one place; the others keep their
cost if only their numbers moved (``gate.edits``). The statistics are those of functions
(``gate.costs``), place by place, with Bonferroni's correction over all changed ones,
and over all others.

A changed line that only calls a slower one is not to blame: it is named if it costs more without
the changed lines below it. The header of a loop is to blame for the whole loop, if all of the loop
costs more alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_flamegate.core.git import FileChange
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.costs import (
    MOST,
    CostChange,
    cost_changes,
    share_changes,
)
from pytest_flamegate.gate.edits import Place, map_lines
from pytest_flamegate.gate.measurement import Measurement
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.profile.model import Profile, SourceLine
from pytest_flamegate.receipt.types import ProcessProfile

MIN_SHARE = 0.01
"""Places with at least this share of the samples on either side are judged."""
_ALIKE = 0.5
"""Lines of a loop that runs more often grow by at least this part of the loop's growth."""
_FEWEST_SAMPLES = 30
"""Lines of a loop with fewer samples on both sides together do not say how they grew."""
_MOST_GROWTH = 1.5
"""A line in such a loop that grew more, by this factor, got slower itself."""
_BELOW = 0.2
"""A place is below another one if this part of its samples passes that."""

PlaceStack = tuple[Place, ...]
"""The places that a sample passes, root first, each once."""


@dataclass(frozen=True, slots=True)
class PlaceCounts:
    """Samples of one process by the places that they pass, and by place: passed, and ended in."""

    samples: int
    stacks: Mapping[PlaceStack, int]
    passed: Counter[Place]
    own: Counter[Place]


@dataclass(frozen=True, slots=True)
class LineSamples:
    """The samples of every profiled process of both sides, by place of the head.

    ``blocks`` are the lines of the loops that a changed place controls.
    """

    base: tuple[PlaceCounts, ...]
    head: tuple[PlaceCounts, ...]
    blocks: Mapping[Place, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether no sample of the head is at a known line."""
        return not any(process.own for process in self.head)


@dataclass(frozen=True, slots=True)
class LineChange:
    """The cost of one place before and after, in µs per token.

    That of a changed place has everything that it calls in it, without other changed places that
    are named too. That of another place is its own alone.
    """

    place: Place
    cost: CostChange


def count_lines(
    base: Sequence[Profile], head: Sequence[Profile], changes: Sequence[FileChange]
) -> LineSamples:
    """Count the samples of both sides' processes by place; ``changes`` are those of the head."""
    files = {
        line.file
        for side in (base, head)
        for each in side
        for stack in each.lines
        for line in stack
    }
    lines = map_lines([each for each in changes if files & {each.base_file, each.head_file}])
    return LineSamples(
        tuple(_count(profile, lines.base_place) for profile in base),
        tuple(_count(profile, lines.head_place) for profile in head),
        lines.blocks,
    )


def _count(profile: Profile, place: Callable[[SourceLine], Place]) -> PlaceCounts:
    stacks, passed, own = Counter[PlaceStack](), Counter[Place](), Counter[Place]()
    for lines, samples in profile.lines.items():
        # The time was spent in the last place, even if it called itself.
        places = dict.fromkeys(place(line) for line in reversed(lines))
        stack = tuple(reversed(places))
        stacks[stack] += samples
        own[stack[-1]] += samples
        for each in stack:
            passed[each] += samples
    return PlaceCounts(profile.samples, stacks, passed, own)


def line_changes(
    samples: LineSamples,
    baseline: Measurement,
    current: Measurement,
    rates: ErrorRates,
    cpu: Estimate | None,
) -> tuple[LineChange, ...]:
    """Return the places whose cost certainly changed: changed places first, largest change first.

    Unchanged places follow if the changed ones explain less than most of it. Places
    whose cost moved against the whole come last.
    """
    return _Judge(samples, baseline, current, rates, cpu).judge()


_HERE = "(here)"

_Count = Callable[[PlaceCounts], int]
_Places = frozenset[Place]


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A changed place whose cost certainly changed; ``lines`` are those of its loop, or itself."""

    place: Place
    lines: _Places
    cost: CostChange

    @property
    def is_loop(self) -> bool:
        """Whether the place is the header of a loop that runs more or less often."""
        return len(self.lines) > 1


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges places, each among a family of others."""

    samples: LineSamples
    baseline: Measurement
    current: Measurement
    rates: ErrorRates
    cpu: Estimate | None

    def judge(self) -> tuple[LineChange, ...]:
        passed, own = self._hot_places("passed"), self._hot_places("own")
        changed = {place for place in passed if place.is_changed} | self.samples.blocks.keys()
        suspects = [self._suspect(place, len(changed)) for place in sorted(changed)]
        found = self._without_callers([each for each in suspects if each], len(changed))
        named = [(self._name(each), each.cost) for each in found]
        # A changed line may call another one: together they explain less than their sum.
        whole = self._cost_of(_passes(_union(found)))
        if not found or whole is None or (whole.explains or 0.0) < MOST:
            others = [place for place in own if not place.is_changed]
            costs = [self._find_cost(_ends_in(place), len(others)) for place in others]
            pairs = zip(others, costs, strict=True)
            named += [(place, cost) for place, cost in pairs if cost is not None]
        named.sort(
            key=lambda each: (
                (each[1].explains or 0.0) < 0.0,
                not each[0].is_changed,
                -abs(each[1].change_us),
            )
        )
        return tuple(
            LineChange(place, replace(cost, name=str(place), no_more_than_us=math.inf))
            for place, cost in named
        )

    def _hot_places(self, kind: Literal["passed", "own"]) -> Sequence[Place]:
        """Return the places that are worth judging."""
        found = set[Place]()
        for side in (self.samples.base, self.samples.head):
            counts = Counter[Place]()
            for process in side:
                counts.update(getattr(process, kind))
            total = sum(process.samples for process in side)
            found |= {place for place, count in counts.items() if count >= MIN_SHARE * total}
        return sorted(found)

    def _cost_of(self, count: _Count) -> CostChange | None:
        """Return the change of the cost of the samples that are counted; None if there is none."""
        base, head = (
            [_as_profile(process, count(process)) for process in side]
            for side in (self.samples.base, self.samples.head)
        )
        shares = share_changes(base, head, [_HERE], self.rates.alpha, self.baseline.profiler)
        costs = cost_changes(
            shares, self.baseline, self.current, self.rates, whole_changed=True, cpu=self.cpu
        )
        return next((cost for cost in costs if cost.name == _HERE), None)

    def _find_cost(self, count: _Count, family: int) -> CostChange | None:
        """Return the change of the cost of the samples that are counted; None if not certain."""
        cost = self._cost_of(count)
        is_certain = cost is not None and cost.p_adjusted * family <= self.rates.false_alarm
        return cost if is_certain else None

    def _suspect(self, place: Place, family: int) -> _Suspect | None:
        """Return a changed place with its cost, or that of its loop; None if not certain."""
        alone = frozenset([place])
        if place in self.samples.blocks:
            first, last = self.samples.blocks[place]
            loop = alone.union(
                each
                for process in (*self.samples.base, *self.samples.head)
                for each in process.passed
                if each.file == place.file and first <= each.first <= last
            )
            cost = self._find_cost(_passes(loop), family)
            if cost is not None and self._grows_alike(loop - alone, cost):
                return _Suspect(place, loop, cost)
        cost = self._find_cost(_passes(alone), family)
        return None if cost is None else _Suspect(place, alone, cost)

    def _grows_alike(self, lines: _Places, loop: CostChange) -> bool:
        """Whether no line of a loop grew much less than all of it, and unchanged ones grew too.

        If only some did, not the number of passes grew.
        """
        part = _ALIKE * loop.change_us / max(loop.baseline_us, 1e-3)
        processes = (*self.samples.base, *self.samples.head)
        evidence = False
        for line in lines:
            if sum(each.passed[line] for each in processes) < _FEWEST_SAMPLES:
                continue
            cost = self._cost_of(_passes(frozenset([line])))
            if cost is None:
                continue
            # A compiler may count the same work for another line: one may well grow more.
            expected_us = part * cost.baseline_us
            if cost.ci_high_us < expected_us if part > 0.0 else cost.ci_low_us > expected_us:
                return False
            evidence = evidence or not line.is_changed
        return evidence

    def _name(self, suspect: _Suspect) -> Place:
        """Return the whole loop for an exit that is gone: it has no line in the head."""
        place = suspect.place
        first, last = self.samples.blocks[place] if suspect.is_loop else (place.first, place.last)
        return replace(place, first=first, last=last) if first < place.first else place

    def _without_callers(self, suspects: Sequence[_Suspect], family: int) -> Sequence[_Suspect]:
        """Leave out the changed places that cost more only because of others that they call.

        A new call is to blame for what it calls, and a loop for all that runs more often in it.
        """
        found = list(suspects)
        for each in suspects:
            inner = [other for other in found if self._is_below(other, each)]
            if not inner or each not in found:
                continue
            if each.is_loop:
                most = _MOST_GROWTH * _growth(each.cost)
                found = [o for o in found if o not in inner or _growth(o.cost) >= most]
                continue
            rest = self._find_cost(_passes(each.lines, without=_union(inner)), family)
            if rest is not None and rest.change_us * each.cost.change_us > 0:
                found[found.index(each)] = replace(each, cost=rest)
            elif self._calls_newly(each.place, inner, family):
                found = [other for other in found if other not in inner]
            else:
                found.remove(each)
        return found

    def _is_below(self, inner: _Suspect, caller: _Suspect) -> bool:
        """Whether samples of a place pass another before it that changed in its direction."""
        if inner == caller or inner.cost.change_us * caller.cost.change_us <= 0:
            return False
        whole = below = 0
        for process in self.samples.head:
            for stack, count in process.stacks.items():
                if inner.place in stack:
                    whole += count
                    # A line of the loop itself is below its header.
                    above = stack[: stack.index(inner.place) + 1]
                    below += count * (not caller.lines.isdisjoint(above))
        return below >= _BELOW * whole > 0

    def _calls_newly(self, place: Place, inner: Sequence[_Suspect], family: int) -> bool:
        """Whether the base never called ``inner`` from a place, and other calls cost as before."""
        below = _union(inner)
        before = sum(
            count
            for process in self.samples.base
            for stack, count in process.stacks.items()
            if place in stack and not below.isdisjoint(stack)
        )
        return before == 0 and not any(
            self._find_cost(_passes(each.lines, without=frozenset([place])), family)
            for each in inner
        )


def _union(suspects: Sequence[_Suspect]) -> _Places:
    return frozenset().union(*(each.lines for each in suspects))


def _passes(places: _Places, without: _Places = frozenset()) -> _Count:
    """Count the samples that pass any of some places, and none of the others."""
    if len(places) == 1 and not without:
        (place,) = places
        return lambda process: process.passed[place]
    return lambda process: sum(
        count
        for stack, count in process.stacks.items()
        if not places.isdisjoint(stack) and without.isdisjoint(stack)
    )


def _ends_in(place: Place) -> _Count:
    return lambda process: process.own[place]


def _growth(cost: CostChange) -> float:
    """Return the logarithm of the factor by which a cost grew or fell."""
    return abs(math.log(max(cost.current_us, 1e-3) / max(cost.baseline_us, 1e-3)))


def _as_profile(process: PlaceCounts, here: int) -> ProcessProfile:
    rest = process.samples - here
    counts = {_HERE: here, "(elsewhere)": rest}
    return ProcessProfile(1, process.samples, {name: n for name, n in counts.items() if n})

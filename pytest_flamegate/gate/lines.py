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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_flamegate.core.git import FileChange
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.costs import (
    MOST,
    PRIOR_SPREAD,
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

    def count(self, is_counted: Callable[[PlaceStack], bool]) -> int:
        """Return the samples whose places fulfil a condition."""
        return sum(count for stack, count in self.stacks.items() if is_counted(stack))


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


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges places, each among ``family`` others."""

    samples: LineSamples
    baseline: Measurement
    current: Measurement
    rates: ErrorRates
    cpu: Estimate | None

    def judge(self) -> tuple[LineChange, ...]:
        passed, own = self._hot_places("passed"), self._hot_places("own")
        changed = {place for place in passed if place.is_changed} | self.samples.blocks.keys()
        others = [place for place in own if not place.is_changed]
        certain: dict[Place, CostChange] = {}
        loops = set[Place]()
        for place in sorted(changed):
            cost = self._find_cost(_passes(place), len(changed))
            if place in self.samples.blocks:
                loop = self._find_cost(self._passes_loop(place), len(changed))
                if loop is not None and self._grows_alike(place, loop):
                    loops.add(place)
                    cost = loop
            if cost is not None:
                certain[place] = cost
        found = self._without_callers(certain, loops, len(changed))
        # A changed line may call another one: together they explain less than their sum.
        whole = self._cost_of(lambda process: self._count_any(process, found, loops))
        if not found or whole is None or (whole.explains or 0.0) < MOST:
            for place in others:
                cost = self._find_cost(_ends_in(place), len(others))
                if cost is not None:
                    found[place] = cost
        named = [(self._name(place, loops), cost) for place, cost in found.items()]
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

    def _hot_places(self, kind: Literal["passed", "own"]) -> list[Place]:
        """Return the places that are worth judging."""
        found = set[Place]()
        for side in (self.samples.base, self.samples.head):
            counts = Counter[Place]()
            for process in side:
                counts.update(getattr(process, kind))
            total = sum(process.samples for process in side)
            found |= {place for place, count in counts.items() if count >= MIN_SHARE * total}
        return sorted(found)

    def _count_any(
        self, process: PlaceCounts, places: Collection[Place], loops: Collection[Place]
    ) -> int:
        """Count the samples that pass any of the places, or a loop that one of them controls."""
        inside = [place for place in places if place in loops]
        return process.count(
            lambda stack: any(
                each in places or any(self._is_in_loop(each, loop) for loop in inside)
                for each in stack
            )
        )

    def _cost_of(self, count: _Count) -> CostChange | None:
        """Return the change of the cost of the samples that are counted; None if there is none."""
        base, head = (
            [_as_profile(process, count(process)) for process in side]
            for side in (self.samples.base, self.samples.head)
        )
        shares = share_changes(base, head, [_HERE], self.rates.alpha)
        costs = cost_changes(
            shares, self.baseline, self.current, self.rates, whole_changed=True, cpu=self.cpu
        )
        return next((cost for cost in costs if cost.name == _HERE), None)

    def _find_cost(self, count: _Count, family: int) -> CostChange | None:
        """Return the change of the cost of the samples that are counted; None if not certain."""
        cost = self._cost_of(count)
        is_certain = cost is not None and cost.p_adjusted * family <= self.rates.false_alarm
        return cost if is_certain else None

    # loops

    def _is_in_loop(self, place: Place, loop: Place) -> bool:
        first, last = self.samples.blocks[loop]
        return place.file == loop.file and first <= place.first <= last

    def _passes_loop(self, loop: Place) -> _Count:
        return lambda process: process.count(
            lambda stack: any(each == loop or self._is_in_loop(each, loop) for each in stack)
        )

    def _grows_alike(self, loop: Place, cost: CostChange) -> bool:
        """Whether no line of a loop grew much less than all of it, and unchanged ones grew too.

        If only some did, not the number of passes grew.
        """
        base, head = Counter[Place](), Counter[Place]()
        for counts, side in ((base, self.samples.base), (head, self.samples.head)):
            for process in side:
                for stack, count in process.stacks.items():
                    inside = [each for each in stack if self._is_in_loop(each, loop)]
                    if inside:  # the outermost line counts all that it calls
                        counts[inside[0]] += count
        growth = _growth(cost)
        # Counts are parts of a side's samples, whose number says nothing about time.
        scale = growth - math.log(max(head.total(), 1) / max(base.total(), 1))
        evidence = False
        for each in (base.keys() | head.keys()) - {loop}:
            before, after = base[each] + 0.5, head[each] + 0.5
            if before + after < _FEWEST_SAMPLES:
                continue
            error = 2.0 * math.sqrt(PRIOR_SPREAD / before + PRIOR_SPREAD / after)
            grown = math.log(after / before) + scale
            # A compiler may count the same work for another line: one may well grow more.
            behind = math.copysign(1.0, growth) * (growth - grown)
            if behind > _ALIKE * abs(growth) + error:
                return False
            evidence = evidence or not each.is_changed
        return evidence

    def _name(self, place: Place, loops: Collection[Place]) -> Place:
        """Return the whole loop for an exit that is gone: it has no line in the head."""
        first, last = self.samples.blocks[place] if place in loops else (place.first, place.last)
        return replace(place, first=first, last=last) if first < place.first else place

    # lines that call each other

    def _without_callers(
        self, certain: Mapping[Place, CostChange], loops: Collection[Place], family: int
    ) -> dict[Place, CostChange]:
        """Leave out the changed places that cost more only because of others that they call.

        A new call is to blame for what it calls, and a loop for all that runs more often in it.
        """
        found = dict(certain)
        for place, cost in certain.items():
            inner = [each for each in found if self._is_below(each, place, loops, certain)]
            if not inner or place not in found:
                continue
            if place in loops:
                alike = [each for each in inner if _growth(certain[each]) < 1.5 * _growth(cost)]
                found = {each: found[each] for each in found if each not in alike}
                continue
            rest = self._find_cost(_passes(place, without=inner), family)
            if rest is not None and rest.change_us * cost.change_us > 0:
                found[place] = rest
            elif self._calls_newly(place, inner, family):
                found = {each: found[each] for each in found if each not in inner}
            else:
                del found[place]
        return found

    def _is_below(
        self,
        place: Place,
        caller: Place,
        loops: Collection[Place],
        certain: Mapping[Place, CostChange],
    ) -> bool:
        """Whether samples of a place pass another before it that changed in its direction."""
        if place == caller or certain[place].change_us * certain[caller].change_us <= 0:
            return False
        whole = below = 0
        for process in self.samples.head:
            for stack, count in process.stacks.items():
                if place in stack:
                    whole += count
                    above = stack[: stack.index(place)]
                    is_inside = caller in loops and any(
                        self._is_in_loop(each, caller) for each in (*above, place)
                    )
                    below += count * (is_inside or caller in above)
        return below >= _BELOW * whole > 0

    def _calls_newly(self, place: Place, inner: Sequence[Place], family: int) -> bool:
        """Whether the base never called ``inner`` from a place, and other calls cost as before."""
        before = sum(
            process.count(lambda stack: place in stack and any(each in stack for each in inner))
            for process in self.samples.base
        )
        return before == 0 and not any(
            self._find_cost(_passes(each, without=[place]), family) for each in inner
        )


_Count = Callable[[PlaceCounts], int]


def _passes(place: Place, without: Collection[Place] = ()) -> _Count:
    """Count the samples that pass a place, and none of the others."""
    if not without:
        return lambda process: process.passed[place]
    return lambda process: process.count(
        lambda stack: place in stack and not any(each in stack for each in without)
    )


def _ends_in(place: Place) -> _Count:
    return lambda process: process.own[place]


def _growth(cost: CostChange) -> float:
    """Return the logarithm of the factor by which a cost grew."""
    return math.log(max(cost.current_us, 1e-3) / max(cost.baseline_us, 1e-3))


def _as_profile(process: PlaceCounts, here: int) -> ProcessProfile:
    rest = process.samples - here
    counts = {_HERE: here, "(elsewhere)": rest}
    return ProcessProfile(1, process.samples, {name: n for name, n in counts.items() if n})

"""Runs that repeat one another: copied, put in another order, or multiplied by a constant.

Two runs that really happened share next to no time: the clock tells nanoseconds, and
gaps differ by thousands of them. How often two honest times do agree depends on the
clock and on how steady the engine is, so it is estimated from the evidence itself: from
the room between different times, and from those that agree within one sequence. More
agreement than chance allows between two runs, two blocks or two sequences is a copy.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_flamegate.workload.observation import Block, Run

SHORTEST_GAP_NS = 20_000
"""Tokens that came in one read have gaps of almost nothing: they tell the reader's loop."""
SHORTEST_SCALED_NS = 100_000
"""Below this a gap multiplied and rounded has lost too much of its ratio to its neighbour."""
RATIO_STEPS = 30_000
"""Ratios of neighbours are compared in steps of 1/30,000: coarser than rounding makes them."""
SURPRISE = 30.0
"""A copy is told only where chance would make it once in e^30, some 10^13 times."""

_FEWEST = 4
_MOST_HOLDERS = 16
_CAUTION = 4.0
_CROWDED = 0.1
_STEPPED = 8.0
_SHIFT = 64
_WHOLE_US = 1000


@dataclass(frozen=True, slots=True)
class Repetition:
    """Two runs, by their index, that agree in ``shared`` of ``of`` times, or ratios of times.

    Both indices are the same where a run repeats itself.
    """

    one: int
    other: int
    shared: int
    of: int
    what: str


def repetitions(runs: Sequence[Run]) -> Iterator[Repetition]:
    """Yield each pair of ``runs`` that cannot have happened apart, each once."""
    gaps, ratios = _Times("token times"), _Times("ratios of token times")
    clocks = _Times("times of their processes")
    for index, run in enumerate(runs):
        clocks.add((index, 0, 0), _clocks(run))
        for number, block in enumerate(run.blocks):
            for position, sequence in enumerate(_sequences(block)):
                place = (index, number, position)
                gaps.add(place, [gap for gap in sequence if gap >= SHORTEST_GAP_NS])
                ratios.add(place, _ratios(sequence))
    crowding = _crowding(gaps.different)
    first_ratios = {both >> _SHIFT for both in ratios.different}
    told = set()
    for times, chance in (
        (gaps, crowding),
        # Ratios of coarse times agree for that reason alone.
        (ratios, _crowding(first_ratios) ** 2 if crowding < _CROWDED else 1.0),
        (clocks, _crowding(clocks.different)),
    ):
        for each in times.repeated(chance):
            if (each.one, each.other) not in told:
                told.add((each.one, each.other))
                yield each


_Place = tuple[int, ...]
"""Run, block and sequence, by their indices; shorter where it is all of a block or run."""


@dataclass(slots=True)
class _Times:
    """Where each time was seen, and how often two places share one."""

    what: str
    _holders: dict[int, list[_Place]] = field(default_factory=dict)
    _sizes: Counter[_Place] = field(default_factory=Counter)
    _shared: Counter[tuple[_Place, _Place]] = field(default_factory=Counter)
    _within: int = 0
    _pairs: int = 0

    def add(self, place: _Place, times: Sequence[int]) -> None:
        """Add what was seen at ``place``."""
        for level in (1, 2, 3):
            self._sizes[place[:level]] += len(times)
        self._pairs += len(times) * (len(times) - 1) // 2
        if len(set(times)) < len(times):
            self._within += sum(n * (n - 1) // 2 for n in Counter(times).values())
        for time in times:
            holders = self._holders.setdefault(time, [])
            if holders:
                self._shared.update(_meeting(holders, place))
            # A time that everybody holds tells nothing, and would take quadratic time to say so.
            if len(holders) < _MOST_HOLDERS:
                holders.append(place)

    @property
    def different(self) -> Collection[int]:
        """All times that differ."""
        return self._holders.keys()

    def repeated(self, crowding: float) -> Iterator[Repetition]:
        """Yield what two places share beyond chance, the largest agreement first."""
        within = self._within / self._pairs if self._pairs else 0.0
        chance = _CAUTION * max(within, crowding / max(1, len(self._holders)))
        for (one, other), times in self._shared.most_common():
            of = min(self._sizes[one], self._sizes[other])
            shared = min(times, of)
            expected = chance * max(self._sizes[one], self._sizes[other])
            if (
                shared >= _FEWEST
                and 2 * shared >= of
                and _surprise(shared, of, expected) > SURPRISE
            ):
                yield Repetition(one[0], other[0], shared, of, self.what)


def _crowding(times: Collection[int]) -> float:
    """Return the chance that one more time is equal to one of the different ``times``, 0 to 1.

    It is the clock's step by the room that a time has to itself. Copies do not change it,
    for they add no time that differs.
    """
    if len(times) < _FEWEST:
        return 1.0
    ordered = sorted(times)
    rooms = sorted(later - earlier for earlier, later in pairwise(ordered))
    mean = (ordered[-1] - ordered[0]) / len(rooms)
    # Some clocks tick in steps that are no whole number of nanoseconds.
    stepped = rooms[0] * len(rooms) > _STEPPED * mean
    step = rooms[0] if stepped else math.gcd(*ordered)
    return min(1.0, step / rooms[len(rooms) // 2])


def _meeting(holders: Sequence[_Place], place: _Place) -> Iterable[tuple[_Place, _Place]]:
    """Return each pair of runs, blocks and sequences that meets in one time, once."""
    return {
        (holder[:level], place[:level])
        for holder in holders
        for level in (1, 2, 3)
        if holder[:level] != place[:level]
    }


def _surprise(shared: int, of: int, chance: float) -> float:
    """Return -ln of a bound on the probability that ``shared`` or more ``of`` agree by chance.

    Chernoff's bound for the binomial distribution; ``chance`` is that of a single one.
    """
    part = shared / of
    if part <= chance:
        return 0.0
    rest = (1 - part) * math.log((1 - part) / (1 - chance)) if part < 1 else 0.0
    return of * (part * math.log(part / chance) + rest)


def _sequences(block: Block) -> Sequence[tuple[int, ...]]:
    """Return the block's sequences, as a single one where each by itself is too short to tell."""
    if any(len(gaps) >= _FEWEST for gaps in block.sequences_ns):
        return block.sequences_ns
    return (tuple(gap for gaps in block.sequences_ns for gap in gaps),)


def _ratios(gaps: Sequence[int]) -> list[int]:
    """Return two ratios of neighbours in one number, for each three gaps that follow one another.

    They stay the same where all gaps are multiplied by one constant.
    """
    steps = [
        round(RATIO_STEPS * later / earlier) if min(earlier, later) >= SHORTEST_SCALED_NS else None
        for earlier, later in pairwise(gaps)
    ]
    return [
        (first << _SHIFT) + second
        for first, second in pairwise(steps)
        if first is not None and second is not None
    ]


def _clocks(run: Run) -> list[int]:
    """Return the times of the process itself, but for those that were counted in coarse steps."""
    times = [run.load_ns or 0]
    for block in run.blocks:
        for interval in (block.interval, block.reference, block.decode):
            if interval is not None:
                times += (interval.wall_ns, interval.cpu_ns)
    return [time for time in times if time >= SHORTEST_GAP_NS and time % _WHOLE_US]

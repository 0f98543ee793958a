"""Runs that repeat one another: copied, reordered, shifted or scaled by a constant.

Two runs that really happened share no times, because the clock counts nanoseconds and honest
times differ by thousands of them. A coarse clock or a very steady engine repeats times by
chance, so the chance of each agreement is estimated from times that agree within one sequence,
which no copy of a whole sequence changes.

A forger who adds random noise to a copy is not found here: no file shows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import NamedTuple

from pytest_flamegate.observe.observation import Run

SHORTEST_NS = 20_000
"""Shorter times of a process are equal by chance."""
CHANCE = 1e-3
"""How many repetitions may be expected by chance, of all rows with each other."""
SCALED_CHANCE = 1e-6
"""The same of two runs that are neighbours."""
CAUTION = 4.0
"""Times at the same place of two sequences are equal more often than two times of one sequence."""
SCALED_AGREEMENT = 1e-6
"""Relative difference of two proportional sums of gaps; rounding to nanoseconds causes less."""
_FEWEST = 4
_WHOLE_US = 1000


_Row = tuple[int, tuple[int, ...]]
"""The index of a run, and times of it in nanoseconds."""


class Repetition(NamedTuple):
    """Two runs, by index, that share ``times``. The indices are equal if a run repeats itself."""

    one: int
    other: int
    times: str


def find_repetitions(runs: Sequence[Run]) -> Iterator[Repetition]:
    """Yield each pair of ``runs`` that cannot have happened independently, each pair once."""
    gaps = [row for index, run in enumerate(runs) for row in _iter_gaps(index, run)]
    # Figures come from timed runs alone, so only those are worth shifting or scaling.
    timed = [(index, run) for index, run in enumerate(runs) if run.role == "timed"]
    numbers = {index for index, _ in timed}
    long = [each for each in gaps if each[0] in numbers and len(each[1]) > _FEWEST]
    # Honest rows hardly ever have their first steps in common, and then none is shifted.
    if len({(row[1] - row[0], row[2] - row[1]) for _, row in long}) == len(long):
        long = []
    steps = [(index, tuple(b - a for a, b in pairwise(row))) for index, row in long]
    clocks = [(index, _read_clocks(run)) for index, run in enumerate(runs)]
    reported: set[tuple[int, int]] = set()
    for each in chain(
        _find_equal(gaps, "the times of a sequence of tokens"),
        _find_equal(steps, "the differences between token times"),
        _find_equal(clocks, "the times of their processes"),
        _find_scaled(timed),
    ):
        if each[:2] not in reported:
            reported.add(each[:2])
            yield each


def _find_equal(rows: Sequence[_Row], times: str) -> Iterator[Repetition]:
    """Yield rows that are equal, unless their times repeat by chance."""
    long = [entry for entry in rows if len(entry[1]) >= _FEWEST]
    # Honest rows hardly ever repeat, and then this is all there is to do.
    if len({row for _, row in long}) == len(long):
        return
    equal, pairs = Counter[int](), Counter[int]()
    for index, row in rows:
        equal[index] += sum(math.comb(count, 2) for count in Counter(row).values())
        pairs[index] += math.comb(len(row), 2)
    overall = (equal.total() + 1) / (pairs.total() + 1)
    first: dict[tuple[int, ...], int] = {}
    for other, row in long:
        if row not in first:
            first[row] = other
            continue
        # A run may be steadier than the others, and then its times repeat more often.
        ends = (first[row], other)
        chance = max(overall, *(equal[run] / max(1, pairs[run]) for run in ends))
        if math.comb(len(long), 2) * (CAUTION * chance) ** len(row) < CHANCE:
            yield Repetition(*ends, times)


def _find_scaled(runs: Sequence[tuple[int, Run]]) -> Iterator[Repetition]:
    """Yield timed runs whose sequences took times proportional to those of another run."""
    found = []
    for index, run in runs:
        sums = _sums(run)
        if len(sums) > _FEWEST and (total := sum(sums)) > 0:
            shares = tuple(each / total for each in sums)
            found.append((shares, math.gcd(*sums) / total, index))
    # Sorted by their first share, proportional runs are neighbours.
    for (one, step, at), (other, other_step, later) in pairwise(sorted(found)):
        if len(one) == len(other) and _is_scaled(one, other, max(step, other_step)):
            yield Repetition(min(at, later), max(at, later), "the proportions of their sequences")


def _is_scaled(one: Sequence[float], other: Sequence[float], step: float) -> bool:
    """Whether all shares agree, and vary by so many clock steps that this is no accident."""
    chance = 1.0
    spread = max(one) - min(one)
    for share, again in zip(one, other, strict=True):
        slack = SCALED_AGREEMENT * share
        if abs(share - again) > slack:
            return False
        chance *= min(1.0, 2 * max(slack, step) / spread) if spread else 1.0
    return chance < SCALED_CHANCE


def _sums(run: Run) -> list[int]:
    """Return the time of each sequence; of each gap if the run has a single sequence."""
    sequences = [gaps for block in run.blocks for gaps in block.sequences_ns if gaps]
    return [*sequences[0]] if len(sequences) == 1 else [*map(sum, sequences)]


def _iter_gaps(index: int, run: Run) -> Iterator[_Row]:
    """Yield the gaps of each sequence, or of each block if its sequences are too short."""
    for block in run.blocks:
        if max(map(len, block.sequences_ns), default=0) >= _FEWEST:
            yield from zip(repeat(index), block.sequences_ns)
        else:
            yield index, tuple(chain.from_iterable(block.sequences_ns))


def _read_clocks(run: Run) -> tuple[int, ...]:
    """Return wall and CPU times of the process itself, without those in whole microseconds."""
    times = [run.load_ns or 0]
    for block in run.blocks:
        for interval in (block.interval, block.reference, block.decode):
            if interval is not None:
                times += (interval.wall_ns, interval.cpu_ns)
    return tuple(time for time in times if time >= SHORTEST_NS and time % _WHOLE_US)

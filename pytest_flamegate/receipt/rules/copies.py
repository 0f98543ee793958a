"""Runs that repeat one another: copied, reordered, multiplied or raised by a constant.

Two runs that really happened share next to no time: the clock tells nanoseconds, and
gaps differ by thousands of them. How often two honest times do agree depends on the
clock and on how steady the engine is, so it is estimated from the evidence itself: from
the room between different times, and from those that agree within one sequence. More
agreement than chance allows between two runs, two blocks or two sequences is a copy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain, compress, pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Sized

    from pytest_flamegate.observe.observation import Block, Run


SHORTEST_GAP_NS = 20_000
"""Tokens that came in one read have gaps of almost nothing: they tell the reader's loop."""
SHORTEST_SCALED_NS = 100_000
"""Below this a gap multiplied and rounded has lost too much of its ratio to its neighbour."""
RATIO_STEPS = 30_000
"""Ratios of neighbours are compared in steps of 1/30,000: coarser than rounding makes them."""
MOST_GAPS = 2048
"""So many gaps of each run are looked at: enough to know a copy, and the time stays bounded."""
SURPRISE = 30.0
"""A copy is told only where chance would make it once in e^30, some 10^13 times."""

_FEWEST = 4
_MOST_HOLDERS = 16
_CAUTION = 4.0
_CROWDED = 0.1
_STEPPED = 8.0
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
    gaps: _Times[int] = _Times("token times")
    ratios: _Times[tuple[int, int]] = _Times("ratios of token times")
    steps: _Times[tuple[int, int]] = _Times("differences of token times")
    clocks: _Times[int] = _Times("times of their processes")
    for index, run in enumerate(runs):
        own = _clocks(run)
        clocks.add((index, 0), own, [len(own)])
        left = MOST_GAPS
        for number, block in enumerate(run.blocks):
            sequences = _first_of(_sequences(block), left)
            lengths = [*map(len, sequences)]
            flat = [*chain.from_iterable(sequences)]
            left -= len(flat)
            gaps.add((index, number), *_long_gaps(flat, lengths))
            if run.role == "timed":
                # Figures are made of these alone: nobody gains by others multiplied or raised.
                ratios.add((index, number), *_ratios(flat, lengths))
                steps.add((index, number), *_steps(flat, lengths))
    told = set()
    for times, crowding in (
        (gaps, lambda: _crowding(gaps.different)),
        (ratios, lambda: _crowding_of_pairs(ratios.different, gaps.different)),
        (steps, lambda: _crowding_of_pairs(steps.different, gaps.different)),
        (clocks, lambda: _crowding(clocks.different)),
    ):
        for each in times.repeated(crowding):
            if (each.one, each.other) not in told:
                told.add((each.one, each.other))
                yield each


_Place = tuple[int, ...]
"""Run, block and sequence, by their indices; shorter where it is all of a block or run."""
_Levels = tuple[_Place, _Place, _Place]
"""A run, the block in it, and the sequence in that."""

_Time = TypeVar("_Time", int, tuple[int, int])


@dataclass(slots=True)
class _Times(Generic[_Time]):
    """What was seen in each block, and how often two places share a time.

    Honest times hardly ever meet. So all are counted at once, and only those that were seen
    twice are looked for in their places.
    """

    what: str
    _blocks: list[tuple[_Place, Sequence[_Time], list[int]]] = field(default_factory=list)
    _counted: Counter[_Time] = field(default_factory=Counter)

    def add(self, block: _Place, times: list[_Time], lengths: list[int]) -> None:
        """Add the ``times`` of a block; ``lengths`` says how many each of its sequences has."""
        self._blocks.append((block, times, lengths))
        self._counted.update(times)

    @property
    def different(self) -> Collection[_Time]:
        """All times that differ."""
        return self._counted.keys()

    def repeated(self, crowding: Callable[[], float]) -> Iterator[Repetition]:
        """Yield what two places share beyond chance, the largest agreement first.

        ``crowding`` is asked for the chance that two times agree only where many do.
        """
        sizes = _Sizes(self._blocks)
        alike = []
        for (one, other), times in self._meetings().most_common():
            if times < _FEWEST:
                break
            of = min(sizes[one], sizes[other])
            shared = min(times, of)
            if shared >= _FEWEST and 2 * shared >= of:
                alike.append((one, other, shared, of))
        chance = _CAUTION * self._chance(crowding) if alike else 0.0
        repeats: dict[int, float] = {}
        for one, other, shared, of in alike:
            likely = chance
            if one[0] != other[0]:
                # How often each run meets its own times bounds how often two of them meet.
                for run in (one[0], other[0]):
                    if run not in repeats:
                        repeats[run] = self._repeats(run)
                likely = max(chance, _CAUTION * math.sqrt(repeats[one[0]] * repeats[other[0]]))
            expected = likely * max(sizes[one], sizes[other])
            if _surprise(shared, of, expected) > SURPRISE:
                yield Repetition(one[0], other[0], shared, of, self.what)

    def _chance(self, crowding: Callable[[], float]) -> float:
        """Return the chance that two times agree: by the clock, or by how steady they are."""
        within = pairs = 0
        for _, times, lengths in self._blocks:
            for row in _rows(times, lengths):
                pairs += len(row) * (len(row) - 1) // 2
                if len(set(row)) < len(row):
                    within += sum(n * (n - 1) // 2 for n in Counter(row).values())
        steadiness = within / pairs if pairs else 0.0
        return max(steadiness, crowding() / max(1, len(self.different)))

    def _repeats(self, run: int) -> float:
        """Return the chance that two times of one ``run`` agree."""
        counted: Counter[_Time] = Counter()
        for place, times, _ in self._blocks:
            if place[0] == run:
                counted.update(times)
        pairs = counted.total() * (counted.total() - 1) // 2
        return sum(n * (n - 1) // 2 for n in counted.values()) / pairs if pairs else 0.0

    def _seen_at(self, wanted: Container[_Time]) -> Iterator[tuple[_Levels, _Time]]:
        """Yield where each of the times ``wanted`` was seen, in order."""
        block: _Place
        times: Sequence[_Time]
        lengths: list[int]
        for block, times, lengths in self._blocks:
            found: list[int] = [*compress(range(len(times)), map(wanted.__contains__, times))]
            ends = [*accumulate(lengths)] if found else []
            for index in found:
                sequence = (*block, bisect_right(ends, index))
                yield (block[:1], block, sequence), times[index]

    def _meetings(self) -> Counter[tuple[_Place, _Place]]:
        """Return how many times each two places share."""
        shared: Counter[tuple[_Place, _Place]] = Counter()
        if self._counted.total() < len(self._counted) + _FEWEST:
            return shared
        holders_of: dict[_Time, list[_Levels]] = {
            time: [] for time, seen in self._counted.items() if seen > 1
        }
        for place, time in self._seen_at(holders_of):
            holders = holders_of[time]
            # A time that everybody holds tells nothing, and would take quadratic time to say so.
            if len(holders) < _MOST_HOLDERS:
                # Each pair of runs, blocks and sequences meets once in one time.
                pairs = chain.from_iterable(zip(holder, place, strict=True) for holder in holders)
                for pair in set(pairs):
                    if pair[0] != pair[1]:
                        shared[pair] += 1
                if place not in holders:
                    holders.append(place)
        return shared


class _Sizes(dict[_Place, int]):
    """How many times each place holds; a sequence's is looked up when it is asked for."""

    def __init__(self, blocks: Iterable[tuple[_Place, Sized, list[int]]]) -> None:
        """Add up the runs and the blocks."""
        super().__init__()
        self._lengths: dict[_Place, list[int]] = {}
        for block, times, lengths in blocks:
            self._lengths[block] = lengths
            self[block] = len(times)
            self[block[:1]] = self.get(block[:1], 0) + len(times)

    def __missing__(self, sequence: _Place) -> int:
        return self._lengths[sequence[:2]][sequence[2]]


def _rows(times: Sequence[_Time], lengths: Iterable[int]) -> Iterator[Sequence[_Time]]:
    """Yield the ``times`` of each sequence."""
    start = 0
    for length in lengths:
        yield times[start : start + length]
        start += length


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


def _crowding_of_pairs(pairs: Collection[tuple[int, int]], gaps: Collection[int]) -> float:
    """Return the same of pairs made of ``gaps``. Those of coarse times agree for that alone."""
    if _crowding(gaps) >= _CROWDED:
        return 1.0
    return _crowding({first for first, _ in pairs}) ** 2


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


def _first_of(sequences: Sequence[tuple[int, ...]], most: int) -> list[tuple[int, ...]]:
    """Return the first ``sequences``, with ``most`` gaps together; the last of them may be cut."""
    first = []
    for gaps in sequences:
        if most <= 0:
            break
        first.append(gaps[:most])
        most -= len(gaps)
    return first


def _long_gaps(gaps: list[int], lengths: list[int]) -> tuple[list[int], list[int]]:
    """Return the gaps that are long enough to tell, and how many each sequence has."""
    if min(gaps, default=SHORTEST_GAP_NS) >= SHORTEST_GAP_NS:
        return gaps, lengths
    rows = [[gap for gap in row if gap >= SHORTEST_GAP_NS] for row in _rows(gaps, lengths)]
    return [*chain.from_iterable(rows)], [*map(len, rows)]


def _ratios(gaps: list[int], lengths: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return two ratios of neighbours for each three gaps that follow one another.

    They stay the same where all gaps are multiplied by one constant. Returned with them is
    how many of these pairs each sequence has.
    """
    if min(gaps, default=0) < SHORTEST_SCALED_NS:
        return _long_pairs(gaps, lengths, SHORTEST_SCALED_NS, _ratio)
    return _pairs([(RATIO_STEPS * b + (a >> 1)) // a for a, b in pairwise(gaps)], lengths)


def _steps(gaps: list[int], lengths: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return two differences likewise: the same where one constant is added to all gaps."""
    if min(gaps, default=0) < SHORTEST_GAP_NS:
        return _long_pairs(gaps, lengths, SHORTEST_GAP_NS, _step)
    return _pairs([b - a for a, b in pairwise(gaps)], lengths)


def _ratio(gap: int, later: int) -> int:
    return (RATIO_STEPS * later + (gap >> 1)) // gap


def _step(gap: int, later: int) -> int:
    return later - gap


def _pairs(relations: list[int], lengths: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return each two ``relations`` within one sequence, of all sequences at once."""
    # What reaches from one sequence into the next is left out.
    inside = chain.from_iterable(map(_inside, lengths))
    return [*compress(pairwise(relations), inside)], [max(0, length - 2) for length in lengths]


@lru_cache
def _inside(length: int) -> Sequence[bool]:
    """Say for each of so many gaps whether two more of its sequence follow it."""
    return [True] * (length - 2) + [False] * min(length, 2)


def _long_pairs(
    gaps: list[int], lengths: list[int], shortest_ns: int, relate: Callable[[int, int], int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the same without the gaps that are too short."""
    rows = []
    for row in _rows(gaps, lengths):
        relations = [
            relate(gap, later) if min(gap, later) >= shortest_ns else None
            for gap, later in pairwise(row)
        ]
        rows.append([(a, b) for a, b in pairwise(relations) if a is not None and b is not None])
    return [*chain.from_iterable(rows)], [*map(len, rows)]


def _clocks(run: Run) -> list[int]:
    """Return the times of the process itself, but for those that were counted in coarse steps."""
    times = [run.load_ns or 0]
    for block in run.blocks:
        for interval in (block.interval, block.reference, block.decode):
            if interval is not None:
                times += (interval.wall_ns, interval.cpu_ns)
    return [time for time in times if time >= SHORTEST_GAP_NS and time % _WHOLE_US]

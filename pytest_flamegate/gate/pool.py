"""What A/A pairs of one machine differed by, and endless further pairs drawn from them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.pairs import estimate_of
from pytest_flamegate.gate.stats import Estimate, mean, median, sample_variance

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_POOL = 10
"""Fewer pairs show no spread that anything could be replayed from."""
FEW_POOL = 30
"""Fewer pairs seldom hold a bad spell of the machine, and rates drawn from them flatter it."""
BLOCK = 3
"""Neighbouring pairs are drawn together: a bad spell lasts longer than one."""
_OUTLYING = 5.0
_MAD_TO_SD = 1.4826
_CHANCE = 2.576
_INDEX_BYTES = 4
_AGAIN = "Calibrate again: real pairs vary, so either these were copied or the clock is coarse."


@dataclass(frozen=True, slots=True)
class Pool:
    """Differences of A/A pairs in the order in which they were measured, as log time per token."""

    differences: tuple[float, ...]

    @classmethod
    def of(cls, differences: Sequence[float]) -> Pool:
        """Check the differences.

        UndecidedError: ``E_FEW_PAIRS``, ``E_NOT_FINITE``, ``E_CONSTANT_SAMPLES``.
        """
        if len(differences) < MIN_POOL:
            raise UndecidedError(
                "E_FEW_PAIRS",
                f"{len(differences)} A/A pair(s) were measured, and a calibration needs "
                f"{MIN_POOL}.",
                "Give it more pairs (--pairs) or more time (--budget).",
            )
        for value in differences:
            if not math.isfinite(value):
                raise UndecidedError(
                    "E_NOT_FINITE",
                    f"The difference of an A/A pair is {value}, not a number.",
                    "Calibrate again.",
                )
        if len(set(differences)) == 1:
            raise UndecidedError(
                "E_CONSTANT_SAMPLES",
                f"All {len(differences)} A/A pairs differ by exactly the same.",
                _AGAIN,
            )
        return cls(tuple(differences))

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return len(self.differences)

    @property
    def sd(self) -> float:
        """Their standard deviation."""
        return math.sqrt(sample_variance(self.differences))

    @property
    def excess_kurtosis(self) -> float:
        """How much heavier their tails are than those of a normal distribution (0)."""
        squares = self._squares
        return mean([square * square for square in squares]) / mean(squares) ** 2 - 3.0

    @property
    def autocorrelation(self) -> float:
        """How much a pair resembles the one before it, from -1 to 1."""
        off = self._off
        neighbours = math.fsum(off[at] * off[at - 1] for at in range(1, len(off)))
        return neighbours / math.fsum(self._squares)

    @property
    def independent(self) -> bool:
        """Whether neighbours resemble each other no more than chance makes them in 99 of 100."""
        return abs(self.autocorrelation) * math.sqrt(self.count) <= _CHANCE

    @property
    def largest(self) -> float:
        """The largest difference either way."""
        return max(map(abs, self.differences))

    @property
    def outliers(self) -> int:
        """How many pairs lie more than five robust standard deviations from the middle."""
        middle = median(self.differences)
        spread = _MAD_TO_SD * median(abs(value - middle) for value in self.differences)
        return sum(abs(value - middle) > _OUTLYING * spread for value in self.differences)

    @property
    def _off(self) -> list[float]:
        # In units of the largest, so that no square under- or overflows.
        scale = self.largest
        scaled = [value / scale for value in self.differences]
        centre = mean(scaled)
        return [value - centre for value in scaled]

    @property
    def _squares(self) -> list[float]:
        return [value * value for value in self._off]


@dataclass(slots=True)
class Stream:
    """One drawn sequence of pairs, and what its first so many pairs say."""

    differences: tuple[float, ...]
    _seen: dict[int, Estimate] = field(default_factory=dict)

    def estimate(self, pairs: int, shift: float) -> Estimate:
        """Return the estimate after ``pairs`` pairs of code that became slower by ``shift``."""
        found = self._seen.get(pairs)
        if found is None:
            found = self._seen[pairs] = estimate_of(self.differences[:pairs])
        return Estimate(found.mean_diff + shift, found.standard_error, found.df)


def streams(pool: Pool, pairs: int, *, draws: int, seed: int) -> tuple[Stream, ...]:
    """Return ``draws`` sequences of ``pairs`` pairs of unchanged code.

    Three neighbours at a time are drawn with replacement, so that bad spells stay spells. Each
    difference gets a random sign: which side of an A/A pair is which is a mere name. The same
    seed draws the same everywhere.
    """
    return tuple(
        Stream(_drawn(pool.differences, pairs, f"{seed}:{number}")) for number in range(draws)
    )


def _drawn(differences: Sequence[float], pairs: int, seed: str) -> tuple[float, ...]:
    count = len(differences)
    # The pool is a ring, so that its ends are drawn as often as its middle.
    ring = (*differences, *differences[: BLOCK - 1])
    blocks = -(-pairs // BLOCK)
    noise = hashlib.shake_256(seed.encode()).digest(blocks * _INDEX_BYTES)
    found: list[float] = []
    for at in range(0, len(noise), _INDEX_BYTES):
        number = int.from_bytes(noise[at : at + _INDEX_BYTES], "little")
        start = (number >> BLOCK) % count
        block = ring[start : start + BLOCK]
        found += [-value if number >> bit & 1 else value for bit, value in enumerate(block)]
    return tuple(found[:pairs])

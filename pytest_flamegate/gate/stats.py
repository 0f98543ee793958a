"""The few statistics the gate decides by: differences of means, Holm, log-odds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.student import (
    student_t_cdf,
    student_t_quantile,
    student_t_sf,
    student_t_upper,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Estimate",
    "combine",
    "holm",
    "interval",
    "log_odds",
    "log_odds_variance",
    "mean",
    "median",
    "sample_variance",
    "student_t_cdf",
    "student_t_quantile",
    "student_t_sf",
    "welch",
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference with its uncertainty: ``mean_diff`` is current less baseline.

    Whatever made the estimate (two samples, pairs), decisions need only these three.
    """

    mean_diff: float
    standard_error: float
    df: float

    def lower(self, tail: float) -> float:
        """Return the bound that the truth is below with probability ``tail``."""
        return self.mean_diff - student_t_upper(tail, self.df) * self.standard_error

    def upper(self, tail: float) -> float:
        """Return the bound that the truth is above with probability ``tail``."""
        return self.mean_diff + student_t_upper(tail, self.df) * self.standard_error

    @property
    def p_two_sided(self) -> float:
        """Probability of a difference at least this large, either way, where there is none."""
        if self.standard_error == 0.0:
            return 1.0 if self.mean_diff == 0.0 else 0.0
        return min(1.0, 2.0 * student_t_sf(abs(self.mean_diff) / self.standard_error, self.df))


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, summed exactly; ValueError where there are none."""
    if not values:
        raise ValueError("the mean of nothing is not defined")
    return math.fsum(values) / len(values)


def median(values: Iterable[float]) -> float:
    """Return the median; ValueError where there are no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median of nothing is not defined")
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return 0.5 * (ordered[middle - 1] + ordered[middle])


def sample_variance(values: Sequence[float]) -> float:
    """Return the unbiased variance (n - 1); ValueError below two values."""
    if len(values) < 2:
        raise ValueError("a variance needs at least two values")
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def combine(components: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Add independent ``(variance, df)`` pairs: the sum and its Welch-Satterthwaite df.

    A known variance has infinite degrees of freedom.
    """
    pairs = list(components)
    total = math.fsum(variance for variance, _ in pairs)
    if total == 0.0:
        return 0.0, math.inf
    # Shares of the total, so that squaring neither under- nor overflows.
    uncertain = math.fsum((variance / total) ** 2 / df for variance, df in pairs)
    return total, 1.0 / uncertain if uncertain > 0.0 else math.inf


def welch(a: Sequence[float], b: Sequence[float], extra_variance: float = 0.0) -> Estimate:
    """Estimate ``mean(b) - mean(a)`` from independent samples of unequal variance.

    ``extra_variance`` is a known variance of the difference that the samples cannot
    show (drift between two batches). ValueError below two values a side.
    """
    variance, df = combine(
        [
            (sample_variance(a) / len(a), len(a) - 1),
            (sample_variance(b) / len(b), len(b) - 1),
            (extra_variance, math.inf),
        ]
    )
    return Estimate(mean(b) - mean(a), math.sqrt(variance), df)


def interval(estimate: Estimate, lower_tail: float, upper_tail: float) -> tuple[float, float]:
    """Return the two bounds of an estimate, each missed with its own probability."""
    return estimate.lower(lower_tail), estimate.upper(upper_tail)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values in the order given.

    Rejecting where the adjusted value is at most alpha keeps the probability of any
    false rejection in the family at alpha.
    """
    count = len(p_values)
    adjusted = [0.0] * count
    running = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = running
    return tuple(adjusted)


def log_odds(count: int, total: int) -> float:
    """Return ln(p / (1 - p)) of ``count`` in ``total``, half a count added to either side."""
    return math.log((count + 0.5) / (total - count + 0.5))


def log_odds_variance(count: int, total: int) -> float:
    """Return the binomial variance of ``log_odds``: the least that sampling can have."""
    return 1.0 / (count + 0.5) + 1.0 / (total - count + 0.5)

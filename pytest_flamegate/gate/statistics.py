"""The statistics that decisions rest on: estimates, means, Student's t, Holm, binomial bounds.

Written here and not taken from SciPy, whose import takes longer than all of the gate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

mean = statistics.fmean
median = statistics.median

TRIMMED = 0.15
"""The part of the pairs at each end that the mean leaves out."""


# --- estimates -----------------------------------------------------------------------------


def variance(values: Sequence[float]) -> float:
    """Return the unbiased variance (n - 1) of two values at least."""
    # statistics.variance computes in fractions and takes thirty times as long, and a calibration
    # replays ten thousand of them.
    if len(values) < 2:
        raise ValueError("a variance needs at least two values")
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference with its uncertainty; ``mean_diff`` is current less baseline.

    Decisions need only these three figures, whether two samples or pairs gave them.
    """

    mean_diff: float
    standard_error: float
    df: float

    def lower(self, tail: float) -> float:
        """Return the bound that the true difference is below with probability ``tail``."""
        return self.mean_diff - student_t_upper(tail, self.df) * self.standard_error

    def upper(self, tail: float) -> float:
        """Return the bound that the true difference is above with probability ``tail``."""
        return self.mean_diff + student_t_upper(tail, self.df) * self.standard_error

    def widen(self, known_variance: float) -> Estimate:
        """Return the estimate with a variance that its samples cannot show, such as a drift."""
        total, df = combine([(self.standard_error**2, self.df), (known_variance, math.inf)])
        return Estimate(self.mean_diff, math.sqrt(total), df)

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference from another, independent estimate."""
        total, df = combine([(each.standard_error**2, each.df) for each in (self, other)])
        return Estimate(self.mean_diff - other.mean_diff, math.sqrt(total), df)

    @property
    def p_two_sided(self) -> float:
        """The probability of a difference at least this large if there is none."""
        if self.standard_error == 0.0:
            return 1.0 if self.mean_diff == 0.0 else 0.0
        return min(1.0, 2.0 * student_t_sf(abs(self.mean_diff) / self.standard_error, self.df))


def combine(components: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Add independent ``(variance, df)`` pairs: the sum and its Welch-Satterthwaite df.

    A known variance has infinite degrees of freedom.
    """
    pairs = list(components)
    total = math.fsum(each for each, _ in pairs)
    if total == 0.0:
        return 0.0, math.inf
    # Shares of the total, so that squaring neither under- nor overflows.
    uncertain = math.fsum((each / total) ** 2 / df for each, df in pairs)
    return total, 1.0 / uncertain if uncertain > 0.0 else math.inf


def plain_mean(values: Sequence[float]) -> Estimate:
    """Estimate the mean of two values at least."""
    return Estimate(mean(values), math.sqrt(variance(values) / len(values)), len(values) - 1.0)


def welch(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Estimate ``mean(b) - mean(a)`` from independent samples of unequal variance."""
    return plain_mean(b).minus(plain_mean(a))


def trimmed_mean(differences: Sequence[float]) -> Estimate:
    """Estimate the mean of paired differences, with Yuen's standard error and df.

    From seven pairs on the furthest 15 % at each end count no further than their neighbours. A
    process can stay far off all its life, by where it came to lie in memory (about one pair in
    five hundred differs by more than 10 %), and one such pair would hide a small change.
    """
    ordered = sorted(differences)
    count = len(ordered)
    cut = int(TRIMMED * count)
    middle = ordered[cut : count - cut]
    winsorised = [middle[0]] * cut + middle + [middle[-1]] * cut
    spread = variance(winsorised) * (count - 1)
    error = math.sqrt(spread / (len(middle) * (len(middle) - 1)))
    return Estimate(mean(middle), error, len(middle) - 1.0)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values in the order given.

    Rejecting if the adjusted value is at most alpha keeps the probability of any false rejection
    in the family at alpha.
    """
    count = len(p_values)
    adjusted = [0.0] * count
    running = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = running
    return tuple(adjusted)


def log_odds(count: int, total: int) -> float:
    """Return ln(p / (1 - p)) of ``count`` in ``total``, with half a count added to each side."""
    return math.log((count + 0.5) / (total - count + 0.5))


def log_odds_variance(count: int, total: int) -> float:
    """Return the binomial variance of ``log_odds``: the least that sampling can have."""
    return 1.0 / (count + 0.5) + 1.0 / (total - count + 0.5)


# --- Student's t ---------------------------------------------------------------------------

# Beyond this many degrees of freedom the first term of the Cornish-Fisher expansion
# is exact to double precision, and the continued fraction would only get slower.
_NORMAL_DF = 1e8
# Below this the three-term series for the ratio of gamma functions is not exact yet.
_ASYMPTOTIC_A = 60.0
_MAX_TERMS = 100_000
_TINY = 1e-300


def student_t_sf(t: float, df: float) -> float:
    """Return the probability that a Student t variable with ``df`` exceeds ``t``.

    The relative accuracy holds for tiny probabilities too. ``df`` may be infinite.
    """
    if t < 0:
        return 1.0 - student_t_sf(-t, df)
    if math.isinf(t):
        return 0.0
    if df >= _NORMAL_DF:
        z = t * max(0.0, 1.0 - (t * t + 1.0) / (4.0 * df))
        return 0.5 * math.erfc(z / math.sqrt(2.0))
    return 0.5 * _incomplete_beta_tail(t, df)


@lru_cache(maxsize=4096)
def student_t_upper(tail: float, df: float) -> float:
    """Return the value that a Student t variable with ``df`` exceeds with probability ``tail``.

    Solves ``student_t_sf(t, df) == tail``, a tail of at most one half, by Newton inside a bracket.
    """
    if tail == 0.5:
        return 0.0
    z = -statistics.NormalDist().inv_cdf(tail)
    if df >= _NORMAL_DF:
        return z * (1.0 + (z * z + 1.0) / (4.0 * df))
    low, high = 0.0, max(1.0, 2.0 * z)
    while student_t_sf(high, df) > tail:
        low, high = high, high * 4.0
    t = min(max(z, low), high)
    for _ in range(400):
        mass = student_t_sf(t, df)
        low, high = (t, high) if mass > tail else (low, t)
        step = math.log(mass / tail) * mass / _density(t, df) if mass > 0 else math.inf
        new = t + step
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - t) <= 1e-15 * abs(new):
            return new
        t = new
    return t


def _density(t: float, df: float) -> float:
    """Return the density of the t distribution at ``t``."""
    exponent = -0.5 * (df + 1.0) * math.log1p(t * t / df)
    return math.exp(exponent - 0.5 * math.log(df) - _log_beta_half(0.5 * df))


def _incomplete_beta_tail(t: float, df: float) -> float:
    """Return I_x(df/2, 1/2) at x = df / (df + t²): both tails of the t distribution."""
    a, b = 0.5 * df, 0.5
    ratio = t / math.sqrt(df)  # squaring t first would lose a tiny one
    square = ratio * ratio
    if square == 0.0:
        return 1.0
    rest = square / (1.0 + square)  # 1 - x, without cancellation
    x = 1.0 / (1.0 + square)
    front = math.exp(b * math.log(rest) - a * math.log1p(square) - _log_beta_half(a))
    # The fraction converges fast on one side of the mean of the beta distribution only.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, rest) / b


def _log_beta_half(a: float) -> float:
    """Return ln B(a, 1/2); for a large ``a`` by the asymptotic series, which cannot cancel."""
    if a < _ASYMPTOTIC_A:
        return math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
    inverse = 1.0 / a
    square = inverse * inverse
    series = inverse * (-1.0 / 8.0 + square * (1.0 / 192.0 - square / 640.0))
    return 0.5 * math.log(math.pi) - 0.5 * math.log(a) - series


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    c = 1.0
    d = 1.0 / _keep_from_zero(1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _keep_from_zero(1.0 + term * d)
            c = _keep_from_zero(1.0 + term / c)
            result *= d * c
        if abs(d * c - 1.0) < 1e-16:
            break
    return result


def _keep_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# --- bounds of a rate ----------------------------------------------------------------------

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Count:
    """``failures`` of ``trials``, and the bounds that they prove for the rate (0 to 1)."""

    failures: int
    trials: int

    @property
    def rate(self) -> float:
        """The part that failed; NaN without trials."""
        return self.failures / self.trials if self.trials else math.nan

    @property
    def upper(self) -> float:
        """The rate is at most this, with 95 % confidence."""
        return clopper_pearson_upper(self.failures, self.trials)

    @property
    def words(self) -> str:
        """``0.1 % (≤ 0.3 %)``: the observed rate and its upper bound."""
        return f"{pct(self.rate)} % (≤ {pct(self.upper)} %)"


def pct(rate: float) -> str:
    """Return a rate (0 to 1) in percent; below half a percent with two decimals."""
    return f"{100.0 * rate:.2f}" if 0.0 < rate < 0.005 else f"{100.0 * rate:.1f}"


def clopper_pearson_upper(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper bound of a rate; 1 without trials.

    It is the largest rate at which so few failures still have a probability of
    1 - ``confidence``.
    """
    if failures == trials:
        return 1.0
    low, high = failures / trials, 1.0
    while low < (rate := 0.5 * (low + high)) < high:
        if _probability_at_most(failures, trials, rate) > 1.0 - confidence:
            low = rate
        else:
            high = rate
    return high


def _probability_at_most(failures: int, trials: int, rate: float) -> float:
    """Return the binomial probability of at most so many failures."""
    log_hit, log_miss = math.log(rate), math.log1p(-rate)
    log_all = math.lgamma(trials + 1.0)
    return math.fsum(
        math.exp(
            log_all
            - math.lgamma(count + 1.0)
            - math.lgamma(trials - count + 1.0)
            + count * log_hit
            + (trials - count) * log_miss
        )
        for count in range(failures + 1)
    )

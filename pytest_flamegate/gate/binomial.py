"""What a count of failures in so many trials proves of their rate: Clopper and Pearson's bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
_HALVINGS = 200


@dataclass(frozen=True, slots=True)
class Count:
    """``failures`` of ``trials``, with what that proves of the rate behind them (0 to 1)."""

    failures: int
    trials: int

    @property
    def rate(self) -> float:
        """The part that failed; NaN where nothing was tried."""
        return self.failures / self.trials if self.trials else math.nan

    @property
    def upper(self) -> float:
        """The rate is at most this, with 95 % confidence."""
        return clopper_pearson_upper(self.failures, self.trials)

    @property
    def lower(self) -> float:
        """The rate is at least this, with 95 % confidence."""
        return clopper_pearson_lower(self.failures, self.trials)

    @property
    def words(self) -> str:
        """Return ``0.1 % (≤ 0.3 %)``: what was seen, and what it proves."""
        return f"{pct(self.rate)} % (≤ {pct(self.upper)} %)"


def pct(rate: float) -> str:
    """Return a rate (0 to 1) in percent, a small one with two digits."""
    return f"{100.0 * rate:.2f}" if 0.0 < rate < 0.005 else f"{100.0 * rate:.1f}"


def clopper_pearson_upper(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided upper bound of a rate; 1 where nothing was tried.

    It is the largest rate with which so few failures have still a probability of
    1 - ``confidence``. ValueError for counts or a confidence that cannot be.
    """
    if not 0 <= failures <= trials or not 0.0 < confidence < 1.0:
        raise ValueError(f"no bound for {failures!r} of {trials!r} at confidence {confidence!r}")
    if failures == trials:
        return 1.0
    log_tail = math.log1p(-confidence)
    if failures == 0:
        return -math.expm1(log_tail / trials)
    low, high = failures / trials, 1.0
    for _ in range(_HALVINGS):
        rate = 0.5 * (low + high)
        if rate in (low, high):
            break
        if _log_at_most(failures, trials, rate) > log_tail:
            low = rate
        else:
            high = rate
    return high


def clopper_pearson_lower(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided lower bound of a rate; 0 where nothing was tried."""
    return 1.0 - clopper_pearson_upper(trials - failures, trials, confidence)


def _log_at_most(failures: int, trials: int, rate: float) -> float:
    """Return the logarithm of the probability of at most ``failures``, fewer than expected.

    The terms fall from the last one on, so that few of them count.
    """
    log_last = (
        math.lgamma(trials + 1.0)
        - math.lgamma(failures + 1.0)
        - math.lgamma(trials - failures + 1.0)
        + failures * math.log(rate)
        + (trials - failures) * math.log1p(-rate)
    )
    odds = rate / (1.0 - rate)
    term = total = 1.0
    for count in range(failures, 0, -1):
        term *= count / ((trials - count + 1) * odds)
        total += term
        if term < 1e-17 * total:
            break
    return log_last + math.log(total)

"""The decision rule: slower, faster, within the threshold, or not known yet.

Every change is a difference of log time per token, so that positive means slower and swapping the
sides only changes the sign. The threshold τ is the allowed drop of the rate, as log time.
Each analysis of the data bounds the change twice, at ``alpha`` (false alarms) and at
``beta`` (misses):

| the change                         | and                       | decision     |
|------------------------------------|---------------------------|--------------|
| is slower: lower bound(alpha) > 0  | upper bound(alpha) < τ    | pass         |
|                                    | otherwise                 | regressed    |
| is faster: upper bound(alpha) < 0  | lower bound(alpha) > -τ   | pass         |
|                                    | otherwise                 | improved     |
| is neither                         | upper bound(beta) < τ     | pass         |
|                                    | otherwise                 | inconclusive |

Unchanged code is therefore `regressed` with a probability of at most ``false_alarm`` over all
planned analyses, and code that is slower by τ is `pass` with at most ``miss``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.gate.statistics import student_t_upper

if TYPE_CHECKING:
    from pytest_flamegate.gate.statistics import Estimate


FALSE_ALARM_RATE = 0.01
"""Probability of an alarm if nothing changed, over all analyses of one gate."""
MISS_RATE = 0.05
"""Probability of a pass if tokens per second fell by the whole threshold."""
POWER = 0.95
"""Probability of finding a change as large as the smallest detectable one."""

RateDecision = Literal["pass", "improved", "regressed", "inconclusive"]


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """How often a decision may be wrong; each rate is spent evenly over ``analyses``."""

    false_alarm: float = FALSE_ALARM_RATE
    miss: float = MISS_RATE
    analyses: int = 1

    @property
    def alpha(self) -> float:
        """False-alarm probability of one analysis."""
        return self.false_alarm / self.analyses

    @property
    def beta(self) -> float:
        """Miss probability of one analysis."""
        return self.miss / self.analyses


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """A decision with the bounds that it was made by, as log time (positive is slower).

    ``slower`` and ``faster`` say whether a change of any size is certain at alpha.
    ``detectable`` is the slowdown that would have been certain with 95 % probability.
    """

    decision: RateDecision
    low: float
    high: float
    slower: bool
    faster: bool
    detectable: float

    @property
    def is_certain(self) -> bool:
        """Whether the rate certainly changed."""
        return self.slower or self.faster


def decide(estimate: Estimate, threshold: float, rates: ErrorRates) -> RateVerdict:
    """Decide about a change of log time per token, given the threshold in log time."""
    low, high = estimate.lower(rates.alpha), estimate.upper(rates.alpha)
    slower, faster = low > 0.0, high < 0.0
    decision: RateDecision
    if slower:
        decision = "pass" if high < threshold else "regressed"
    elif faster:
        decision = "pass" if low > -threshold else "improved"
    else:
        high = estimate.upper(rates.beta)
        decision = "pass" if high < threshold else "inconclusive"
    return RateVerdict(
        decision=decision,
        low=low,
        high=high,
        slower=slower,
        faster=faster,
        detectable=detectable_change(estimate, rates.alpha),
    )


def detectable_change(estimate: Estimate, tail: float) -> float:
    """Return the true change whose bound at ``tail`` excludes zero with 95 % probability."""
    t_sum = student_t_upper(tail, estimate.df) + student_t_upper(1.0 - POWER, estimate.df)
    return t_sum * estimate.standard_error

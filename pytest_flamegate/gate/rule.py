"""The rule for a rate: slower, faster, within what is allowed, or not yet known.

With the threshold τ as log time, d the estimate, and bounds at 1 % (false alarms) and
5 % (misses), each spent evenly over the planned looks:

* regressed: the lower bound is above 0 and d > τ/2.
* improved: the mirror of it: the upper bound is below 0 and d < -τ/2.
* pass: the upper bound is below τ. It outweighs the other two where even the stricter bound
  (that of false alarms) shows a change of less than τ: a slowdown that is certain, and
  certainly within what is allowed, is no regression.
* inconclusive: anything else.

So what did not change is called `regressed` with less than 1 % probability, what slowed by
τ or more is called `pass` with less, and between the two τ/2 is where one becomes likelier
than the other. Swapping the sides turns `regressed` into `improved` and back.

`decide` needs an `Estimate` and nothing else, however the estimate was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.gate.student import student_t_upper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.signals import ErrorRates
    from pytest_flamegate.gate.stats import Estimate

POWER = 0.95
"""Probability of finding a change as large as the smallest detectable one."""

RateDecision = Literal["pass", "improved", "regressed", "inconclusive"]


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """What an estimate of log time per token says, with the bounds it was said by.

    ``low`` and ``high`` are bounds of the change of log time (positive is slower);
    ``slower`` and ``faster`` say whether a change of any size is certain;
    ``detectable`` is the slowdown, as log time, whose lower bound would have been above
    zero with 95 % probability.
    """

    decision: RateDecision
    low: float
    high: float
    slower: bool
    faster: bool
    detectable: float


def decide(estimate: Estimate, threshold: float, rates: ErrorRates) -> RateVerdict:
    """Judge an estimate of the change of log time per token against ``threshold`` (log time)."""
    surely_above = estimate.lower(rates.alpha)
    surely_below = estimate.upper(rates.alpha)
    low, high = surely_above, estimate.upper(rates.beta)
    decision: RateDecision = "inconclusive"
    if surely_above > 0.0 and estimate.mean_diff > 0.5 * threshold:
        high = surely_below
        decision = "pass" if high < threshold else "regressed"
    elif surely_below < 0.0 and estimate.mean_diff < -0.5 * threshold:
        high = surely_below
        decision = "pass" if low > -threshold else "improved"
    elif high < threshold:
        decision = "pass"
    return RateVerdict(
        decision=decision,
        low=low,
        high=high,
        slower=surely_above > 0.0,
        faster=surely_below < 0.0,
        detectable=detectable_change(estimate, rates.alpha),
    )


def agreed(verdicts: Sequence[RateVerdict]) -> RateVerdict:
    """Return what several views of one change say together: only that in which all agree."""
    decisions = {verdict.decision for verdict in verdicts}
    decision: RateDecision = "inconclusive"
    if len(decisions) == 1:
        decision = decisions.pop()
    elif decisions == {"pass", "improved"}:
        decision = "pass"
    return RateVerdict(
        decision=decision,
        low=min(verdict.low for verdict in verdicts),
        high=max(verdict.high for verdict in verdicts),
        slower=all(verdict.slower for verdict in verdicts),
        faster=all(verdict.faster for verdict in verdicts),
        detectable=max(verdict.detectable for verdict in verdicts),
    )


def detectable_change(estimate: Estimate, tail: float) -> float:
    """Return the true change whose bound at ``tail`` excludes zero with 95 % probability."""
    t_sum = student_t_upper(tail, estimate.df) + student_t_upper(1.0 - POWER, estimate.df)
    return t_sum * estimate.standard_error

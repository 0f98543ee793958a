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

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.gate.comparability import reference_shift
from pytest_flamegate.gate.statistics import Estimate, mean, sample_variance, student_t_upper, welch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flamegate.gate.measurement import Measurement, TimedProcess
    from pytest_flamegate.gate.signals import ErrorRates


MIN_BATCHES = 6
"""Fewer batches show no spread that could replace the assumed one."""


def estimate_from_batches(earlier: Sequence[float], current: Sequence[float]) -> Estimate:
    """Estimate how far one more batch lies from those before, in log time.

    ``earlier`` are the means of batches, ``current`` the processes of the new one. The error is
    that of predicting one batch from S others: their spread × √(1 + 1/S), S - 1 df.
    """
    count = len(earlier)
    error = math.sqrt(sample_variance(earlier) * (1.0 + 1.0 / count))
    return Estimate(mean(current) - mean(earlier), error, count - 1.0)


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


def combine_views(verdicts: Sequence[RateVerdict]) -> RateVerdict:
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


if TYPE_CHECKING:
    View = tuple[tuple[float, ...], tuple[float, ...], float]

BATCH_DRIFT_SD = 0.0042
"""Measured drift of log(CPU / reference kernel) between batches over 40 minutes."""
BATCH_DRIFT_SD_WITHOUT_REFERENCE = 0.02
"""The same for CPU time alone."""
REFERENCE_LEAK = 0.21
"""Part of a change of the machine's speed that the ratio to the reference does not cancel.

Measured: of a drift of 2.0 % in CPU time, 0.42 % was left in CPU time over reference.
"""


@dataclass(frozen=True, slots=True)
class Views:
    """The ways in which one change may be looked at; one where the engine is known well.

    Each is the two sides' values and the variance of the drift between their batches.
    """

    each: tuple[tuple[tuple[float, ...], tuple[float, ...], float], ...]

    @property
    def estimates(self) -> list[Estimate]:
        """Return the change as each view shows it."""
        return [welch(*view) for view in self.each]

    @property
    def middle(self) -> float:
        """The change half way between the views."""
        return mean([estimate.mean_diff for estimate in self.estimates])


def view_change(
    baseline: Measurement,
    current: Measurement,
    raw: Callable[[TimedProcess], float],
    ratio: Callable[[TimedProcess], float],
) -> Views:
    """Return how the change of ``raw``, whose ratio to the reference is ``ratio``, can be seen.

    With a reference that the engine follows: as the ratio, trusted the less the further
    the machine's own speed has moved. With another reference: as both. Without: as it is.
    """

    def view(value: Callable[[TimedProcess], float], sd: float, leak: float) -> View:
        old, new = (tuple(map(value, side.timed)) for side in (baseline, current))
        return old, new, 2.0 * sd**2 + leak**2

    shift = reference_shift(baseline, current)
    if shift is None:
        return Views((view(raw, BATCH_DRIFT_SD_WITHOUT_REFERENCE, 0.0),))
    if baseline.reference_follows and current.reference_follows:
        return Views((view(ratio, BATCH_DRIFT_SD, REFERENCE_LEAK * shift),))
    return Views((view(ratio, BATCH_DRIFT_SD, 0.0), view(raw, BATCH_DRIFT_SD, 0.0)))

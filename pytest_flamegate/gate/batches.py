"""The change between two batches of processes that were measured at different times.

The machine itself changes speed between two batches. If a reference kernel ran beside the
engine, the ratio to it takes most of that out; the rest is a drift whose size was measured once
and is assumed, until six batches of the same code show their own spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.rule import RateVerdict
from pytest_flamegate.gate.statistics import Estimate, mean, variance, welch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flamegate.gate.measurement import Measurement, TimedProcess
    from pytest_flamegate.gate.rule import RateDecision
    from pytest_flamegate.receipt.types import Batch


BATCH_DRIFT_SD = 0.0042
"""Drift of log(CPU / reference kernel) between batches, measured over 40 minutes."""
BATCH_DRIFT_SD_WITHOUT_REFERENCE = 0.02
"""The same for CPU time alone."""
REFERENCE_LEAK = 0.21
"""Part of a change of the machine's speed that the ratio to the reference does not cancel.

Measured: of a drift of 2.0 % in CPU time, 0.42 % was left in CPU time over reference.
"""
MIN_BATCHES = 6
"""Fewer batches show no spread that could replace the assumed drift."""


@dataclass(frozen=True, slots=True)
class View:
    """One way to compare two sides: their values in log time and the variance of the drift."""

    baseline: tuple[float, ...]
    current: tuple[float, ...]
    drift_variance: float

    @property
    def estimate(self) -> Estimate:
        """The change, by Welch's t over processes with the drift added."""
        return welch(self.baseline, self.current, self.drift_variance)


def view_change(
    baseline: Measurement,
    current: Measurement,
    time: Callable[[TimedProcess], float],
    ratio: Callable[[TimedProcess], float],
) -> tuple[View, ...]:
    """Return the ways to compare a time, one or two.

    With a reference kernel that the engine follows: the ratio to it, trusted less the further
    the machine's speed has moved. With another reference: the ratio and the plain time, because
    it is not known which holds still. Without a reference: the plain time.

    Args:
        baseline: One side.
        current: The other side.
        time: Returns the log time of a process.
        ratio: Returns the same over the reference kernel.
    """

    def view(value: Callable[[TimedProcess], float], drift_variance: float) -> View:
        old, new = (tuple(map(value, side.timed)) for side in (baseline, current))
        return View(old, new, drift_variance)

    referenced = 2.0 * BATCH_DRIFT_SD**2
    shift = reference_shift(baseline, current)
    if shift is None:
        return (view(time, 2.0 * BATCH_DRIFT_SD_WITHOUT_REFERENCE**2),)
    if baseline.reference_follows and current.reference_follows:
        return (view(ratio, referenced + (REFERENCE_LEAK * shift) ** 2),)
    return view(ratio, referenced), view(time, referenced)


def reference_shift(baseline: Measurement, current: Measurement) -> float | None:
    """Return the change of the reference kernel's log time; None without one on both sides."""
    old, new = (
        [math.log(p.reference_s) for p in side.timed if p.reference_s is not None]
        for side in (baseline, current)
    )
    return mean(new) - mean(old) if old and new else None


def estimate_from_batches(
    batches: Sequence[Batch], baseline: Measurement, current: Measurement
) -> list[Estimate]:
    """Return the change as each view shows it, its error taken from the spread of ``batches``.

    Without a reference kernel the batches' plain times count, with one that the engine follows
    their ratios, else both.
    """
    time = _predict(
        [batch.log_time for batch in batches], [process.log_time for process in current.timed]
    )
    if not (baseline.has_reference and current.has_reference):
        return [time]
    ratio = _predict(
        [batch.log_time_ratio for batch in batches],
        [process.log_time_ratio for process in current.timed],
    )
    follows = baseline.reference_follows and current.reference_follows
    return [ratio] if follows else [ratio, time]


def _predict(earlier: Sequence[float], current: Sequence[float]) -> Estimate:
    """Estimate how far one more batch lies from ``earlier`` ones.

    The error is that of predicting one batch from S others: their spread × √(1 + 1/S), S - 1 df.
    """
    count = len(earlier)
    error = math.sqrt(variance(earlier) * (1.0 + 1.0 / count))
    return Estimate(mean(current) - mean(earlier), error, count - 1.0)


def combine_views(verdicts: Sequence[RateVerdict]) -> RateVerdict:
    """Combine decisions about one change: only what all views agree in is decided."""
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

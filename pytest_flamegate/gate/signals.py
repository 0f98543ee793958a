"""The words a verdict is made of: reasons, signals and the error rates behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.config import thresholds

if TYPE_CHECKING:
    from pytest_flamegate.core.errors import FlamegateError
    from pytest_flamegate.receipt.types import Direction


FALSE_ALARM_RATE = 0.01
"""Chance of an alarm where nothing changed, over all looks of one gate."""
MISS_RATE = 0.05
"""Chance of a pass where tokens per second fell by the whole threshold."""
MIN_PROCESSES = thresholds.MIN_PROCESSES

Decision = Literal[
    "pass", "improved", "regressed", "inconclusive", "not_comparable", "no_baseline", "not_gated"
]
Helper = Literal["timed", "profiled", "bricks"]

_MAX_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a stable code (``E_`` refuses or alarms, ``I_`` informs) and one sentence."""

    code: str
    message: str

    @classmethod
    def of(cls, error: FlamegateError) -> Reason:
        """Return the reason that a refusal gives."""
        return cls(error.code, f"{error.problem} {error.remedy}")


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """How often a decision may be wrong, each rate spent evenly over the planned looks."""

    false_alarm: float = FALSE_ALARM_RATE
    miss: float = MISS_RATE
    looks: int = 1

    @property
    def alpha(self) -> float:
        """False-alarm probability of one look."""
        return self.false_alarm / self.looks

    @property
    def beta(self) -> float:
        """Miss probability of one look."""
        return self.miss / self.looks


@dataclass(frozen=True, slots=True)
class ReportedRates:
    """What is known of a rule's error rates, and how: calibrated here, or simulated elsewhere.

    Both rates are 0 to 1; ``basis`` is a sentence without its full stop.
    """

    false_alarm: float
    miss: float
    basis: str


@dataclass(frozen=True, slots=True)
class Signal:
    """One figure that was judged, or is shown beside those that were.

    ``change_pct``, its interval and ``threshold_pct`` are relative percent for rates,
    and percentage points of the share where ``unit`` is ``share_pct``. Where it is ``us/call``
    they are of the cost of a call against its budget. The interval's
    ends are the bounds the decision was made by. ``helped_by`` names the kind of
    process of which more could settle an inconclusive signal.
    """

    name: str
    baseline: float | None
    current: float | None
    unit: str
    direction: Direction
    decision: Decision
    change_pct: float | None = None
    ci_low_pct: float | None = None
    ci_high_pct: float | None = None
    threshold_pct: float | None = None
    smallest_detectable_pct: float | None = None
    reasons: tuple[Reason, ...] = ()
    helped_by: tuple[Helper, ...] = ()


def rate_change_pct(log_time: float) -> float:
    """Return the change of a rate in percent that a change of log time per token means."""
    return 100.0 * math.expm1(min(_MAX_EXPONENT, -log_time))


def log_time_of_drop(drop_pct: float) -> float:
    """Return the change of log time per token that a drop of the rate by ``drop_pct`` means."""
    return -math.log1p(-drop_pct / 100.0)


def describe_rate_change(change_pct: float) -> str:
    """Return ``6.2 % slower``, ``1.0 % faster`` or ``unchanged`` for a change of a rate."""
    if abs(change_pct) < 0.05:
        return "unchanged"
    return f"{abs(change_pct):.1f} % {'faster' if change_pct > 0 else 'slower'}"

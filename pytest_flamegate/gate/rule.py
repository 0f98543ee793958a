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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.core.errors import FlamegateError, find_remedy
from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.statistics import Estimate, student_t_upper
from pytest_flamegate.receipt.types import Direction

FALSE_ALARM_RATE = 0.01
"""Probability of an alarm if nothing changed, over all analyses of one gate."""
MISS_RATE = 0.05
"""Probability of a pass if tokens per second fell by the whole threshold."""
POWER = 0.95
"""Probability of finding a change as large as the smallest detectable one."""

RateDecision = Literal["pass", "improved", "regressed", "inconclusive"]
FAVOURABLE = frozenset[RateDecision]({"pass", "improved"})
"""The decisions that say that nothing got slower."""


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

    def spend_rest(self, done: int) -> ErrorRates:
        """Return the rates of one analysis that is the last, after ``done`` of those planned."""
        left = (self.analyses - done) / self.analyses
        return ErrorRates(left * self.false_alarm, left * self.miss)


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


# --- how often a verdict may be wrong, as far as that is known ------------------------------


@dataclass(frozen=True, slots=True)
class ReportedRates:
    """The error rates that a verdict reports, 0 to 1; None if they are not known.

    The rule spends nominal rates. Whether a machine keeps them is known only if the rule was
    replayed on its pairs. ``basis`` says how, as sentences without the last full stop.
    """

    false_alarm: float | None
    miss: float | None
    basis: str


def nominal_rates(rates: ErrorRates, basis: str = "not calibrated") -> ReportedRates:
    """Return that the error rates of a comparison are not known, and those that the rule allows."""
    spent = f", spent over {rates.analyses} analyses" if rates.analyses > 1 else ""
    return ReportedRates(
        None,
        None,
        f"{basis}. The rule allows {100 * rates.false_alarm:g} % false alarms for tokens "
        f"per second, as many for all shares together, and {100 * rates.miss:g} % misses{spent}",
    )


TOKENS_PER_SECOND = "tokens_per_second"
SHARE, BRICK, CALLS = "share:", "brick:", "calls:"
"""How the names of the other signals begin; the name of a function or of a brick follows."""
SHARE_UNIT = "share_pct"

Decision = Literal[RateDecision, "not_comparable", "no_baseline", "not_gated"]
ProcessKind = Literal["timed", "profiled", "bricks"]
"""A kind of process. ``more_processes`` are those of which more could settle an open question."""

_MAX_EXPONENT = 700.0
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a verdict: a stable code and one or two sentences.

    Codes start with ``E_`` (error or alarm), ``W_`` (warning) or ``I_`` (information).
    """

    code: str
    message: str

    @classmethod
    def advise(cls, code: str, problem: str) -> Reason:
        """Return the reason with the remedy of its code."""
        return cls(code, f"{problem} {find_remedy(code)}")

    @classmethod
    def from_error(cls, error: FlamegateError) -> Reason:
        """Return the reason with the error's code, problem and remedy."""
        return cls(error.code, f"{error.problem} {error.remedy}")

    @property
    def line(self) -> str:
        """The code and the message."""
        return f"{self.code}: {self.message}"

    @property
    def leaves_open(self) -> bool:
        """Whether the reason prevents a `pass`: it is an error and no information."""
        return self.code.startswith("E_")


@dataclass(frozen=True, slots=True)
class Signal:
    """One figure, compared with the baseline or shown next to those that were.

    ``change_pct``, its interval and ``threshold_pct`` are in percent of the baseline. If
    ``unit`` is ``SHARE_UNIT`` they are percentage points; if it is ``us/call`` they are in percent
    of the brick's budget. The ends of the interval are the bounds that decided. ``more_processes``
    names the kinds of process of which more could settle an inconclusive signal.
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
    more_processes: tuple[ProcessKind, ...] = ()


def rate_change_pct(log_time: float) -> float:
    """Convert a change of log time per token to a change of the rate in percent.

    Slower is negative: ``rate_change_pct(0.0513)`` is -5.0.
    """
    return 100.0 * math.expm1(min(_MAX_EXPONENT, -log_time))


def log_time_of_drop(drop_pct: float) -> float:
    """Convert a drop of the rate in percent to log time per token: 5.0 becomes 0.0513."""
    return -math.log1p(-drop_pct / 100.0)


def describe_rate_change(change_pct: float, up: str = "faster", down: str = "slower") -> str:
    """Return ``6.2 % slower``, ``1.0 % faster`` or ``unchanged`` for a change of a rate."""
    if abs(change_pct) < 0.05:
        return "unchanged"
    return f"{abs(change_pct):.1f} % {up if change_pct > 0 else down}"


def describe_interval(low_pct: float, high_pct: float) -> str:
    """Return ``5.1 … 7.4 %`` for an interval on one side of zero, else both ends in words."""
    if low_pct * high_pct > 0.0:
        small, large = sorted((abs(low_pct), abs(high_pct)))
        return f"{small:.1f} … {large:.1f} %"
    return f"{describe_rate_change(low_pct)} … {describe_rate_change(high_pct)}"


def list_names(names: Sequence[str]) -> str:
    """Return the first five names, with ``…`` if there are more, or ``none``."""
    more = ", …" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED]) or 'none'}{more}"


def describe_us(value_us: float) -> str:
    """Return ``0.305 µs``, ``76.2 µs`` or ``2,890 µs``."""
    return f"{significant(value_us)} µs"


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field in which two sides differ, both values as text, and the code."""

    field: str
    baseline: str
    current: str
    code: str

    @property
    def message(self) -> str:
        """One sentence with the field and both values."""
        return self.describe()

    def describe(self, side: str = "baseline") -> str:
        """Return one sentence with the field and both values; ``side`` is the name of the first."""
        return f"{self.field} differs: {self.baseline} at the {side}, {self.current} now."

"""The parts of a verdict: reasons, figures that were compared, and fields that differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.text import significant
from pytest_flamegate.receipt.types import Direction

TOKENS_PER_SECOND = "tokens_per_second"

Decision = Literal[
    "pass", "improved", "regressed", "inconclusive", "not_comparable", "no_baseline", "not_gated"
]
Helper = Literal["timed", "profiled", "bricks"]
"""A kind of process. More processes of this kind could settle an open question."""

_MAX_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a verdict: a stable code and one or two sentences.

    Codes start with ``E_`` (error or alarm), ``W_`` (warning) or ``I_`` (information).
    """

    code: str
    message: str

    @classmethod
    def from_error(cls, error: FlamegateError) -> Reason:
        """Return the reason with the error's code, problem and remedy."""
        return cls(error.code, f"{error.problem} {error.remedy}")

    @property
    def leaves_open(self) -> bool:
        """Whether the reason prevents a `pass`: it is an error and no information."""
        return self.code.startswith("E_")


@dataclass(frozen=True, slots=True)
class Signal:
    """One figure, compared with the baseline or shown next to those that were.

    ``change_pct``, its interval and ``threshold_pct`` are in percent of the baseline. If
    ``unit`` is ``share_pct`` they are percentage points; if it is ``us/call`` they are in percent
    of the brick's budget. The ends of the interval are the bounds that decided. ``helped_by``
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
    helped_by: tuple[Helper, ...] = ()


def rate_change_pct(log_time: float) -> float:
    """Convert a change of log time per token to a change of the rate in percent.

    Slower is negative: ``rate_change_pct(0.0513)`` is -5.0.
    """
    return 100.0 * math.expm1(min(_MAX_EXPONENT, -log_time))


def log_time_of_drop(drop_pct: float) -> float:
    """Convert a drop of the rate in percent to log time per token: 5.0 becomes 0.0513."""
    return -math.log1p(-drop_pct / 100.0)


def describe_rate_change(change_pct: float) -> str:
    """Return ``6.2 % slower``, ``1.0 % faster`` or ``unchanged`` for a change of a rate."""
    if abs(change_pct) < 0.05:
        return "unchanged"
    return f"{abs(change_pct):.1f} % {'faster' if change_pct > 0 else 'slower'}"


def describe_range(low_pct: float, high_pct: float) -> str:
    """Return ``between 6.4 and 31.1 % faster``, or with both directions if it includes zero."""
    first, second = describe_rate_change(high_pct), describe_rate_change(low_pct)
    for direction in (" % slower", " % faster"):
        if first.endswith(direction) and second.endswith(direction):
            small, large = sorted((abs(low_pct), abs(high_pct)))
            return f"between {small:.1f} and {large:.1f}{direction}"
    return f"between {first} and {second}"


def describe_interval(low_pct: float, high_pct: float) -> str:
    """Return ``5.1 … 7.4`` for an interval on one side of zero, else both ends in words."""
    if low_pct * high_pct > 0.0:
        small, large = sorted((abs(low_pct), abs(high_pct)))
        return f"{small:.1f} … {large:.1f}"
    return f"{describe_rate_change(low_pct)} … {describe_rate_change(high_pct)}"


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
        return f"{self.field} differs: {self.baseline} at the baseline, {self.current} now."


@dataclass(frozen=True, slots=True)
class Comparability:
    """Whether two sides may be compared, and every difference that forbids it."""

    differences: tuple[FieldDifference, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether no field differs that matters."""
        return not self.differences

    @property
    def is_transient(self) -> bool:
        """Whether only the state of the machine differs, which may pass."""
        return {difference.code for difference in self.differences} == {"E_MACHINE_STATE"}


COMPARABLE = Comparability()
"""Nothing differs."""

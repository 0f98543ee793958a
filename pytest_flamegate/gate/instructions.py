"""Instructions a token, shown beside what is gated and never gated themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.signals import Reason, Signal

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence

INSTRUCTIONS_PER_TOKEN = "instructions_per_token"
INFORMS = "I_INSTRUCTIONS"
BAD_COUNT = "E_BAD_INSTRUCTIONS"
BLIND_SPOT = (
    "This counts work, not time: cache and memory are invisible to it, so fewer instructions may "
    "be slower and more may be faster. A few tenths of a percent may be no more than where things "
    "lie in memory."
)
_SHOWN_PCT = 0.01


def instruction_signals(baseline: Evidence | None, current: Evidence) -> tuple[Signal, ...]:
    """Return the signal where both sides were counted; the count alone where one was."""
    new = _counted(current)
    old = _counted(baseline) if baseline is not None else None
    if new is None:
        return ()
    if old is not None:
        return (judge_instructions(old, new),)
    return (
        Signal(
            name=INSTRUCTIONS_PER_TOKEN,
            baseline=None,
            current=new,
            unit="instructions",
            direction="lower_is_better",
            decision="not_gated",
        ),
    )


def reasons_of(signals: tuple[Signal, ...]) -> tuple[Reason, ...]:
    """Return what the signals say."""
    return tuple(reason for signal in signals for reason in signal.reasons)


def _counted(evidence: Evidence) -> float | None:
    found = (each.value for each in evidence.metrics if each.name == INSTRUCTIONS_PER_TOKEN)
    return next(found, None)


def judge_instructions(baseline_per_token: float, current_per_token: float) -> Signal:
    """Return how much the count of instructions a token changed, in percent; more is worse.

    Raises ``UndecidedError`` ``E_BAD_INSTRUCTIONS`` for a count that is not finite or
    not above zero.
    """
    for side, per_token in (("baseline", baseline_per_token), ("current", current_per_token)):
        if not math.isfinite(per_token) or per_token <= 0.0:
            raise UndecidedError(
                BAD_COUNT,
                f"The {side} side counts {per_token} instructions a token.",
                "Count it again; what has run has executed some, and finitely many.",
            )
    change_pct = 100.0 * (current_per_token / baseline_per_token - 1.0)
    if not math.isfinite(change_pct):
        raise UndecidedError(
            BAD_COUNT,
            f"{baseline_per_token:g} and {current_per_token:g} instructions a token cannot be "
            "compared.",
            "Count both sides again; they are out of all proportion.",
        )
    return Signal(
        name=INSTRUCTIONS_PER_TOKEN,
        baseline=baseline_per_token,
        current=current_per_token,
        unit="instructions",
        direction="lower_is_better",
        decision="not_gated",
        change_pct=change_pct,
        reasons=(Reason(INFORMS, f"Instructions a token: {_in_words(change_pct)}. {BLIND_SPOT}"),),
    )


def _in_words(change_pct: float) -> str:
    if abs(change_pct) < _SHOWN_PCT / 2:
        return f"unchanged to {_SHOWN_PCT:g} %"
    return f"{abs(change_pct):.2f} % {'more' if change_pct > 0.0 else 'fewer'}"

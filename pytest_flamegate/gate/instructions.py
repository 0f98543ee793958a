"""Instructions a token, shown beside what is gated and never gated themselves."""

from __future__ import annotations

import math

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.signals import Reason, Signal

INSTRUCTIONS_PER_TOKEN = "instructions_per_token"
INFORMS = "I_INSTRUCTIONS"
BAD_COUNT = "E_BAD_INSTRUCTIONS"
BLIND_SPOT = (
    "This counts work, not time: cache and memory are invisible to it, so fewer instructions may "
    "be slower and more may be faster. A few tenths of a percent may be no more than where things "
    "lie in memory."
)
_SHOWN_PCT = 0.01


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

"""What is said of a judged brick, and of one that could not be judged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate.signals import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.gate.brick import Grown
    from pytest_flamegate.gate.brick_costs import Window
    from pytest_flamegate.gate.signals import Decision, Signal

_NAMED = 5
_WITHIN: dict[Window, str] = {"decode": " in decode", "all": ""}


def growth(name: str, signal: Signal, grown: Grown | None) -> tuple[Reason, ...]:
    """Return why a cost per token was judged as it was; nothing of one that passed."""
    assert signal.change_pct is not None
    assert signal.ci_low_pct is not None
    assert signal.ci_high_pct is not None
    assert signal.baseline is not None
    assert signal.current is not None
    costs = f"{name} costs {_us(signal.current)} a token, was {_us(signal.baseline)}"
    between = f"between {_more(signal.ci_low_pct)} and {_more(signal.ci_high_pct)}"
    if signal.decision == "regressed":
        return (
            Reason(
                "E_BRICK_SLOWER",
                f"{costs}: {_more(signal.change_pct)}, {between}; {signal.threshold_pct:g} % more "
                f"is allowed{_where(grown)}.",
            ),
        )
    if signal.decision == "improved":
        return (Reason("I_BRICK_CHEAPER", f"{costs}: {_more(signal.change_pct)}, {between}."),)
    if signal.decision == "inconclusive":
        return (
            Reason(
                "E_BRICK_NOISE",
                f"{costs}: {between}, so neither a growth of {signal.threshold_pct:g} % nor its "
                "absence is shown. Give it more time (--flamegate-budget), or allow more.",
            ),
        )
    return ()


def per_call(
    name: str, budget_us: float, cost_us: float, low: float, high: float, decision: Decision
) -> tuple[Reason, ...]:
    """Return why one call was over its budget or not; ``low`` and ``high`` are log time over it."""
    at_least, at_most = (_us(budget_us * math.exp(end)) for end in (low, high))
    if decision == "regressed":
        return (
            Reason(
                "E_BRICK_BUDGET",
                f"One call of {name} costs {_us(cost_us)}, at least {at_least}; its budget is "
                f"{_us(budget_us)}.",
            ),
        )
    if decision == "inconclusive":
        return (
            Reason(
                "E_BRICK_BUDGET_NOISE",
                f"One call of {name} costs between {at_least} and {at_most}, and its budget of "
                f"{_us(budget_us)} lies between. Give it more time (--flamegate-budget), or a "
                "budget further off.",
            ),
        )
    return ()


def budget_is_measured(name: str, budget_us: float) -> Reason:
    """Return the refusal of a budget that was taken from the run it judges."""
    return Reason(
        "E_BUDGET_IS_MEASURED",
        f"The budget of {name}, {_us(budget_us)} a call, is to the nanosecond what this very run "
        "measured. Budgets come from outside: take one from what a call may cost.",
    )


def unknown(name: str, seen: Iterable[str], window: Window) -> Reason:
    """Return the refusal of a declared brick that no pass shows."""
    names = sorted(seen)
    return Reason(
        "E_BRICK_UNKNOWN",
        f"{name} is declared with a budget and no pass shows it{_WITHIN[window]}; bricks seen: "
        f"{', '.join(names[:_NAMED]) or 'none'}{', …' * (len(names) > _NAMED)}. Correct the name "
        "in bricks.",
    )


def absent(name: str, side: str, window: Window) -> Reason:
    """Return why a brick that one side shows alone cannot be judged."""
    todo = (
        "Accept a new baseline."
        if side == "baseline"
        else "Mark it again, or take its budget out of bricks."
    )
    return Reason("E_BRICK_ABSENT", f"{name} does not run{_WITHIN[window]} at the {side}. {todo}")


def not_measured(name: str) -> Reason:
    """Return why a figure that nobody clocked is not gated."""
    return Reason(
        "E_BRICK_DERIVED",
        f"The times of {name} were derived or ingested, not measured, and such are shown and "
        "never gated. Mark it in the engine, or take its budget out of bricks.",
    )


def none_judged() -> Reason:
    """Return the refusal of a budget for every brick that speaks of none."""
    return Reason(
        "E_BRICKS_UNJUDGED",
        "A budget is declared for every brick, and none that weighs anything was measured on both "
        "sides. Accept a new baseline, or name the bricks.",
    )


def uneven(name: str, shown: int, passes: int, side: str) -> Reason:
    """Return why a brick that only some processes show is not gated."""
    return Reason(
        "E_BRICK_UNEVEN",
        f"{name} ran in {shown} of {passes} passes of the {side}. Make the workload the same in "
        "every process.",
    )


def untimed(name: str, side: str) -> Reason:
    """Return why a brick without a time of its own is not gated."""
    return Reason(
        "E_BRICK_UNTIMED",
        f"{name} has calls at the {side} and no time of its own: deferred calls need device "
        "events, and what only holds other bricks has none. Declare a budget for those instead.",
    )


def calls(name: str, before: float, now: float) -> Reason:
    """Return that a brick runs more or less often than it did."""
    return Reason("I_BRICK_CALLS", f"{name} runs {now:.4g} times a token, was {before:.4g}.")


def _where(grown: Grown | None) -> str:
    if grown is None:
        return ""
    return (
        f"; most of it in layer {grown.layer} ({_us(grown.baseline_us)} → {_us(grown.current_us)})"
    )


def _more(change_pct: float) -> str:
    if abs(change_pct) < 0.05:
        return "unchanged"
    return f"{abs(change_pct):.1f} % {'more' if change_pct > 0.0 else 'less'}"


def _us(value_us: float) -> str:
    return f"{value_us:.3g} µs" if value_us < 1000.0 else f"{value_us:,.0f} µs"

"""Why a brick was judged as it was, in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate.signals import Reason, describe_us

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_flamegate.gate.brick_costs import BrickCost, LayerGrowth, Window
    from pytest_flamegate.gate.signals import Decision, Signal


_CALLS_DIFFER = 0.005
_NAMED = 5
_WITHIN: dict[Window, str] = {"decode": " in decode", "all": ""}


def growth_reasons(name: str, signal: Signal, grown: LayerGrowth | None) -> tuple[Reason, ...]:
    """Return why a cost per token was judged as it was; a pass needs no reason."""
    now, before, change = signal.current or 0.0, signal.baseline or 0.0, signal.change_pct or 0.0
    between = _describe_range(signal)
    costs = (
        f"{name} costs {describe_us(now)} per token, was {describe_us(before)}: "
        f"{_describe_growth(change)}, {between}"
    )
    allowed = f"{signal.threshold_pct:g} % more"
    if signal.decision == "regressed":
        place = "" if grown is None else f"; most of it in {_describe_layer(grown)}"
        return (Reason("E_BRICK_SLOWER", f"{costs}; {allowed} is allowed{place}."),)
    if signal.decision == "improved":
        return (Reason("I_BRICK_CHEAPER", f"{costs}."),)
    if signal.decision == "inconclusive":
        return (
            Reason(
                "E_BRICK_NOISE",
                f"{costs}, so neither {allowed} nor its absence is shown. Give it more time "
                "(--flamegate-budget sets the seconds).",
            ),
        )
    return ()


def call_reasons(
    name: str, budget_us: float, cost_us: float, low: float, high: float, decision: Decision
) -> tuple[Reason, ...]:
    """Return why a call was judged as it was; a pass needs no reason."""
    at_least, at_most = (describe_us(budget_us * math.exp(bound)) for bound in (low, high))
    if decision == "regressed":
        return (
            Reason(
                "E_BRICK_BUDGET",
                f"A call of {name} costs {describe_us(cost_us)}, certainly more than "
                f"{at_least}, and its budget is {describe_us(budget_us)}.",
            ),
        )
    if decision == "inconclusive":
        return (
            Reason(
                "E_BRICK_NOISE",
                f"A call of {name} costs between {at_least} and {at_most}, and its budget of "
                f"{describe_us(budget_us)} lies between. Give it more time (--flamegate-budget), "
                "or a budget further away.",
            ),
        )
    return ()


def own_measurement_reason(name: str, budget_us: float) -> Reason:
    """Return the error of a budget that was copied from the run that it judges."""
    return Reason(
        "E_BUDGET_IS_MEASURED",
        f"The budget of {name}, {describe_us(budget_us)} per call, is to the nanosecond what this "
        "very run measured. Set it to the time that a call may take.",
    )


def unknown_brick_reason(name: str, observed: Iterable[str], window: Window) -> Reason:
    """Return the error of a budget for a brick that no run shows."""
    names = sorted(observed)
    return Reason(
        "E_BRICK_UNKNOWN",
        f"{name} is declared with a budget and no run shows it{_WITHIN[window]}. Bricks there: "
        f"{', '.join(names[:_NAMED]) or 'none'}{', …' * (len(names) > _NAMED)}. Correct the name "
        "in bricks.",
    )


def nothing_matched_reason(least: float) -> Reason:
    """Return the error of a budget for ``*`` that no brick with ``least`` of the time matched."""
    return Reason(
        "E_BRICK_UNKNOWN",
        f"The budget of * matched nothing: no brick reached {100 * least:g} % of the time and "
        "was measured on both sides. Accept a new baseline, or name the bricks.",
    )


def unjudged_reason(
    name: str, cost: BrickCost | None, runs: int, window: Window, side: str
) -> Reason | None:
    """Return why the figures of one brick on one side cannot be judged; None if they can."""
    if cost is None:
        remedy = (
            "Accept a new baseline."
            if side == "baseline"
            else "Mark it again, or remove its budget from bricks."
        )
        message = f"{name} does not run{_WITHIN[window]} at the {side}. {remedy}"
        return Reason("E_BRICK_ABSENT", message)
    if not cost.measured:
        return Reason(
            "E_BRICK_UNTIMED",
            f"The times of {name} were derived or ingested, not measured; such figures are never "
            "gated. Mark it in the engine, or remove its budget from bricks.",
        )
    if len(cost.call_us) < runs:
        return Reason(
            "E_BRICK_ABSENT",
            f"{name} ran in {len(cost.call_us)} of {runs} brick runs of the {side}. Make the "
            "workload the same in every process.",
        )
    if min(cost.call_us) <= 0.0:
        return Reason(
            "E_BRICK_UNTIMED",
            f"{name} has calls at the {side} and no time of its own: deferred calls need device "
            "events, and a brick that only holds others has none. Declare a budget for those.",
        )
    return None


def call_count_reasons(name: str, old: BrickCost, new: BrickCost) -> tuple[Reason, ...]:
    """Report that a brick runs more or less often than before."""
    if abs(math.log(new.calls_mean / old.calls_mean)) <= _CALLS_DIFFER:
        return ()
    message = f"{name} runs {new.calls_mean:.4g} times per token, was {old.calls_mean:.4g}."
    return (Reason("I_BRICK_CALLS", message),)


def _describe_range(signal: Signal) -> str:
    low, high = signal.ci_low_pct or 0.0, signal.ci_high_pct or 0.0
    return f"between {_describe_growth(low)} and {_describe_growth(high)}"


def _describe_layer(grown: LayerGrowth) -> str:
    before, now = describe_us(grown.baseline_us), describe_us(grown.current_us)
    return f"layer {grown.layer} ({before} → {now})"


def _describe_growth(change_pct: float) -> str:
    if abs(change_pct) < 0.05:
        return "unchanged"
    return f"{abs(change_pct):.1f} % {'more' if change_pct > 0.0 else 'less'}"

"""One brick: its cost per token against the other side's, its cost per call against a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.gate import brick_words as words
from pytest_flamegate.gate.rule import decide, detectable_change
from pytest_flamegate.gate.signals import Reason, Signal
from pytest_flamegate.gate.stats import Estimate, combine, mean, sample_variance, welch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.brick_costs import BrickCost, Window
    from pytest_flamegate.gate.signals import Decision, ErrorRates
    from pytest_flamegate.workload.spec import BrickBudget

PER_TOKEN, PER_CALL = "us/token", "us/call"
MOST = 0.5
"""The part of a growth from which on it is put down to one layer."""
_CALLS_DIFFER = 0.005
_MAX_EXPONENT = 700.0
_NS = 1e3


@dataclass(frozen=True, slots=True)
class Grown:
    """The layer whose cost per token grew most, by most of what the brick's grew; in µs."""

    layer: int
    baseline_us: float
    current_us: float


@dataclass(frozen=True, slots=True)
class BrickChange:
    """One judged brick. ``baseline`` is None where no growth was asked, or it is not there.

    ``signals`` are its cost per token and its cost per call, as far as each was judged.
    """

    name: str
    budget: BrickBudget
    baseline: BrickCost | None
    current: BrickCost | None
    signals: tuple[Signal, ...]
    grown: Grown | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What judging one brick needs to know of the whole.

    ``drift`` is the variance of log time that the processes of one side cannot show;
    ``passes`` and ``old_passes`` count them, 0 where there is nothing to compare with.
    """

    rates: ErrorRates
    window: Window
    drift: float
    passes: int
    old_passes: int


def judge_brick(
    name: str,
    budget: BrickBudget,
    old: BrickCost | None,
    new: BrickCost | None,
    context: Context,
) -> BrickChange:
    """Judge one brick by its budget; ``old`` and ``new`` are None where a side does not show it."""
    signals = []
    grown = None
    if budget.growth_pct is not None and context.old_passes:
        grown = _grown(old, new) if old and new else None
        signals.append(_growth(name, budget.growth_pct, old, new, grown, context))
    if budget.per_call_us is not None:
        signals.append(_per_call(name, budget.per_call_us, new, context))
    return BrickChange(name, budget, old, new, tuple(signals), grown)


def _growth(
    name: str,
    allowed_pct: float,
    old: BrickCost | None,
    new: BrickCost | None,
    grown: Grown | None,
    context: Context,
) -> Signal:
    undecided = Signal(
        name=f"brick:{name}",
        baseline=old.token_us_mean if old else None,
        current=new.token_us_mean if new else None,
        unit=PER_TOKEN,
        direction="lower_is_better",
        decision="inconclusive",
        threshold_pct=allowed_pct,
    )
    refusal = _unjudged(name, old, context.old_passes, context, "baseline") or _unjudged(
        name, new, context.passes, context, "current side"
    )
    if refusal is not None or old is None or new is None:
        return replace(undecided, reasons=(refusal,) if refusal else ())
    estimate = welch(_logs(old.token_us), _logs(new.token_us), 2.0 * context.drift)
    verdict = decide(estimate, math.log1p(allowed_pct / 100.0), context.rates)
    signal = replace(
        undecided,
        decision=verdict.decision,
        change_pct=_pct(estimate.mean_diff),
        ci_low_pct=_pct(verdict.low),
        ci_high_pct=_pct(verdict.high),
        smallest_detectable_pct=_pct(verdict.detectable),
        helped_by=("bricks",) if verdict.decision == "inconclusive" else (),
    )
    reasons = (*words.growth(name, signal, grown), *_calls(name, old, new))
    return replace(signal, reasons=reasons)


def _per_call(name: str, budget_us: float, new: BrickCost | None, context: Context) -> Signal:
    """Hold one call to ``budget_us``; change and interval are of the cost against the budget."""
    undecided = Signal(
        name=f"brick:{name}",
        baseline=None,
        current=new.call_us_mean if new else None,
        unit=PER_CALL,
        direction="lower_is_better",
        decision="inconclusive",
        threshold_pct=0.0,
    )
    refusal = _unjudged(name, new, context.passes, context, "current side")
    if refusal is not None or new is None:
        return replace(undecided, reasons=(refusal,) if refusal else ())
    logs = _logs(new.call_us)
    own = sample_variance(logs) / len(logs), len(logs) - 1.0
    variance, df = combine([own, (context.drift, math.inf)])
    estimate = Estimate(mean(logs) - math.log(budget_us), math.sqrt(variance), df)
    low, high = estimate.lower(context.rates.alpha), estimate.upper(context.rates.beta)
    decision: Decision = "regressed" if low > 0.0 else "pass" if high < 0.0 else "inconclusive"
    if _measured_itself(budget_us, new):
        decision = "inconclusive"
        reasons: tuple[Reason, ...] = (words.budget_is_measured(name, budget_us),)
    else:
        reasons = words.per_call(name, budget_us, new.call_us_mean, low, high, decision)
    return replace(
        undecided,
        decision=decision,
        change_pct=_pct(estimate.mean_diff),
        ci_low_pct=_pct(low),
        ci_high_pct=_pct(high),
        smallest_detectable_pct=_pct(detectable_change(estimate, context.rates.alpha)),
        reasons=reasons,
        helped_by=("bricks",) if decision == "inconclusive" else (),
    )


def _unjudged(
    name: str, cost: BrickCost | None, passes: int, context: Context, side: str
) -> Reason | None:
    """Return why the figures of one brick on one side cannot be judged; None where they can."""
    if cost is None:
        return words.absent(name, side, context.window)
    if not cost.measured:
        return words.not_measured(name)
    if len(cost.call_us) < passes:
        return words.uneven(name, len(cost.call_us), passes, side)
    if min(cost.call_us) <= 0.0:
        return words.untimed(name, side)
    return None


def _measured_itself(budget_us: float, cost: BrickCost) -> bool:
    """Say whether a budget is, to the nanosecond, what the run that it judges measured."""
    told = {round(_NS * each) for each in (cost.call_us_mean, mean(cost.call_us))}
    return round(_NS * budget_us) in told


def _calls(name: str, old: BrickCost, new: BrickCost) -> tuple[Reason, ...]:
    if abs(math.log(new.calls_mean / old.calls_mean)) <= _CALLS_DIFFER:
        return ()
    return (words.calls(name, old.calls_mean, new.calls_mean),)


def _grown(old: BrickCost, new: BrickCost) -> Grown | None:
    """Return the one layer that explains most of a brick's growth, where one does."""
    layers = sorted(old.layers_us.keys() & new.layers_us.keys())
    growth = {layer: new.layers_us[layer] - old.layers_us[layer] for layer in layers}
    whole = math.fsum(growth.values())
    if len(layers) < 2 or whole <= 0.0:
        return None
    first = max(layers, key=lambda layer: growth[layer])
    if growth[first] < MOST * whole:
        return None
    return Grown(first, old.layers_us[first], new.layers_us[first])


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _pct(log_time: float) -> float:
    return 100.0 * math.expm1(min(_MAX_EXPONENT, log_time))

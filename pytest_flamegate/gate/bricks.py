"""Judge the cost of bricks: one call against its budget, a token against the other side.

Only bricks with a declared budget are judged, or all of them if ``*`` has one. The unit of
evidence is the process, and the rule is the one for tokens per second (`rule`), with its
false-alarm rate over all judgements of bricks together (Bonferroni). A budget for one call
applies to the current side alone: regressed if even the lower bound is above it, passed if the
upper bound is not.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_flamegate.bricks.record import BrickRun, resolve_alias
from pytest_flamegate.config.thresholds import BrickBudget, Thresholds
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.brick_costs import (
    BrickCost,
    LayerGrowth,
    Window,
    check_alike,
    check_brick_runs,
    common_window,
    core_parts,
    costs_of_sides,
    find_grown_layer,
)
from pytest_flamegate.gate.measurement import MORE_TIME
from pytest_flamegate.gate.rule import (
    BRICK,
    Decision,
    ErrorRates,
    ProcessKind,
    Reason,
    Signal,
    decide,
    describe_rate_change,
    describe_us,
    detectable_change,
    list_names,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import plain_mean, trimmed_mean, welch
from pytest_flamegate.gate.throughput import BATCH_DRIFT_SD_WITHOUT_REFERENCE
from pytest_flamegate.receipt.types import Evidence

PER_TOKEN, PER_CALL = "us/token", "us/call"
EVERY_OTHER = "*"
WORTH_JUDGING = 0.01
"""Bricks with a smaller part of all bricks' own time are not judged by ``*``."""
RESOLUTION_SD = 1.0 / 64.0 / math.sqrt(12.0)
"""Of log time: all calls of a side may lie in one bucket of the histogram, 1/64 wide."""
_CALLS_DIFFER = 0.005
_WITHIN: dict[Window, str] = {"decode": " in decode", "all": ""}


@dataclass(frozen=True, slots=True)
class BrickChange:
    """One judged brick; ``baseline`` is None if no growth was asked for or it does not run there.

    ``signals`` are its cost per token and its cost per call, as far as each was judged.
    """

    name: str
    budget: BrickBudget
    baseline: BrickCost | None
    current: BrickCost | None
    signals: tuple[Signal, ...]
    grown: LayerGrowth | None = None


@dataclass(frozen=True, slots=True)
class JudgedBricks:
    """All judged bricks, the costliest first, and why something was not judged."""

    changes: tuple[BrickChange, ...] = ()
    reasons: tuple[Reason, ...] = ()
    more_processes: tuple[ProcessKind, ...] = ()

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Every judged figure."""
        return tuple(signal for change in self.changes for signal in change.signals)


@dataclass(frozen=True, slots=True)
class _BrickSides:
    """The facts about both sides that judging one brick needs.

    ``drift_variance`` is the variance of log time that the processes of one side cannot show;
    ``old_runs`` is 0 if there is nothing to compare with. ``are_pairs`` says that the runs of both
    sides shared a core, each with the run of the same number.
    """

    rates: ErrorRates
    window: Window
    drift_variance: float
    old_runs: int
    new_runs: int
    are_pairs: bool


def judge_bricks(
    baseline: Evidence | None,
    current: Evidence,
    thresholds: Thresholds,
    rates: ErrorRates,
    *,
    drift_sd: float = BATCH_DRIFT_SD_WITHOUT_REFERENCE,
) -> JudgedBricks:
    """Judge the bricks of ``current`` by the declared budgets; nothing if none is declared.

    If bricks cannot be judged a reason says why: an error of `check_brick_runs`,
    ``E_BRICKS_UNLIKE`` if the device was waited for in different ways, ``E_BRICKS_COVERAGE`` if
    the marks cover too little of the time for a cost per token, ``E_BRICK_UNKNOWN`` if a budget
    matches no brick. Without a ``baseline`` only calls are judged. ``drift_sd`` is the standard
    deviation of log time between batches, 0 if the sides were measured in pairs.
    """
    budgets = {resolve_alias(name): budget for name, budget in thresholds.bricks.items()}
    if not budgets:
        return JudgedBricks()
    new = current.bricks
    try:
        check_brick_runs(new, "current side")
    except UndecidedError as error:
        more_processes: tuple[ProcessKind, ...] = (
            ("bricks",) if error.code == "E_FEW_PROCESSES" else ()
        )
        return JudgedBricks(reasons=(Reason.from_error(error),), more_processes=more_processes)
    old: Sequence[BrickRun] = ()
    reasons: list[Reason] = []
    compares = any(budget.growth_pct is not None for budget in budgets.values())
    if compares and baseline is not None:
        try:
            check_brick_runs(baseline.bricks, "baseline")
            check_alike(baseline.bricks, new)
            old = baseline.bricks
        except UndecidedError as error:
            reasons.append(Reason.from_error(error))
    window = common_window(old, new)
    parts = [core_parts(each) if each else {} for each in (baseline, current)]
    before, after = costs_of_sides(
        [(old, [*parts[0].values()] if old else []), (new, [*parts[1].values()])], window
    )
    named = {name: budget for name, budget in budgets.items() if name != EVERY_OTHER}
    reasons += [
        Reason.advise(
            "E_BRICK_UNKNOWN",
            f"{name} is declared with a budget and no run shows it{_WITHIN[window]}. Bricks there: "
            f"{list_names(sorted(after))}.",
        )
        for name in sorted(named)
        if name not in after and name not in before
    ]
    judged = {name: named[name] for name in sorted(named) if name in after or name in before}
    if EVERY_OTHER in budgets:
        judged |= {
            name: budgets[EVERY_OTHER]
            for name in sorted(before.keys() & after.keys() - judged.keys())
            if before[name].measured and after[name].measured
            if max(before[name].share, after[name].share) >= WORTH_JUDGING
        }
        if old and not judged:
            reasons.append(
                Reason(
                    "E_BRICK_UNKNOWN",
                    f"The budget of * matched nothing: no brick reached {100 * WORTH_JUDGING:g} % "
                    "of the time and was measured on both sides. Accept a new baseline, or name "
                    "the bricks.",
                )
            )
    judgements = sum(
        (budget.per_call_us is not None) + bool(old and budget.growth_pct is not None)
        for budget in judged.values()
    )
    sides = _BrickSides(
        replace(rates, false_alarm=rates.false_alarm / max(judgements, 1)),
        window,
        drift_sd**2 + RESOLUTION_SD**2,
        len(old),
        len(new),
        bool(old and parts[0]) and [*parts[0]] == [*parts[1]],
    )
    changes = [
        _judge_brick(name, budget, before.get(name), after.get(name), sides)
        for name, budget in judged.items()
    ]
    changes.sort(key=lambda change: (-(change.current.share if change.current else 0), change.name))
    return JudgedBricks(tuple(changes), tuple(reasons))


def _judge_brick(
    name: str,
    budget: BrickBudget,
    old: BrickCost | None,
    new: BrickCost | None,
    sides: _BrickSides,
) -> BrickChange:
    signals = []
    grown = None
    if budget.growth_pct is not None and sides.old_runs:
        grown = find_grown_layer(old, new) if old and new else None
        signals.append(_judge_growth(name, budget.growth_pct, old, new, grown, sides))
    if budget.per_call_us is not None:
        signals.append(_judge_call(name, budget.per_call_us, new, sides))
    return BrickChange(name, budget, old, new, tuple(signals), grown)


def _judge_growth(
    name: str,
    allowed_pct: float,
    old: BrickCost | None,
    new: BrickCost | None,
    grown: LayerGrowth | None,
    sides: _BrickSides,
) -> Signal:
    """Judge by how much the cost per token grew, in percent of the baseline."""
    before = old.token_us_mean if old else None
    now = new.token_us_mean if new else None
    undecided = _undecided(name, PER_TOKEN, before, now, allowed_pct)
    reason = _unjudged_reason(name, old, sides.old_runs, sides.window, "baseline")
    reason = reason or _unjudged_reason(name, new, sides.new_runs, sides.window, "current side")
    if reason is not None or old is None or new is None:
        return replace(undecided, reasons=(reason,) if reason else ())
    first, second = ([math.log(cost) for cost in side.token_us] for side in (old, new))
    if sides.are_pairs:
        estimate = trimmed_mean([now - then for then, now in zip(first, second, strict=True)])
    else:
        estimate = welch(first, second)
    estimate = estimate.widen(2.0 * sides.drift_variance)
    verdict = decide(estimate, math.log1p(allowed_pct / 100.0), sides.rates)
    logs = estimate.mean_diff, verdict.low, verdict.high
    change, low, high = (
        describe_rate_change(rate_change_pct(-log), "more", "less") for log in logs
    )
    costs = (
        f"{name} costs {describe_us(new.token_us_mean)} per token, was "
        f"{describe_us(old.token_us_mean)}: {change}, between {low} and {high}"
    )
    allowed = f"{allowed_pct:g} % more"
    reasons = []  # a pass needs none
    if verdict.decision == "regressed":
        place = ""
        if grown is not None:
            grew = f"{describe_us(grown.baseline_us)} → {describe_us(grown.current_us)}"
            place = f"; most of it in layer {grown.layer} ({grew})"
        reasons = [Reason("E_BRICK_SLOWER", f"{costs}; {allowed} is allowed{place}.")]
    elif verdict.decision == "improved":
        reasons = [Reason("I_FASTER", f"{costs}.")]
    elif verdict.decision == "inconclusive":
        unshown = f"{costs}, so neither {allowed} nor its absence is shown. {MORE_TIME}"
        reasons = [Reason("E_NOISE", unshown)]
    if abs(math.log(new.calls_mean / old.calls_mean)) > _CALLS_DIFFER:
        calls = f"{name} runs {new.calls_mean:.4g} times per token, was {old.calls_mean:.4g}."
        reasons.append(Reason("I_BRICK_CALLS", calls))
    figures = estimate.mean_diff, verdict.low, verdict.high, verdict.detectable
    return _decided(undecided, verdict.decision, figures, reasons)


def _judge_call(name: str, budget_us: float, new: BrickCost | None, sides: _BrickSides) -> Signal:
    """Judge one call; change and interval are those of its cost against the budget."""
    undecided = _undecided(name, PER_CALL, None, new.call_us_mean if new else None, 0.0)
    reason = _unjudged_reason(name, new, sides.new_runs, sides.window, "current side")
    if reason is not None or new is None:
        return replace(undecided, reasons=(reason,) if reason else ())
    estimate = plain_mean([math.log(cost / budget_us) for cost in new.call_us])
    estimate = estimate.widen(sides.drift_variance)
    rates = sides.rates
    low, high = estimate.lower(rates.alpha), estimate.upper(rates.beta)
    decision: Decision = "regressed" if low > 0.0 else "pass" if high < 0.0 else "inconclusive"
    at_least, at_most = (describe_us(budget_us * math.exp(bound)) for bound in (low, high))
    budget = describe_us(budget_us)
    reasons = []  # a pass needs none
    if decision == "regressed":
        over = (
            f"A call of {name} costs {describe_us(new.call_us_mean)}, certainly more than "
            f"{at_least}, and its budget is {budget}."
        )
        reasons = [Reason("E_BRICK_BUDGET", over)]
    elif decision == "inconclusive":
        between = (
            f"A call of {name} costs between {at_least} and {at_most}, and its budget of {budget} "
            "lies between."
        )
        reasons = [Reason.advise("E_NOISE", between)]
    figures = estimate.mean_diff, low, high, detectable_change(estimate, rates.alpha)
    return _decided(undecided, decision, figures, reasons)


def _undecided(
    name: str, unit: str, before: float | None, now: float | None, allowed_pct: float
) -> Signal:
    return Signal(
        name=f"{BRICK}{name}",
        baseline=before,
        current=now,
        unit=unit,
        direction="lower_is_better",
        decision="inconclusive",
        threshold_pct=allowed_pct,
    )


def _decided(
    undecided: Signal, decision: Decision, figures: Iterable[float], reasons: Sequence[Reason]
) -> Signal:
    """Return the signal as decided; ``figures`` are change, low, high and detectable."""
    # A cost grows as a rate does that falls: by as much log time the other way.
    change_pct, low_pct, high_pct, detectable_pct = (rate_change_pct(-log) for log in figures)
    return replace(
        undecided,
        decision=decision,
        change_pct=change_pct,
        ci_low_pct=low_pct,
        ci_high_pct=high_pct,
        smallest_detectable_pct=detectable_pct,
        reasons=tuple(reasons),
        more_processes=("bricks",) if decision == "inconclusive" else (),
    )


def _unjudged_reason(
    name: str, cost: BrickCost | None, runs: int, window: Window, side: str
) -> Reason | None:
    """Return why the figures of one brick on one side cannot be judged; None if they can."""
    if cost is None:
        absent = f"{name} does not run{_WITHIN[window]} at the {side}."
        return Reason.advise("E_BRICK_UNKNOWN", absent)
    if not cost.measured:
        derived = f"The times of {name} were derived or ingested, and such figures are never gated."
        return Reason.advise("E_BRICK_UNTIMED", derived)
    if len(cost.call_us) < runs:
        seldom = f"{name} ran in {len(cost.call_us)} of {runs} brick runs of the {side}."
        return Reason.advise("E_BRICK_UNKNOWN", seldom)
    if min(cost.call_us) <= 0.0:
        untimed = (
            f"{name} has calls at the {side} and no time of its own: deferred calls need device "
            "events, and a brick that only holds others has none."
        )
        return Reason.advise("E_BRICK_UNTIMED", untimed)
    return None

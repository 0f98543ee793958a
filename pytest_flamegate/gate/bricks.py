"""Judge what bricks cost: one call against its budget, a token against the other side.

Only bricks with a declared budget are judged, or all of them where ``*`` has one; without any
nothing is. The unit of evidence is the process, and the rule is the one of tokens per second
(`rule`), at its false-alarm rate over all judgements of bricks together (Bonferroni): a cost
per token regressed where the growth is certain and above half of what is allowed. A budget for
one call is held to the current side alone: regressed where even the lower bound is above it,
passed where the upper one is not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.bricks.record import (
    compute_bucket_middle_ns,
    compute_quantile_ns,
    parse_durations,
    resolve_alias,
)
from pytest_flamegate.config.thresholds import MIN_BRICK_COVERAGE, MIN_BRICK_PASSES
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.rule import BATCH_DRIFT_SD_WITHOUT_REFERENCE, decide, detectable_change
from pytest_flamegate.gate.signals import Reason, Signal
from pytest_flamegate.gate.statistics import Estimate, combine, mean, sample_variance, welch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flamegate.bricks.record import BrickRun, BrickTotals
    from pytest_flamegate.config.thresholds import BrickBudget, Thresholds
    from pytest_flamegate.gate.signals import Decision, ErrorRates, Helper
    from pytest_flamegate.receipt.types import Evidence


Window = Literal["decode", "all"]
"""Which calls count: those of decode where every pass tells them apart, else all."""
CLIPPED_ABOVE = 0.25
"""The part of a row's calls whose duration none counts more than."""
RESOLUTION_SD = 1.0 / 64.0 / math.sqrt(12.0)
"""Of log time: all calls of a side may lie in one bucket of the histogram, which is so wide."""
NOT_MEASURED = frozenset({"derived", "ingested"})
"""Figures of this provenance are shown and never gated."""
_TOLERANCE = 1.01
_US = 1e-3
_MEASURE_AGAIN = "Measure again; if it stays, report it: the marks or their clock are at fault."


@dataclass(frozen=True, slots=True)
class BrickCost:
    """One brick on one side; one value for each process that shows it, in their order.

    ``call_us`` is the cost of a call, ``calls`` the calls a token, ``share`` the part of all
    bricks' own time, 0 to 1, over the side. ``layers_us`` holds
    each layer's number and cost per token.
    """

    name: str
    call_us: tuple[float, ...]
    calls: tuple[float, ...]
    share: float
    layers_us: tuple[tuple[int, float], ...]
    measured: bool

    @property
    def token_us(self) -> tuple[float, ...]:
        """The cost per token in each process."""
        return tuple(cost * calls for cost, calls in zip(self.call_us, self.calls, strict=True))

    @property
    def call_us_mean(self) -> float:
        """The cost of a call: geometric mean over the processes; 0 where none took any time."""
        return _geometric(self.call_us)

    @property
    def token_us_mean(self) -> float:
        """The cost per token: geometric mean over the processes; 0 where none took any time."""
        return _geometric(self.token_us)

    @property
    def calls_mean(self) -> float:
        """Calls a token: mean over the processes."""
        return mean(self.calls)


def common_window(*sides: Sequence[BrickRun]) -> Window:
    """Return which calls can be told apart in every pass of every side."""
    tells = all(
        each.decode_tokens > 0 and any(row.phase == "decode" for row in each.totals)
        for side in sides
        for each in side
    )
    return "decode" if tells else "all"


def brick_costs(passes: Sequence[BrickRun], window: Window) -> Mapping[str, BrickCost]:
    """Return the cost of every brick that any of the passes shows within ``window``."""
    by_name: dict[str, list[_Process]] = defaultdict(list)
    for each in passes:
        rows: dict[str, list[BrickTotals]] = defaultdict(list)
        for row in each.totals:
            if window == "all" or row.phase == "decode":
                rows[resolve_alias(row.name)].append(row)
        tokens = each.decode_tokens if window == "decode" else each.tokens
        for name, found in rows.items():
            by_name[name].append(_Process(tuple(found), tokens))
    whole_us = math.fsum(process.self_us for found in by_name.values() for process in found)
    return {name: _cost(name, found, whole_us) for name, found in by_name.items()}


def check_passes(passes: Sequence[BrickRun], side: str) -> Sequence[BrickRun]:
    """Return the passes of a side, if they can be judged at all.

    Raises UndecidedError: ``E_NO_BRICKS`` where no pass ran or one clocked no call,
    ``E_FEW_BRICKS`` below five passes, ``E_NO_TOKENS``, ``E_BRICKS_CONTRADICT`` for times that
    cannot be, ``E_DUPLICATE_PROCESS`` and ``E_CONSTANT_SAMPLES`` where passes were copied.
    """
    again = "Accept a new one" if side == "baseline" else "Measure again"
    if not passes or not all(sum(row.calls for row in each.totals) for each in passes):
        what = "A pass of" if passes else "No pass over the bricks was run at"
        raise UndecidedError(
            "E_NO_BRICKS",
            f"{what} the {side}{' clocked no call of any brick' if passes else ''}, and a budget "
            "is declared.",
            f"{again}, with an engine that marks its bricks; or take the budget away.",
        )
    if len(passes) < MIN_BRICK_PASSES:
        raise UndecidedError(
            "E_FEW_BRICKS",
            f"The {side} has {len(passes)} pass(es) over the bricks, and judging needs "
            f"{MIN_BRICK_PASSES}.",
            f"{again}, with more time (--flamegate-budget sets the seconds).",
        )
    for each in passes:
        _check(each)
    if len({(each.pid, each.started_ticks) for each in passes}) < len(passes):
        raise UndecidedError(
            "E_DUPLICATE_PROCESS",
            f"The {side} counts one process's bricks more than once.",
            "Measure again: each pass has to be a fresh process.",
        )
    if len({(each.wall_ns, each.lanes) for each in passes}) < len(passes):
        raise UndecidedError(
            "E_CONSTANT_SAMPLES",
            f"Two passes of the {side} took exactly the same times.",
            "Measure again: real processes differ, so these were copied.",
        )
    return passes


@dataclass(frozen=True, slots=True)
class _Process:
    """The rows of one brick in one process, and the tokens that they served."""

    rows: tuple[BrickTotals, ...]
    tokens: int

    @property
    def calls(self) -> int:
        return sum(row.calls for row in self.rows)

    @property
    def self_us(self) -> float:
        return math.fsum(row.self_ns for row in self.rows) * _US

    @property
    def call_us(self) -> float:
        return math.fsum(map(_typical_us, self.rows)) / self.calls

    def by_layer(self) -> Mapping[int, float]:
        found: dict[int, float] = defaultdict(float)
        for row in self.rows:
            if row.layer is not None:
                found[row.layer] += _typical_us(row) / self.tokens
        return found


def _typical_us(row: BrickTotals) -> float:
    """Return the own time of all calls of a row, the longer ones cut to its lower quartile."""
    counts = parse_durations(row.durations)
    took_ns = sum(compute_bucket_middle_ns(number) * calls for number, calls in counts.items())
    if not took_ns or sum(counts.values()) != row.calls:
        return row.self_ns * _US
    most_ns = compute_quantile_ns(counts, CLIPPED_ABOVE)
    clipped_ns = sum(
        min(compute_bucket_middle_ns(number), most_ns) * calls for number, calls in counts.items()
    )
    return row.self_ns * _US * clipped_ns / took_ns


def _cost(name: str, found: Sequence[_Process], whole_us: float) -> BrickCost:
    layers: dict[int, list[float]] = defaultdict(list)
    for process in found:
        for layer, cost_us in process.by_layer().items():
            layers[layer].append(cost_us)
    return BrickCost(
        name=name,
        call_us=tuple(process.call_us for process in found),
        calls=tuple(process.calls / process.tokens for process in found),
        share=math.fsum(process.self_us for process in found) / whole_us if whole_us else 0.0,
        layers_us=tuple(
            (layer, math.fsum(costs) / len(found)) for layer, costs in sorted(layers.items())
        ),
        measured=not any(row.provenance in NOT_MEASURED for each in found for row in each.rows),
    )


def _check(each: BrickRun) -> None:
    where = f"of process {each.pid}"
    if each.tokens <= 0:
        raise UndecidedError(
            "E_NO_TOKENS",
            f"The pass over the bricks {where} generated no token.",
            "Check that the engine generates with this prompt and token limit.",
        )
    left_ns: dict[str, int] = defaultdict(int)
    for row in each.totals:
        # Over all layers: a call within its own brick counts where the outermost stands.
        left_ns[row.name] += row.total_ns - row.self_ns
    for row in each.totals:
        if row.calls <= 0 or row.self_ns < 0 or left_ns[row.name] < 0:
            raise UndecidedError(
                "E_BRICKS_CONTRADICT",
                f"The brick {row.name} {where} has {row.calls} calls, {row.total_ns} ns in all "
                f"and {row.self_ns} ns of its own.",
                _MEASURE_AGAIN,
            )
        if len(parse_durations(row.durations)) < len(row.durations):
            raise UndecidedError(
                "E_BRICKS_CONTRADICT",
                f"The calls of the brick {row.name} {where} have durations that there are not.",
                _MEASURE_AGAIN,
            )
    measured_ns = sum(row.self_ns for row in each.totals if row.provenance == "measured_wall")
    busiest_ns = max((lane.self_ns for lane in each.lanes), default=0)
    if each.wall_ns <= 0 or (
        max(busiest_ns, measured_ns / max(len(each.lanes), 1)) > each.wall_ns * _TOLERANCE
    ):
        raise UndecidedError(
            "E_BRICKS_CONTRADICT",
            f"The bricks {where} took longer on one thread than the process ran.",
            _MEASURE_AGAIN,
        )


def _geometric(values: Sequence[float]) -> float:
    return math.exp(mean([math.log(value) for value in values])) if min(values) > 0.0 else 0.0


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
    remedy = (
        "Accept a new baseline."
        if side == "baseline"
        else "Mark it again, or take its budget out of bricks."
    )
    return Reason("E_BRICK_ABSENT", f"{name} does not run{_WITHIN[window]} at the {side}. {remedy}")


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
    reasons = (*growth(name, signal, grown), *_calls(name, old, new))
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
        reasons: tuple[Reason, ...] = (budget_is_measured(name, budget_us),)
    else:
        reasons = per_call(name, budget_us, new.call_us_mean, low, high, decision)
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
        return absent(name, side, context.window)
    if not cost.measured:
        return not_measured(name)
    if len(cost.call_us) < passes:
        return uneven(name, len(cost.call_us), passes, side)
    if min(cost.call_us) <= 0.0:
        return untimed(name, side)
    return None


def _measured_itself(budget_us: float, cost: BrickCost) -> bool:
    """Say whether a budget is, to the nanosecond, what the run that it judges measured."""
    told = {round(_NS * each) for each in (cost.call_us_mean, mean(cost.call_us))}
    return round(_NS * budget_us) in told


def _calls(name: str, old: BrickCost, new: BrickCost) -> tuple[Reason, ...]:
    if abs(math.log(new.calls_mean / old.calls_mean)) <= _CALLS_DIFFER:
        return ()
    return (calls(name, old.calls_mean, new.calls_mean),)


def _grown(old: BrickCost, new: BrickCost) -> Grown | None:
    """Return the one layer that explains most of a brick's growth, where one does."""
    before, after = dict(old.layers_us), dict(new.layers_us)
    layers = sorted(before.keys() & after.keys())
    growth = {layer: after[layer] - before[layer] for layer in layers}
    whole = math.fsum(growth.values())
    if len(layers) < 2 or whole <= 0.0:
        return None
    first = max(layers, key=lambda layer: growth[layer])
    if growth[first] < MOST * whole:
        return None
    return Grown(first, before[first], after[first])


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _pct(log_time: float) -> float:
    return 100.0 * math.expm1(min(_MAX_EXPONENT, log_time))


EVERY_OTHER = "*"
WORTH_JUDGING = 0.01
"""Part of all bricks' own time below which ``*`` does not speak of a brick."""


@dataclass(frozen=True, slots=True)
class Bricks:
    """All judged bricks, the dearest first, and why something was not judged."""

    changes: tuple[BrickChange, ...] = ()
    reasons: tuple[Reason, ...] = ()
    helped_by: tuple[Helper, ...] = ()
    window: Window = "all"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Every judged figure."""
        return tuple(signal for change in self.changes for signal in change.signals)


NO_BRICKS = Bricks()


def judge_bricks(
    baseline: Evidence | None,
    current: Evidence,
    thresholds: Thresholds,
    rates: ErrorRates,
    *,
    drift_sd: float = BATCH_DRIFT_SD_WITHOUT_REFERENCE,
) -> Bricks:
    """Judge the bricks of ``current`` by the declared budgets; nothing where none is declared.

    ``drift_sd`` is that of log time between batches, 0 for sides that ran in turn. Where bricks
    cannot be judged the reason says why, see ``brick_costs.checked``; also ``E_BRICKS_UNLIKE``
    where the device was waited for in different ways, ``E_BRICKS_COVERAGE`` where the marks
    cover too little of the time for a cost per token and ``E_BRICKS_UNJUDGED`` where ``*`` speaks
    of nothing.
    """
    budgets = {resolve_alias(name): budget for name, budget in thresholds.bricks.items()}
    if not budgets:
        return NO_BRICKS
    try:
        new = check_passes(current.bricks, "current side")
    except UndecidedError as refusal:
        return Bricks(reasons=(Reason.of(refusal),), helped_by=_curable(refusal))
    old: Sequence[BrickRun] = ()
    reasons: list[Reason] = []
    asked = any(budget.growth_pct is not None for budget in budgets.values())
    if asked and baseline is not None:
        try:
            old = check_passes(baseline.bricks, "baseline")
            _like(old, new)
        except UndecidedError as refusal:
            reasons.append(Reason.of(refusal))
            old = ()
    window = common_window(old, new)
    before, after = brick_costs(old, window), brick_costs(new, window)
    named = sorted(name for name in budgets if name != EVERY_OTHER)
    reasons += [
        unknown(name, after, window) for name in named if name not in after and name not in before
    ]
    wanted = {name: budgets[name] for name in named if name in after or name in before}
    if EVERY_OTHER in budgets:
        wanted |= _every_other(before, after, wanted, budgets[EVERY_OTHER])
        if old and not wanted:
            reasons.append(none_judged())
    judgements = sum(
        (budget.per_call_us is not None) + bool(old and budget.growth_pct is not None)
        for budget in wanted.values()
    )
    each = replace(rates, false_alarm=rates.false_alarm / max(judgements, 1))
    drift = drift_sd**2 + RESOLUTION_SD**2
    context = Context(each, window, drift, len(new), len(old))
    changes = [
        judge_brick(name, budget, before.get(name), after.get(name), context)
        for name, budget in wanted.items()
    ]
    changes.sort(key=lambda change: (-(change.current.share if change.current else 0), change.name))
    return Bricks(tuple(changes), tuple(reasons), window=window)


def _curable(refusal: UndecidedError) -> tuple[Helper, ...]:
    return ("bricks",) if refusal.code == "E_FEW_BRICKS" else ()


def _like(old: Sequence[BrickRun], new: Sequence[BrickRun]) -> None:
    """Refuse to compare costs per token that are not of one kind."""
    if len({each.sync for each in (*old, *new)}) > 1:
        raise UndecidedError(
            "E_BRICKS_UNLIKE",
            "Not all passes over the bricks waited for the device in the same way.",
            "Accept a new baseline, or mark both sides alike.",
        )
    for side, passes in (("baseline", old), ("current side", new)):
        coverage = min(each.coverage for each in passes)
        if coverage < MIN_BRICK_COVERAGE:
            raise UndecidedError(
                "E_BRICKS_COVERAGE",
                f"The bricks of the {side} cover {100 * coverage:.0f} % of the time, and judging "
                f"a cost per token needs {100 * MIN_BRICK_COVERAGE:.0f} %.",
                "Mark more of the engine, or declare a time per call instead.",
            )


def _every_other(
    before: Mapping[str, BrickCost],
    after: Mapping[str, BrickCost],
    named: Mapping[str, BrickBudget],
    budget: BrickBudget,
) -> Mapping[str, BrickBudget]:
    """Return the bricks that ``*`` speaks of: on both sides, measured, and worth it on one."""
    return {
        name: budget
        for name in sorted(before.keys() & after.keys() - named.keys())
        if before[name].measured and after[name].measured
        if max(before[name].share, after[name].share) >= WORTH_JUDGING
    }

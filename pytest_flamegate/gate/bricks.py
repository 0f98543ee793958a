"""Judge what bricks cost: one call against its budget, a token against the other side.

Only bricks with a declared budget are judged, or all of them where ``*`` has one; without any
nothing is. The unit of evidence is the process, and the rule is the one of tokens per second
(`rule`), at its false-alarm rate over all judgements of bricks together (Bonferroni): a cost
per token regressed where the growth is certain and above half of what is allowed. A budget for
one call is held to the current side alone: regressed where even the lower bound is above it,
passed where the upper one is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.names import canonical
from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate import brick_words as words
from pytest_flamegate.gate.brick import BrickChange, Context, judge_brick
from pytest_flamegate.gate.brick_costs import RESOLUTION_SD, checked, costs_of, window_of
from pytest_flamegate.gate.signals import Reason, Signal
from pytest_flamegate.gate.views import BATCH_DRIFT_SD_WITHOUT_REFERENCE
from pytest_flamegate.workload.floors import MIN_BRICK_COVERAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.record import BrickPass
    from pytest_flamegate.gate.brick_costs import BrickCost, Window
    from pytest_flamegate.gate.signals import ErrorRates, Helper
    from pytest_flamegate.receipt.types import Evidence
    from pytest_flamegate.workload.spec import BrickBudget, Thresholds

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
    budgets = {canonical(name): budget for name, budget in thresholds.bricks.items()}
    if not budgets:
        return NO_BRICKS
    try:
        new = checked(current.bricks, "current side")
    except UndecidedError as refusal:
        return Bricks(reasons=(Reason.of(refusal),), helped_by=_curable(refusal))
    old: Sequence[BrickPass] = ()
    reasons: list[Reason] = []
    asked = any(budget.growth_pct is not None for budget in budgets.values())
    if asked and baseline is not None:
        try:
            old = checked(baseline.bricks, "baseline")
            _like(old, new)
        except UndecidedError as refusal:
            reasons.append(Reason.of(refusal))
            old = ()
    window = window_of(old, new)
    before, after = costs_of(old, window), costs_of(new, window)
    named = sorted(name for name in budgets if name != EVERY_OTHER)
    reasons += [
        words.unknown(name, after, window)
        for name in named
        if name not in after and name not in before
    ]
    wanted = {name: budgets[name] for name in named if name in after or name in before}
    if EVERY_OTHER in budgets:
        wanted |= _every_other(before, after, wanted, budgets[EVERY_OTHER])
        if old and not wanted:
            reasons.append(words.none_judged())
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


def _like(old: Sequence[BrickPass], new: Sequence[BrickPass]) -> None:
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

"""What a calibrated machine supports: for each budget the smallest threshold that holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.comparing import looks_for
from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.calibration import LADDER, Plan, Rates, Replayed
from pytest_flamegate.knobs import COMPARE_BUDGET_S
from pytest_flamegate.receipt.codec import to_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.calibrated import Calibration

BUDGETS_S = (15.0, 30.0, COMPARE_BUDGET_S, 120.0, 300.0)


@dataclass(frozen=True, slots=True)
class Holds:
    """The smallest threshold that holds in a budget; ``drop_pct`` is None where none does.

    ``pairs`` is for how many there is time, ``median_pairs`` what unchanged code takes.
    """

    budget_s: float
    pairs: int
    drop_pct: float | None = None
    median_pairs: int | None = None


@dataclass(frozen=True, slots=True)
class Supported:
    """What the machine can tell apart, and what becomes of the workload's own threshold.

    ``next_pct`` is the smallest threshold above one's own that holds in ``budget_s``, and
    ``next_budget_s`` the smallest budget that holds one's own; None where there is none.
    """

    drop_pct: float
    budget_s: float
    plan: Plan
    rates: Rates
    rows: tuple[Holds, ...]
    next_pct: float | None = None
    next_budget_s: float | None = None


def plan_for(budget_s: float, pair_s: float, pairs_share: float) -> Plan:
    """Return the looks that a comparison plans for a budget, and the pairs it has time for.

    ``pairs_share`` is the part of the budget that pairs may take. The first look waits for
    its pairs, whatever they take.
    """
    looks = looks_for(budget_s)
    in_time = math.floor(pairs_share * budget_s / pair_s)
    return Plan(looks, min(looks[-1], max(looks[0], in_time)))


def supported(
    calibration: Calibration,
    drop_pct: float,
    budget_s: float,
    pairs_share: float,
    budgets_s: Sequence[float] = BUDGETS_S,
) -> Supported:
    """Replay the rule for every budget, and at ``drop_pct`` in ``budget_s``."""

    def plan(seconds: float) -> Plan:
        return plan_for(seconds, calibration.pair_s, pairs_share)

    all_s = sorted({*budgets_s, budget_s})
    replayed = Replayed.of(calibration.pool, max(plan(seconds).pairs for seconds in all_s))
    rows = []
    for seconds in all_s:
        found = replayed.smallest(plan(seconds))
        row = Holds(seconds, plan(seconds).pairs)
        if found is not None:
            row = Holds(row.budget_s, row.pairs, found[0], found[1].median_pairs)
        rows.append(row)
    own = plan(budget_s)
    rates = replayed.rates(drop_pct, own)
    next_pct = next_budget_s = None
    if not rates.holds:
        larger = replayed.smallest(own, [each for each in LADDER if each > drop_pct])
        next_pct = larger[0] if larger else None
        longer = (s for s in all_s if s > budget_s and replayed.rates(drop_pct, plan(s)).holds)
        next_budget_s = next(longer, None)
    return Supported(drop_pct, budget_s, own, rates, tuple(rows), next_pct, next_budget_s)


def document(found: Supported) -> dict[str, object]:
    """Return what was replayed as plain data, for the readers of the calibration's file."""
    rates: dict[str, object] = {
        name: {"failures": count.failures, "trials": count.trials, "upper": count.upper}
        for name, count in found.rates.counts.items()
    }
    rates |= {"median_pairs": found.rates.median_pairs, "p95_pairs": found.rates.p95_pairs}
    return {
        "threshold_pct": found.drop_pct,
        "budget_s": found.budget_s,
        "holds": found.rates.holds,
        "rates": rates,
        "smallest_thresholds": [to_plain(row) for row in found.rows],
    }


def refusal(workload: str, found: Supported) -> UndecidedError | None:
    """Return why the workload's threshold is too small for this machine; None where it holds."""
    if found.rates.holds:
        return None
    can = []
    if found.next_pct is not None:
        can.append(f"set tokens_per_second to {found.next_pct:g} %")
    if found.next_budget_s is not None:
        can.append(f"give it {found.next_budget_s:g} s (--flamegate-budget)")
    todo = " or ".join(can) or "use a quieter machine, or a workload that varies less"
    rates = found.rates
    return UndecidedError(
        "E_THRESHOLD_TOO_SMALL",
        f"This machine cannot hold {workload} to {found.drop_pct:g} % within "
        f"{found.budget_s:g} s: of the replays {100 * rates.false_alarm.rate:.1f} % raised a false "
        f"alarm, {100 * rates.miss.rate:.1f} % missed a drop of that size, and "
        f"{100 * max(rates.inconclusive_unchanged.rate, rates.inconclusive_twice.rate):.1f} % "
        "stayed undecided.",
        f"{todo[0].upper()}{todo[1:]}.",
    )

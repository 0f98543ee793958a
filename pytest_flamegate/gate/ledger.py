"""The ledger: how often real gates of unchanged code raised an alarm, and what that proves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.against import pair_rates
from pytest_flamegate.gate.binomial import Count, pct
from pytest_flamegate.gate.pairs import looks_at
from pytest_flamegate.gate.signals import log_time_of_drop, rate_change_pct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flamegate.gate.calibration import Plan
    from pytest_flamegate.gate.rule import RateDecision


@dataclass(frozen=True, slots=True)
class AaGate:
    """One whole decision on fresh pairs of the same code. ``change_pct`` is that of the rate."""

    differences: tuple[float, ...]
    decision: RateDecision
    change_pct: float


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One gate as it stands in the ledger. ``via`` says how it came to be measured."""

    created: str
    machine: str
    workload: str
    engine: str
    recipe_sha256: str
    flamegate_version: str
    via: str
    threshold_pct: float
    pairs: int
    decision: RateDecision
    change_pct: float
    differences: tuple[float, ...]


def aa_gates(differences: Sequence[float], drop_pct: float, plan: Plan) -> tuple[AaGate, ...]:
    """Cut the differences of A/A pairs into gates, in their order, none in two of them.

    Each gate takes as many pairs as it needs; the last one ends where they end, as one does
    whose time is over. Pairs that are too few for a first look make no gate.
    """
    gates = []
    threshold, rates = log_time_of_drop(drop_pct), pair_rates(plan.looks)
    start = 0
    while taken := looks_at(
        differences[start : start + plan.pairs], threshold, rates, plan.looks, ended=True
    ):
        look = taken[-1]
        gates.append(
            AaGate(
                tuple(differences[start : start + look.pairs]),
                look.verdict.decision,
                rate_change_pct(look.estimate.mean_diff),
            )
        )
        start += look.pairs
    return tuple(gates)


def ledger_bound(
    lines: Iterable[LedgerLine], machine: str, workload: str, drop_pct: float | None = None
) -> Count:
    """Return how many of a workload's gates on one class of machine raised an alarm.

    ``drop_pct`` counts those of that threshold alone: each has its own rate of alarms.
    """
    decisions = [
        line.decision
        for line in lines
        if (line.machine, line.workload) == (machine, workload)
        and drop_pct in (None, line.threshold_pct)
    ]
    return Count(decisions.count("regressed"), len(decisions))


def ledger_words(count: Count) -> str:
    """Return ``0 of 312 A/A gates raised an alarm: ≤ 1.0 % (95 % confidence)``."""
    if not count.trials:
        return "no A/A gate stands in the ledger yet"
    return (
        f"{count.failures} of {count.trials:,} A/A gates raised an alarm: "
        f"≤ {pct(count.upper)} % (95 % confidence)"
    )

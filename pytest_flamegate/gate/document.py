"""The verdict as plain data: what ``verdict.json`` holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core.json import from_plain
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.headline import headline
from pytest_flamegate.gate.signals import (
    Reason,
    Signal,
)
from pytest_flamegate.gate.verdict import Verdict, VerdictName

if TYPE_CHECKING:
    from pytest_flamegate.gate.brick_costs import BrickCost
    from pytest_flamegate.gate.bricks import BrickChange
    from pytest_flamegate.gate.comparability import FieldDifference
    from pytest_flamegate.gate.hotspots import HotspotChange
    from pytest_flamegate.gate.pairs import PhaseChange


Plain = dict[str, object]


def verdict_document(verdict: Verdict) -> Plain:
    """Return the verdict as JSON-ready data: only dicts, lists, strings, finite numbers, null."""
    return {
        "verdict": verdict.verdict,
        "headline": headline(verdict),
        "exit_code": verdict.exit_code,
        "reasons": [_reason(reason) for reason in verdict.reasons],
        "signals": [_signal(signal) for signal in verdict.signals],
        "smallest_detectable_pct": verdict.smallest_detectable_pct,
        "false_alarm_rate": verdict.false_alarm_rate,
        "miss_rate": verdict.miss_rate,
        "error_rate_basis": verdict.error_rate_basis,
        "method": "stored" if verdict.pairs is None else "pairs",
        "pairs": verdict.pairs,
        "looks": list(verdict.looks),
        "against": verdict.against,
        "comparability": {
            "comparable": verdict.comparability.comparable,
            "differences": [_difference(each) for each in verdict.comparability.differences],
        },
        "grade": verdict.grade,
        "processes": {
            "baseline": verdict.baseline_processes,
            "current": verdict.current_processes,
        },
        "cpu_pressure_pct": verdict.cpu_pressure_pct,
        "hotspots": [_hotspot(hotspot) for hotspot in verdict.hotspots],
        "attribution": [_cost(cost) for cost in verdict.attribution],
        "explained_by": list(verdict.explained_by),
        "phases": [_phase(phase) for phase in verdict.phases],
        "bricks": [_brick(change) for change in verdict.bricks],
    }


def _reason(reason: Reason) -> Plain:
    return {"code": reason.code, "message": reason.message}


def _signal(signal: Signal) -> Plain:
    return {
        "name": signal.name,
        "baseline": signal.baseline,
        "current": signal.current,
        "unit": signal.unit,
        "direction": signal.direction,
        "change_pct": signal.change_pct,
        "ci_low_pct": signal.ci_low_pct,
        "ci_high_pct": signal.ci_high_pct,
        "threshold_pct": signal.threshold_pct,
        "smallest_detectable_pct": signal.smallest_detectable_pct,
        "decision": signal.decision,
    }


def _difference(difference: FieldDifference) -> Plain:
    return {
        "field": difference.field,
        "baseline": difference.baseline,
        "current": difference.current,
        "code": difference.code,
    }


def _hotspot(hotspot: HotspotChange) -> Plain:
    share = hotspot.share
    return {
        "name": share.name,
        "presence": share.presence,
        "baseline_share_pct": 100.0 * share.baseline_share,
        "current_share_pct": 100.0 * share.current_share,
        "shift_pp": share.shift_pp,
        "threshold_pp": hotspot.threshold_pp,
        "p_adjusted": share.p_adjusted,
        "finding": hotspot.finding,
        "decision": hotspot.decision,
    }


def _brick(change: BrickChange) -> Plain:
    grown = change.grown
    return {
        "name": change.name,
        "budget_us_per_call": change.budget.per_call_us,
        "allowed_growth_pct": change.budget.growth_pct,
        "baseline": None if change.baseline is None else _brick_cost(change.baseline),
        "current": None if change.current is None else _brick_cost(change.current),
        "decisions": {signal.unit: signal.decision for signal in change.signals},
        "grown": None
        if grown is None
        else {
            "layer": grown.layer,
            "baseline_us_per_token": grown.baseline_us,
            "current_us_per_token": grown.current_us,
        },
    }


def _brick_cost(cost: BrickCost) -> Plain:
    return {
        "us_per_token": cost.token_us_mean,
        "us_per_call": cost.call_us_mean,
        "calls_per_token": cost.calls_mean,
        "processes": len(cost.call_us),
    }


def _phase(phase: PhaseChange) -> Plain:
    return {
        "name": phase.name,
        "baseline_ms": phase.baseline_ms,
        "current_ms": phase.current_ms,
        "change_pct": phase.change_pct,
        "ci_low_pct": phase.ci_low_pct,
        "ci_high_pct": phase.ci_high_pct,
        "certain": phase.certain,
    }


def _cost(cost: CostChange) -> Plain:
    return {
        "name": cost.name,
        "baseline_us_per_token": cost.baseline_us,
        "current_us_per_token": cost.current_us,
        "change_us_per_token": cost.change_us,
        "ci_low_us_per_token": cost.ci_low_us,
        "ci_high_us_per_token": cost.ci_high_us,
        "p_adjusted": cost.p_adjusted,
        "explains": cost.explains,
    }


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict and its headline. Of shares and comparability the document has the words only."""

    headline: str
    verdict: Verdict

    @classmethod
    def of(cls, verdict: Verdict) -> Told:
        """Return what the document of ``verdict`` tells."""
        return read_verdict(verdict_document(verdict))


def read_verdict(document: object) -> Told:
    """Read what ``verdict_document`` wrote; ``ReceiptError`` where it is something else."""
    read = from_plain(_Document, document)
    return Told(
        read.headline,
        Verdict(
            verdict=read.verdict,
            reasons=read.reasons,
            grade=read.grade,
            signals=read.signals,
            smallest_detectable_pct=read.smallest_detectable_pct,
            false_alarm_rate=read.false_alarm_rate,
            miss_rate=read.miss_rate,
            error_rate_basis=read.error_rate_basis,
            attribution=tuple(cost.change for cost in read.attribution),
            explained_by=read.explained_by,
            pairs=read.pairs,
            against=read.against,
            baseline_processes=read.processes.baseline,
            current_processes=read.processes.current,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Processes:
    baseline: int
    current: int


@dataclass(frozen=True, slots=True)
class _Cost:
    name: str
    baseline_us_per_token: float
    current_us_per_token: float
    change_us_per_token: float
    ci_low_us_per_token: float
    ci_high_us_per_token: float
    p_adjusted: float
    explains: float | None

    @property
    def change(self) -> CostChange:
        return CostChange(
            name=self.name,
            baseline_us=self.baseline_us_per_token,
            current_us=self.current_us_per_token,
            change_us=self.change_us_per_token,
            ci_low_us=self.ci_low_us_per_token,
            ci_high_us=self.ci_high_us_per_token,
            # The bound that shares are judged by is not told.
            no_more_than_us=math.inf,
            p_adjusted=self.p_adjusted,
            explains=self.explains,
        )


@dataclass(frozen=True, slots=True)
class _Document:
    verdict: VerdictName
    headline: str
    reasons: tuple[Reason, ...]
    grade: str
    signals: tuple[Signal, ...]
    smallest_detectable_pct: float | None
    false_alarm_rate: float | None
    miss_rate: float | None
    error_rate_basis: str
    pairs: int | None
    against: str | None
    processes: _Processes
    attribution: tuple[_Cost, ...]
    explained_by: tuple[str, ...]

"""``verdict.json``: a verdict as a document, and back.

``schemas/verdict-1.0.0.schema.json`` describes the fields. Of shares and bricks it holds the
figures that a reader needs, not all that the decision needs.
"""

import math
from dataclasses import fields
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from pytest_flamegate.core.json import Count, NonNegative, Share, decode_json, replace
from pytest_flamegate.gate.brick_costs import BrickCost
from pytest_flamegate.gate.bricks import BrickChange
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.lines import LineChange
from pytest_flamegate.gate.rule import Reason, Signal
from pytest_flamegate.gate.verdict import PairMethod, Verdict, headline
from pytest_flamegate.profile.calls import CallChange
from pytest_flamegate.receipt.types import VerdictName

_SIGNAL_FIELDS = [
    each.name for each in fields(Signal) if each.name not in ("reasons", "more_processes")
]


class ProcessCounts(Struct, frozen=True):
    """Timed processes of each side."""

    baseline: Count
    current: Count


class StoredVerdict(Struct, frozen=True):
    """The fields of a document that are read back: those of ``Verdict``, and three others."""

    headline: str
    attribution: tuple[CostChange, ...]
    processes: ProcessCounts
    verdict: VerdictName
    reasons: tuple[Reason, ...]
    signals: tuple[Signal, ...]
    smallest_detectable_pct: NonNegative | None
    false_alarm_rate: Share | None
    miss_rate: Share | None
    error_rate_basis: str
    pairs: Count | None
    against: str | None
    grade: str
    explained_by: tuple[str, ...]
    pair_method: PairMethod | None = None
    lines: tuple[LineChange, ...] = ()
    calls: tuple[CallChange, ...] = ()
    """These are absent from older documents."""


def read_verdict(data: bytes) -> tuple[str, Verdict]:
    """Return the headline and the verdict in ``verdict.json``; ReceiptError if it is malformed.

    The verdict comes without shares, bricks, phases and differences.
    """
    document = asdict(decode_json(data, StoredVerdict, subject="The verdict"))
    processes: ProcessCounts = document.pop("processes")
    return document.pop("headline"), Verdict(
        **document,
        baseline_processes=processes.baseline,
        current_processes=processes.current,
    )


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return ``verdict`` as it is written to ``verdict.json``."""
    return {
        "verdict": verdict.verdict,
        "headline": headline(verdict),
        "exit_code": verdict.exit_code,
        "reasons": verdict.reasons,
        "signals": [
            {name: getattr(signal, name) for name in _SIGNAL_FIELDS} for signal in verdict.signals
        ],
        "smallest_detectable_pct": verdict.smallest_detectable_pct,
        "false_alarm_rate": verdict.false_alarm_rate,
        "miss_rate": verdict.miss_rate,
        "error_rate_basis": verdict.error_rate_basis,
        "method": "stored" if verdict.pairs is None else "pairs",
        "pairs": verdict.pairs,
        "pair_method": verdict.pair_method,
        "looks": verdict.analyses,
        "against": verdict.against,
        "comparability": {
            "comparable": not verdict.differences,
            "differences": verdict.differences,
        },
        "grade": verdict.grade,
        "processes": ProcessCounts(verdict.baseline_processes, verdict.current_processes),
        "cpu_pressure_pct": verdict.cpu_pressure_pct,
        "hotspots": [_describe_hotspot(hotspot) for hotspot in verdict.hotspots],
        # Without the bound that shares are judged by.
        "attribution": [replace(cost, no_more_than_us=math.inf) for cost in verdict.attribution],
        "lines": verdict.lines,
        "calls": verdict.calls,
        "explained_by": verdict.explained_by,
        "phases": verdict.phases,
        "bricks": [_describe_brick(change) for change in verdict.bricks],
    }


def _describe_hotspot(hotspot: HotspotChange) -> dict[str, Any]:
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


def _describe_brick(change: BrickChange) -> dict[str, Any]:
    def describe_cost(cost: BrickCost | None) -> dict[str, Any] | None:
        if cost is None:
            return None
        return {
            "us_per_token": cost.token_us_mean,
            "us_per_call": cost.call_us_mean,
            "calls_per_token": cost.calls_mean,
            "processes": len(cost.call_us),
        }

    grown = change.grown
    return {
        "name": change.name,
        "budget_us_per_call": change.budget.per_call_us,
        "allowed_growth_pct": change.budget.growth_pct,
        "baseline": describe_cost(change.baseline),
        "current": describe_cost(change.current),
        "decisions": {
            signal.unit: signal.decision
            for signal in sorted(change.signals, key=lambda signal: signal.unit)
        },
        "grown": grown
        and {
            "layer": grown.layer,
            "baseline_us_per_token": grown.baseline_us,
            "current_us_per_token": grown.current_us,
        },
    }

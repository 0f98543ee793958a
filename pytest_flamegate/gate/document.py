"""``verdict.json``: a verdict as a document, and back.

Of shares and bricks it holds the figures that a reader needs, not all that the decision needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from pytest_flamegate.core.json import Count, NonEmpty, NonNegative, Positive, Share, decode_json
from pytest_flamegate.gate.brick_costs import BrickCost
from pytest_flamegate.gate.bricks import BrickChange
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.pairs import PhaseChange
from pytest_flamegate.gate.rule import Decision, FieldDifference, Reason, Signal
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.receipt.types import Direction, VerdictName

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One figure compared with its baseline.

    Attributes:
        name: Its name.
        baseline: The accepted value, in ``unit``.
        current: The value of this run, in ``unit``.
        unit: Its unit.
        direction: Which way is better.
        change_pct: Change against the baseline, in percent.
        ci_low_pct: Lower end of its confidence interval, in percent.
        ci_high_pct: Upper end of its confidence interval, in percent.
        threshold_pct: The allowed change for the worse, in percent.
        smallest_detectable_pct: The smallest change that could have been detected, in percent.
        decision: The decision on this figure alone.
    """

    name: NonEmpty
    baseline: float | None
    current: float | None
    unit: str
    direction: Direction
    change_pct: float | None
    ci_low_pct: float | None
    ci_high_pct: float | None
    threshold_pct: NonNegative | None
    smallest_detectable_pct: float | None
    decision: Decision


@dataclass(frozen=True, slots=True)
class ComparabilityRow:
    """Whether the two runs may be compared, and the fields that forbid it."""

    comparable: bool
    differences: tuple[FieldDifference, ...]


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """Timed processes of each side."""

    baseline: Count
    current: Count


@dataclass(frozen=True, slots=True)
class HotspotRow:
    """One function's share of the samples, before and after, in percent of all."""

    name: str
    presence: str
    baseline_share_pct: float
    current_share_pct: float
    shift_pp: float
    threshold_pp: float
    p_adjusted: float
    finding: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class CostRow:
    """The cost of one function per token, before and after, with the interval of the change."""

    name: str
    baseline_us_per_token: float
    current_us_per_token: float
    change_us_per_token: float
    ci_low_us_per_token: float
    ci_high_us_per_token: float
    p_adjusted: float
    explains: float | None


@dataclass(frozen=True, slots=True)
class BrickCostRow:
    """One brick on one side: means over its processes."""

    us_per_token: float
    us_per_call: float
    calls_per_token: float
    processes: Count


@dataclass(frozen=True, slots=True)
class GrownLayerRow:
    """The layer that accounts for most of the growth of a brick."""

    layer: Count
    baseline_us_per_token: float
    current_us_per_token: float


@dataclass(frozen=True, slots=True)
class BrickVerdictRow:
    """One brick that was held to a declared budget.

    Attributes:
        name: The brick.
        budget_us_per_call: The most that one call may cost, in microseconds; None if unlimited.
        allowed_growth_pct: Allowed growth of its cost per token; None if unlimited.
        baseline: Its costs before; None if no growth was judged or it was not there.
        current: Its costs now; None if it does not run any more.
        decisions: The decision on each of its figures alone, by unit.
        grown: The layer that grew by most of what the brick grew, if one did.
    """

    name: NonEmpty
    budget_us_per_call: float | None
    allowed_growth_pct: float | None
    baseline: BrickCostRow | None
    current: BrickCostRow | None
    decisions: Mapping[str, str]
    grown: GrownLayerRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictDocument:
    """The gate's decision about one workload, and the figures behind it.

    Attributes:
        verdict: The decision. ``pass`` and ``improved`` let the test pass; ``regressed``,
            ``dishonest`` and ``error`` fail it; the others fail it under CI.
        headline: The verdict as one sentence.
        exit_code: The exit code of the command line.
        reasons: Why, most important first.
        signals: The figures compared.
        smallest_detectable_pct: The smallest change that this measurement could have detected.
        false_alarm_rate: Share of unchanged code that this rule would call regressed.
        miss_rate: Share of drops of the threshold or more that this rule would let pass.
        error_rate_basis: How the two rates are known: nominal, simulated or calibrated here.
        method: Compared with a stored baseline, or with a revision measured in pairs.
        pairs: Pairs of processes at the analysis that decided; None with a stored baseline.
        looks: Numbers of pairs at which an answer was allowed.
        against: Commit of the base of a comparison in pairs.
        comparability: Whether the two runs may be compared.
        grade: How far the receipt may be believed.
        processes: Timed processes of each side.
        cpu_pressure_pct: CPU pressure of the machine during the run, in percent.
        hotspots: Functions whose share was judged.
        attribution: The cost of each function per token, largest change first.
        explained_by: The fewest functions that explain four fifths of a certain change.
        phases: Prefill and decode, each with its own change.
        bricks: The bricks that were held to a declared budget.
    """

    verdict: VerdictName
    headline: str
    exit_code: Count = 0
    reasons: tuple[Reason, ...]
    signals: tuple[SignalRow, ...]
    smallest_detectable_pct: NonNegative | None
    false_alarm_rate: Share | None
    miss_rate: Share | None
    error_rate_basis: str
    method: Literal["stored", "pairs"] = "stored"
    pairs: Count | None
    looks: tuple[Positive, ...] = ()
    against: str | None
    comparability: ComparabilityRow
    grade: str
    processes: ProcessCounts
    cpu_pressure_pct: NonNegative | None = None
    hotspots: tuple[HotspotRow, ...] = ()
    attribution: tuple[CostRow, ...]
    explained_by: tuple[str, ...]
    phases: tuple[PhaseChange, ...] = ()
    bricks: tuple[BrickVerdictRow, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict as its document holds it: without shares, bricks, phases and comparability."""

    headline: str
    verdict: Verdict


def read_verdict(data: bytes) -> StoredVerdict:
    """Return the verdict in the bytes of ``verdict.json``; ReceiptError if it is malformed."""
    document = decode_json(data, VerdictDocument, subject="The verdict")
    attribution = [
        # The document does not have the bound that shares are judged by.
        _row(
            CostChange,
            row,
            **{name: getattr(row, field) for name, field in _COST_NAMES.items()},
            no_more_than_us=math.inf,
        )
        for row in document.attribution
    ]
    same = (
        *("verdict", "reasons", "grade", "smallest_detectable_pct", "false_alarm_rate"),
        *("miss_rate", "error_rate_basis", "explained_by", "pairs", "against"),
    )
    verdict = Verdict(
        **{name: getattr(document, name) for name in same},
        signals=tuple(_row(Signal, row, reasons=(), helped_by=()) for row in document.signals),
        attribution=tuple(attribution),
        baseline_processes=document.processes.baseline,
        current_processes=document.processes.current,
    )
    return StoredVerdict(document.headline, verdict)


def verdict_document(verdict: Verdict) -> VerdictDocument:
    """Return ``verdict`` as it is written to ``verdict.json``."""
    comparability = verdict.comparability
    return _row(
        VerdictDocument,
        verdict,
        headline=headline(verdict),
        signals=tuple(_row(SignalRow, signal) for signal in verdict.signals),
        method="stored" if verdict.pairs is None else "pairs",
        comparability=ComparabilityRow(comparability.comparable, comparability.differences),
        processes=ProcessCounts(verdict.baseline_processes, verdict.current_processes),
        hotspots=tuple(map(_hotspot, verdict.hotspots)),
        attribution=tuple(
            _row(CostRow, cost, **{new: getattr(cost, old) for old, new in _COST_NAMES.items()})
            for cost in verdict.attribution
        ),
        bricks=tuple(map(_brick, verdict.bricks)),
    )


_COST_NAMES = {
    "baseline_us": "baseline_us_per_token",
    "current_us": "current_us_per_token",
    "change_us": "change_us_per_token",
    "ci_low_us": "ci_low_us_per_token",
    "ci_high_us": "ci_high_us_per_token",
}


def _row(kind: type[T], value: object, **given: Any) -> T:
    """Return a ``kind`` with the fields ``given``, and the others from ``value``."""
    names = [field.name for field in fields(kind) if field.name not in given]  # type: ignore[arg-type]
    return kind(**given, **{name: getattr(value, name) for name in names})


def _hotspot(hotspot: HotspotChange) -> HotspotRow:
    share = hotspot.share
    return _row(
        HotspotRow,
        hotspot,
        presence=share.presence,
        baseline_share_pct=100.0 * share.baseline_share,
        current_share_pct=100.0 * share.current_share,
        shift_pp=share.shift_pp,
        p_adjusted=share.p_adjusted,
    )


def _brick(change: BrickChange) -> BrickVerdictRow:
    def cost(of: BrickCost | None) -> BrickCostRow | None:
        if of is None:
            return None
        return BrickCostRow(of.token_us_mean, of.call_us_mean, of.calls_mean, len(of.call_us))

    grown = change.grown
    return BrickVerdictRow(
        name=change.name,
        budget_us_per_call=change.budget.per_call_us,
        allowed_growth_pct=change.budget.growth_pct,
        baseline=cost(change.baseline),
        current=cost(change.current),
        decisions={signal.unit: signal.decision for signal in change.signals},
        grown=grown
        if grown is None
        else GrownLayerRow(grown.layer, grown.baseline_us, grown.current_us),
    )

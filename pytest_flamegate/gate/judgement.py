"""From two evidences to a verdict: what is asked first, and what outweighs what.

In this order, the first that holds decides:

1. `dishonest`: the baseline is a copy of the current evidence, or shares a process with it.
2. `not_comparable`: something that must be equal differs, or the machine was in another state.
3. `inconclusive`: a number is missing or impossible.
4. `regressed`: tokens per second fell, any share drifted without excuse, or a brick outgrew
   what its budget allows. Certain harm outweighs whatever else is unsettled; a call over its
   budget needs no baseline for that, and no other side that can be compared.
5. `inconclusive`: any signal is. An improvement beside an open question stays open.
6. `improved`: tokens per second rose, a drifted share was excused by a faster whole, or a brick
   with a budget got cheaper.
7. `pass`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from pytest_flamegate.errors import UndecidedError, UsageError
from pytest_flamegate.gate.bricks import Bricks, judge_bricks
from pytest_flamegate.gate.combining import combined, helped_by, ordered, share_signal
from pytest_flamegate.gate.comparability import Comparability, Difference, compare
from pytest_flamegate.gate.conditions import condition_differences
from pytest_flamegate.gate.cost import explained_by
from pytest_flamegate.gate.hotspots import ShareDrift, judge_shares
from pytest_flamegate.gate.instructions import instruction_signals, reasons_of
from pytest_flamegate.gate.measurement import measurement_of
from pytest_flamegate.gate.signals import MIN_PROCESSES, ErrorRates, Reason, Signal
from pytest_flamegate.gate.throughput import TOKENS_PER_SECOND, judge_throughput, wall_signal
from pytest_flamegate.gate.verdict import Verdict, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.gate.signals import Decision
    from pytest_flamegate.receipt.types import Batch, Evidence
    from pytest_flamegate.workload.spec import Thresholds


def judge(
    baseline: Evidence | None,
    current: Evidence,
    thresholds: Thresholds,
    *,
    grade: str,
    share_drift: ShareDrift = "cost",
    looks: int = 1,
    batches: Sequence[Batch] = (),
) -> Verdict:
    """Judge ``current`` against a stored ``baseline``; without one the verdict is `no_baseline`.

    ``grade`` is the receipt's and is handed on. ``looks`` is how often the caller may
    ask at most, with more processes each time; the error rates are spent over them.
    ``batches`` are the measurements that the baseline rests on; from six on their own spread
    takes the place of an assumed drift.
    Raises UsageError ``E_THRESHOLD``, ``E_SHARE_DRIFT`` or ``E_LOOKS`` for settings that
    mean nothing. Anything wrong with the evidence is a verdict, never an exception.
    """
    check_settings(thresholds, share_drift, looks)
    rates = ErrorRates(looks=looks)
    alone = judge_bricks(None, current, thresholds, rates)
    if baseline is None:
        return budgeted(no_baseline(current, grade=grade), alone)
    refusal = copied(baseline, current)
    if refusal is not None:
        return refused("dishonest", [refusal], grade=grade)
    differences = (*_later(baseline, current), *compare(baseline, current).differences)
    comparability = Comparability(differences)
    if not comparability.comparable:
        return budgeted(not_comparable(comparability, grade), alone)
    try:
        old, new = measurement_of(baseline), measurement_of(current)
        counts = instruction_signals(baseline, current)
    except UndecidedError as error:
        return refused("inconclusive", [Reason.of(error)], grade=grade)
    comparability = Comparability(condition_differences(old, new))
    if not comparability.comparable:
        return budgeted(not_comparable(comparability, grade, old, new), alone)
    rate_signal, rate = judge_throughput(old, new, thresholds.tokens_per_second_pct, rates, batches)
    shares = judge_shares(old, new, thresholds, rate, rates, share_drift)
    bricks = judge_bricks(baseline, current, thresholds, rates)
    name = combined(rate_signal, shares, bricks)
    return Verdict(
        verdict=name,
        reasons=(*ordered(name, rate_signal, shares, bricks), *reasons_of(counts)),
        grade=grade,
        signals=(
            rate_signal,
            wall_signal(old, new),
            *counts,
            *map(share_signal, shares.hotspots),
            *bricks.signals,
        ),
        smallest_detectable_pct=rate_signal.smallest_detectable_pct,
        false_alarm_rate=rates.false_alarm,
        miss_rate=rates.miss,
        error_rate_basis=_basis(rates),
        hotspots=shares.hotspots,
        attribution=shares.costs,
        explained_by=explained_by(shares.costs),
        helped_by=helped_by(rate_signal, shares, bricks),
        baseline_processes=len(old.timed),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct,
        bricks=bricks.changes,
    )


def no_baseline(current: Evidence, *, grade: str) -> Verdict:
    """Return the verdict where nothing was accepted yet: shown, and judged by nothing."""
    try:
        new = measurement_of(current)
    except UndecidedError as refusal:
        return refused("inconclusive", [Reason.of(refusal)], grade=grade)
    reasons = [
        Reason(
            "E_NO_BASELINE",
            "No baseline is accepted for this workload on this machine. "
            "Accept this one with --flamegate-update.",
        )
    ]
    if len(new.timed) < MIN_PROCESSES:
        reasons.append(
            Reason(
                "E_FEW_PROCESSES",
                f"As a baseline it would need {MIN_PROCESSES} timed processes and has "
                f"{len(new.timed)}. Give it more time (--flamegate-budget sets the seconds).",
            )
        )
    return Verdict(
        verdict="no_baseline",
        reasons=tuple(reasons),
        grade=grade,
        signals=_shown(None, new, "no_baseline"),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct,
    )


def budgeted(verdict: Verdict, bricks: Bricks) -> Verdict:
    """Add what the budgets say where nothing is compared: a call over its own is a regression.

    ``bricks`` are those of the current side, judged without another.
    """
    over = [signal for signal in bricks.signals if signal.decision == "regressed"]
    rest = [signal for signal in bricks.signals if signal.decision != "regressed"]
    decided = verdict.verdict in ("no_baseline", "not_comparable") and bool(over)
    first, last = ([r for s in some for r in s.reasons] for some in (over, rest))
    return replace(
        verdict,
        verdict="regressed" if decided else verdict.verdict,
        reasons=(
            *(first if decided else ()),
            *verdict.reasons,
            *(() if decided else first),
            *last,
            *bricks.reasons,
        ),
        signals=(*verdict.signals, *bricks.signals),
        bricks=bricks.changes,
    )


def check_settings(thresholds: Thresholds, share_drift: str, looks: int) -> None:
    """Raise UsageError for settings that mean nothing."""
    drop = thresholds.tokens_per_second_pct
    if not (math.isfinite(drop) and 0.0 < drop < 100.0):
        raise UsageError(
            "E_THRESHOLD",
            f"An allowed drop of {drop} % of tokens per second means nothing.",
            "Give a percentage above 0 and below 100.",
        )
    for frame, drift in thresholds.hotspots_pp.items():
        if not (math.isfinite(drift) and 0.0 < drift <= 100.0):
            raise UsageError(
                "E_THRESHOLD",
                f"An allowed drift of {drift} pp for {frame} means nothing.",
                "Give percentage points above 0 and up to 100.",
            )
    for brick, budget in thresholds.bricks.items():
        for figure in (budget.per_call_us, budget.growth_pct):
            if figure is not None and not (math.isfinite(figure) and figure > 0.0):
                raise UsageError(
                    "E_THRESHOLD",
                    f"A budget of {figure} for the brick {brick} means nothing.",
                    "Give a time per call, or an allowed growth, above 0.",
                )
    if share_drift not in get_args(ShareDrift):
        raise UsageError(
            "E_SHARE_DRIFT",
            f"There is no share drift policy {share_drift!r}.",
            f"Choose one of {', '.join(get_args(ShareDrift))}.",
        )
    if looks < 1:
        raise UsageError(
            "E_LOOKS", f"{looks} looks decide nothing.", "Plan at least one look at the data."
        )


def copied(baseline: Evidence, current: Evidence) -> Reason | None:
    """Refuse a comparison of something with itself: it can only pass."""
    times = {run.blocks for run in baseline.runs if run.blocks}
    shared = [run.pid for run in current.runs if run.blocks in times]
    lanes = {(each.wall_ns, each.lanes) for each in baseline.bricks}
    shared += [each.pid for each in current.bricks if (each.wall_ns, each.lanes) in lanes]
    if baseline.nonce != current.nonce and not shared:
        return None
    what = (
        f"process {shared[0]} took the same times in both to the nanosecond"
        if shared
        else f"both carry the nonce {current.nonce!r}"
    )
    return Reason(
        "E_COPIED_BASELINE",
        f"The baseline was copied from what it is to judge: {what}. "
        "Restore the accepted baseline, or measure again.",
    )


def _later(baseline: Evidence, current: Evidence) -> tuple[Difference, ...]:
    """Refuse a baseline younger than what it is to judge: the two were exchanged."""
    # Both are written alike, in UTC to the millisecond: their order is that of the text.
    if baseline.created <= current.created:
        return ()
    when = (baseline.created, current.created)
    return (Difference("order of the two (the baseline must be older)", *when, "E_SIDES_SWAPPED"),)


def not_comparable(
    comparability: Comparability,
    grade: str,
    baseline: Measurement | None = None,
    current: Measurement | None = None,
) -> Verdict:
    """Return the verdict on two sides that must not be compared, with every difference."""
    return Verdict(
        verdict="not_comparable",
        reasons=tuple(
            Reason(difference.code, difference.message) for difference in comparability.differences
        ),
        grade=grade,
        signals=_shown(baseline, current, "not_comparable") if current is not None else (),
        comparability=comparability,
        baseline_processes=len(baseline.timed) if baseline is not None else 0,
        current_processes=len(current.timed) if current is not None else 0,
        cpu_pressure_pct=current.cpu_pressure_pct if current is not None else None,
    )


def _shown(
    baseline: Measurement | None, current: Measurement, decision: Decision
) -> tuple[Signal, ...]:
    """Return the rates as they stand, compared with nothing."""
    quiet = Signal(
        name=TOKENS_PER_SECOND,
        baseline=baseline.quiet_tokens_per_second if baseline is not None else None,
        current=current.quiet_tokens_per_second,
        unit=current.unit,
        direction="higher_is_better",
        decision=decision,
    )
    return quiet, wall_signal(baseline, current)


def _basis(rates: ErrorRates) -> str:
    spent = f", spent over {rates.looks} looks" if rates.looks > 1 else ""
    return (
        f"nominal {100 * rates.false_alarm:g} % for tokens per second and "
        f"{100 * rates.false_alarm:g} % for all shares together{spent}; "
        "not calibrated on this machine"
    )

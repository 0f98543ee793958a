"""What the rate, the shares and the bricks say together."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from pytest_flamegate.core.errors import UndecidedError, UsageError
from pytest_flamegate.gate.bricks import Bricks, judge_bricks
from pytest_flamegate.gate.comparability import (
    Comparability,
    FieldDifference,
    compare,
    condition_differences,
)
from pytest_flamegate.gate.hotspots import ShareDrift, explaining_functions, judge_shares
from pytest_flamegate.gate.instructions import instruction_signals, reasons_of
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.pairs import (
    FIRST_ANALYSES,
    InterimAnalysis,
    interim_analyses,
    pair_differences,
    phase_changes,
    trimmed_mean,
)
from pytest_flamegate.gate.signals import (
    MIN_PROCESSES,
    ErrorRates,
    Reason,
    ReportedRates,
    Signal,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.throughput import (
    TOKENS_PER_SECOND,
    judge_throughput,
    rate_signal,
    wall_signal,
)
from pytest_flamegate.gate.verdict import Verdict, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.config.thresholds import Thresholds
    from pytest_flamegate.gate.hotspots import Hotspot, Shares
    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.gate.pairs import PairDifference, Side
    from pytest_flamegate.gate.signals import Decision, Helper
    from pytest_flamegate.gate.verdict import VerdictName
    from pytest_flamegate.receipt.types import Batch, Evidence


def share_signal(hotspot: Hotspot) -> Signal:
    """Return one judged share as a signal, in percent of the samples."""
    share = hotspot.share
    return Signal(
        name=f"share:{share.name}",
        baseline=100.0 * share.baseline_share,
        current=100.0 * share.current_share,
        unit="share_pct",
        direction="lower_is_better",
        decision=hotspot.decision,
        change_pct=share.shift_pp,
        ci_low_pct=share.ci_low_pp,
        ci_high_pct=share.ci_high_pp,
        threshold_pct=hotspot.threshold_pp,
        smallest_detectable_pct=share.detectable_pp,
        reasons=(hotspot.reason,) if hotspot.reason is not None else (),
        helped_by=hotspot.helped_by,
    )


def combined(rate: Signal, shares: Shares, bricks: Bricks) -> VerdictName:
    """Return the verdict that the rate, the shares and the bricks make together."""
    decisions = {rate.decision, *(hotspot.decision for hotspot in shares.hotspots)}
    decisions.update(signal.decision for signal in bricks.signals)
    if "regressed" in decisions:
        return "regressed"
    reasons = (*shares.reasons, *bricks.reasons)
    if "inconclusive" in decisions or any(r.code.startswith("E_") for r in reasons):
        return "inconclusive"
    return "improved" if "improved" in decisions else "pass"


def ordered(name: VerdictName, rate: Signal, shares: Shares, bricks: Bricks) -> tuple[Reason, ...]:
    """Put the reasons that decided first; tokens per second leads among equals."""
    judged: list[tuple[bool, Sequence[Reason]]] = [(rate.decision == name, rate.reasons)]
    judged += [
        (hotspot.decision == name, (hotspot.reason,))
        for hotspot in shares.hotspots
        if hotspot.reason is not None
    ]
    judged += [(signal.decision == name, signal.reasons) for signal in bricks.signals]
    general = (*shares.reasons, *bricks.reasons)
    undecided = [reason for reason in general if reason.code.startswith("E_")]
    informing = [reason for reason in general if not reason.code.startswith("E_")]
    judged += [(name == "inconclusive", undecided), (False, informing)]
    deciding = [reason for decides, reasons in judged if decides for reason in reasons]
    beside = [reason for decides, reasons in judged if not decides for reason in reasons]
    return tuple(deciding + beside)


def helped_by(rate: Signal, shares: Shares, bricks: Bricks) -> tuple[Helper, ...]:
    """Return of which processes more could settle what is open."""
    wanted: set[Helper] = {*rate.helped_by, *shares.helped_by, *bricks.helped_by}
    for signal in bricks.signals:
        wanted.update(signal.helped_by)
    for hotspot in shares.hotspots:
        wanted.update(hotspot.helped_by)
    return tuple(sorted(wanted))


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
        old, new = read_measurement(baseline), read_measurement(current)
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
        explained_by=explaining_functions(shares.costs),
        helped_by=helped_by(rate_signal, shares, bricks),
        baseline_processes=len(old.timed),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct,
        bricks=bricks.changes,
    )


def no_baseline(current: Evidence, *, grade: str) -> Verdict:
    """Return the verdict where nothing was accepted yet: shown, and judged by nothing."""
    try:
        new = read_measurement(current)
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


def _later(baseline: Evidence, current: Evidence) -> tuple[FieldDifference, ...]:
    """Refuse a baseline younger than what it is to judge: the two were exchanged."""
    # Both are written alike, in UTC to the millisecond: their order is that of the text.
    if baseline.created <= current.created:
        return ()
    when = (baseline.created, current.created)
    return (
        FieldDifference("order of the two (the baseline must be older)", *when, "E_SIDES_SWAPPED"),
    )


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


SHARE_LOOKS = 2
"""How often shares are looked at: when the budget's part for profiles is spent, and at its end."""


PAIR_MISS_RATE = 0.02
"""Less than elsewhere: with 5 % the first look, at five pairs, let 1.1 % of the slowdowns of
exactly the threshold pass under load."""


SIMULATED = (
    "Replayed on 1,687 pairs of one code on a busy machine of two cores: no alarm in 243 gates "
    "at 5 % (≤ 1.2 %)."
)
"""What is known of the rule where nothing was calibrated; docs/gate.md has the rest."""


def pair_rates(looks: Sequence[int]) -> ErrorRates:
    """Return the error rates of a comparison, spent over its planned looks."""
    return ErrorRates(miss=PAIR_MISS_RATE, looks=len(looks))


def last_analysis(
    base: Side, head: Side, drop_pct: float, looks: Sequence[int], *, ended: bool
) -> InterimAnalysis | None:
    """Return the last look at tokens per second that was due; None before the first.

    Raises UndecidedError where the two sides are no pairs.
    """
    differences = [pair.quiet for pair in pair_differences(base, head)]
    rates = pair_rates(looks)
    taken = interim_analyses(differences, log_time_of_drop(drop_pct), rates, looks, ended=ended)
    return taken[-1] if taken else None


def judge_pairs(
    base: Evidence,
    head: Evidence,
    thresholds: Thresholds,
    *,
    grade: str,
    looks: Sequence[int] = FIRST_ANALYSES,
    ended: bool = True,
    share_drift: ShareDrift = "cost",
    known: ReportedRates | None = None,
) -> Verdict:
    """Judge ``head`` against ``base``, both measured in the same pairs.

    ``looks`` is the plan that was made beforehand, ``ended`` that no more pairs will come,
    ``known`` what is known of the rule's error rates (nominal without). Raises UsageError for
    settings that mean nothing; anything wrong with the evidence is a verdict.
    """
    check_settings(thresholds, share_drift, len(looks))
    refusal = copied(base, head) or _swapped(base, head)
    if refusal is not None:
        return refused("dishonest", [refusal], grade=grade)
    comparability = compare(base, head)
    if not comparability.comparable:
        alone = judge_bricks(None, head, thresholds, ErrorRates(looks=SHARE_LOOKS))
        return budgeted(not_comparable(comparability, grade), alone)
    try:
        old, new = read_measurement(base), read_measurement(head)
        differences = pair_differences(base, head)
        counts = instruction_signals(base, head)
        look = last_analysis(base, head, thresholds.tokens_per_second_pct, looks, ended=ended)
        _check_spread(differences)
    except UndecidedError as error:
        return refused("inconclusive", [Reason.of(error)], grade=grade)
    rates = pair_rates(looks)
    if look is None:
        return refused("inconclusive", [_few(len(differences), looks[0])], grade=grade)
    decided = differences[: look.pairs]
    rate = rate_signal(
        old,
        new,
        look.verdict,
        rate_change_pct(look.estimate.mean_diff),
        thresholds.tokens_per_second_pct,
        helped=look.verdict.decision == "inconclusive" and not ended,
    )
    shares = judge_shares(
        old,
        new,
        thresholds,
        look.verdict,
        ErrorRates(looks=SHARE_LOOKS),
        share_drift,
        trimmed_mean([pair.cpu for pair in decided]),
    )
    # The passes of both sides ran in turn: no batch drifted from the other.
    bricks = judge_bricks(base, head, thresholds, ErrorRates(looks=SHARE_LOOKS), drift_sd=0.0)
    name = combined(rate, shares, bricks)
    known = known or nominal(rates)
    return Verdict(
        verdict=name,
        reasons=(*ordered(name, rate, shares, bricks), *reasons_of(counts)),
        grade=grade,
        signals=(
            rate,
            wall_signal(old, new),
            *counts,
            *map(share_signal, shares.hotspots),
            *bricks.signals,
        ),
        smallest_detectable_pct=rate.smallest_detectable_pct,
        false_alarm_rate=known.false_alarm,
        miss_rate=known.miss,
        error_rate_basis=known.basis,
        hotspots=shares.hotspots,
        attribution=shares.costs,
        explained_by=explaining_functions(shares.costs),
        phases=phase_changes(base, head, decided, rates),
        pairs=look.pairs,
        looks=tuple(looks),
        against=base.commit.revision if base.commit else None,
        helped_by=helped_by(rate, shares, bricks),
        baseline_processes=len(old.timed),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct,
        bricks=bricks.changes,
    )


def nominal(rates: ErrorRates) -> ReportedRates:
    """Return what the rule promises by its arithmetic alone."""
    return ReportedRates(
        rates.false_alarm,
        rates.miss,
        f"nominal: ≤ {100 * rates.false_alarm:g} % false alarms and ≤ {100 * rates.miss:g} % "
        f"misses, spent over {rates.looks} looks. {SIMULATED} Not calibrated on this machine: "
        "flamegate calibrate does",
    )


def _swapped(base: Evidence, head: Evidence) -> Reason | None:
    if (base.side, head.side) == ("base", "head"):
        return None
    return Reason(
        "E_SIDES_SWAPPED",
        f"What was given as the base was measured as {base.side or 'no side'}, and what was given "
        f"as the head as {head.side or 'no side'}. Give each on its own side.",
    )


def _check_spread(differences: Sequence[PairDifference]) -> None:
    if len(differences) > 1 and len({pair.quiet for pair in differences}) == 1:
        raise UndecidedError(
            "E_CONSTANT_SAMPLES",
            f"All {len(differences)} pairs differ by exactly the same.",
            "Measure again: real pairs vary, so either these were copied or the clock is coarse.",
        )


def _few(pairs: int, first: int) -> Reason:
    return Reason(
        "E_FEW_PAIRS",
        f"{pairs} pair(s) were measured, and the first look needs {first}. "
        "Give it more time (--flamegate-budget sets the seconds).",
    )

"""Judge a run: from the evidence of one or two sides to a complete verdict.

Against a stored baseline and against a base that was measured in pairs, the path is the same; only
the change of tokens per second is estimated in another way, and with it the error rates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.config.thresholds import MIN_PROCESSES
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.batches import BATCH_DRIFT_SD_WITHOUT_REFERENCE
from pytest_flamegate.gate.bricks import JudgedBricks, judge_bricks
from pytest_flamegate.gate.comparability import (
    COMPARABLE,
    Comparability,
    FieldDifference,
    compare,
    condition_differences,
)
from pytest_flamegate.gate.costs import explaining_functions
from pytest_flamegate.gate.error_rates import nominal_rates, pair_error_rates
from pytest_flamegate.gate.hotspots import JudgedShares, judge_shares
from pytest_flamegate.gate.inputs import GatedRun, GatePolicy, PairedBase, StoredBaseline
from pytest_flamegate.gate.measurement import Measurement, read_measurement, repeated_samples
from pytest_flamegate.gate.pairs import (
    FIRST_ANALYSES,
    last_analysis,
    pair_differences,
    pair_rates,
    phase_changes,
    trimmed_mean,
)
from pytest_flamegate.gate.rule import ErrorRates
from pytest_flamegate.gate.signals import Reason, Signal, rate_change_pct
from pytest_flamegate.gate.throughput import judge_throughput, rate_signal, uncompared_rate
from pytest_flamegate.gate.ungated import find_notes, instruction_signals, wall_signal
from pytest_flamegate.gate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_flamegate.gate.error_rates import ReportedRates
    from pytest_flamegate.gate.pairs import PairDifference, PhaseChange
    from pytest_flamegate.gate.rule import RateVerdict
    from pytest_flamegate.gate.signals import Decision, Helper
    from pytest_flamegate.gate.statistics import Estimate
    from pytest_flamegate.receipt.types import Evidence, VerdictName


SHARE_ANALYSES = 2
"""Shares are judged twice in pairs: when the profiles' part of the budget is spent, and at its
end."""


def judge(
    run: GatedRun, baseline: StoredBaseline | PairedBase | None, policy: GatePolicy
) -> Verdict:
    """Judge a run against a baseline; without one the verdict is `no_baseline`.

    Whatever is wrong with the evidence is a verdict, never an exception.
    """
    verdict = _judge(run, baseline, policy)
    base = baseline.evidence if baseline is not None else None
    notes = (*find_notes(base, run.evidence), *run.notes)
    return replace(verdict, reasons=(*verdict.reasons, *notes))


def _judge(
    run: GatedRun, baseline: StoredBaseline | PairedBase | None, policy: GatePolicy
) -> Verdict:
    errors = _dishonesty(run, baseline)
    if errors:
        return Verdict.unjudged("dishonest", errors, grade=run.grade)
    paired = isinstance(baseline, PairedBase)
    rates = ErrorRates(analyses=SHARE_ANALYSES if paired else policy.analyses)
    try:
        if baseline is None:
            new = read_measurement(run.evidence)
            return _uncompared("no_baseline", run, policy, rates, current=new)
        comparability = _compare(baseline, run.evidence)
        if not comparability.comparable:
            return _uncompared("not_comparable", run, policy, rates, comparability, paired=paired)
        old, new = read_measurement(baseline.evidence), read_measurement(run.evidence)
        if isinstance(baseline, StoredBaseline):
            comparability = Comparability(condition_differences(old, new))
            if not comparability.comparable:
                return _uncompared(
                    "not_comparable", run, policy, rates, comparability, old=old, current=new
                )
            rate = _judge_stored_rate(baseline, old, new, policy, rates)
        else:
            rate = _judge_paired_rate(baseline, run.evidence, old, new, policy)
        counts = instruction_signals(baseline.evidence, run.evidence)
    except UndecidedError as error:
        return Verdict.unjudged("inconclusive", [Reason.from_error(error)], grade=run.grade)
    shares = judge_shares(
        old, new, policy.thresholds, rate.verdict, rates, policy.share_drift, rate.cpu
    )
    bricks = judge_bricks(
        baseline.evidence, run.evidence, policy.thresholds, rates, drift_sd=rate.batch_drift_sd
    )
    name = _combine_decisions(rate.signal, shares, bricks)
    return Verdict(
        verdict=name,
        reasons=(
            *_order_reasons(name, rate.signal, shares, bricks),
            *(reason for signal in counts for reason in signal.reasons),
        ),
        grade=run.grade,
        signals=(
            rate.signal,
            wall_signal(old, new),
            *counts,
            *(hotspot.signal for hotspot in shares.hotspots),
            *bricks.signals,
        ),
        smallest_detectable_pct=rate.signal.smallest_detectable_pct,
        false_alarm_rate=rate.reported.false_alarm,
        miss_rate=rate.reported.miss,
        error_rate_basis=rate.reported.basis,
        hotspots=shares.hotspots,
        attribution=shares.costs,
        explained_by=explaining_functions(shares.costs),
        phases=rate.phases,
        pairs=rate.pairs,
        looks=rate.analyses,
        against=_commit(baseline.evidence) if paired else None,
        helped_by=_collect_helpers(rate.signal, shares, bricks),
        baseline_processes=len(old.timed),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct,
        bricks=bricks.changes,
    )


# --- may the run be judged? ----------------------------------------------------------------


def _dishonesty(run: GatedRun, baseline: StoredBaseline | PairedBase | None) -> tuple[Reason, ...]:
    """Return why the run must not be judged at all; nothing if it may be."""
    if not isinstance(baseline, PairedBase):
        copied = _find_copy(baseline.evidence, run.evidence) if baseline is not None else None
        return run.errors or ((copied,) if copied is not None else ())
    copied = _find_copy(baseline.evidence, run.evidence)
    swapped = _find_swap(baseline.evidence, run.evidence)
    found = copied or swapped
    return run.errors or ((found,) if found is not None else ())


def _find_copy(baseline: Evidence, current: Evidence) -> Reason | None:
    """Return the error of a comparison of something with itself: it could only pass."""
    times = {run.blocks for run in baseline.runs if run.blocks}
    shared = [run.pid for run in current.runs if run.blocks in times]
    threads = {(run.wall_ns, run.lanes) for run in baseline.bricks}
    shared += [run.pid for run in current.bricks if (run.wall_ns, run.lanes) in threads]
    if baseline.nonce != current.nonce and not shared:
        return None
    same = (
        f"process {shared[0]} took the same times in both to the nanosecond"
        if shared
        else f"both carry the nonce {current.nonce!r}"
    )
    return Reason(
        "E_COPIED_BASELINE",
        f"The baseline was copied from the run that it is to judge: {same}. "
        "Restore the accepted baseline, or measure again.",
    )


def _find_swap(base: Evidence, head: Evidence) -> Reason | None:
    if (base.side, head.side) == ("base", "head"):
        return None
    return Reason(
        "E_SIDES_SWAPPED",
        f"The evidence given as the base was measured as {base.side or 'no side'}, and that given "
        f"as the head as {head.side or 'no side'}. Give each on its own side.",
    )


def _compare(baseline: StoredBaseline | PairedBase, current: Evidence) -> Comparability:
    comparability = compare(baseline.evidence, current)
    created = (baseline.evidence.created, current.created)
    # Both are written alike, in UTC to the millisecond: their order is that of the text.
    if isinstance(baseline, StoredBaseline) and created[0] > created[1]:
        newer = FieldDifference("time of measuring", *created, "E_BASELINE_NEWER")
        return Comparability((newer, *comparability.differences))
    return comparability


# --- without a comparison ------------------------------------------------------------------


def _uncompared(
    name: VerdictName,
    run: GatedRun,
    policy: GatePolicy,
    rates: ErrorRates,
    comparability: Comparability = COMPARABLE,
    *,
    paired: bool = False,
    old: Measurement | None = None,
    current: Measurement | None = None,
) -> Verdict:
    """Return the verdict on a run that is compared with nothing.

    Budgets for one call of a brick need no other side: a call over its budget is a regression.
    """
    if name == "no_baseline":
        reasons = _no_baseline_reasons(current, policy)
    else:
        reasons = comparability.reasons(paired=paired)
    bricks = judge_bricks(None, run.evidence, policy.thresholds, rates)
    over = [signal for signal in bricks.signals if signal.decision == "regressed"]
    rest = [signal for signal in bricks.signals if signal.decision != "regressed"]
    signals: tuple[Signal, ...] = bricks.signals
    if current is not None:
        decision: Decision = "no_baseline" if name == "no_baseline" else "not_comparable"
        signals = (uncompared_rate(old, current, decision), wall_signal(old, current), *signals)
    return Verdict(
        verdict="regressed" if over else name,
        reasons=(*_reasons_of(over), *reasons, *_reasons_of(rest), *bricks.reasons),
        grade=run.grade,
        signals=signals,
        comparability=comparability,
        baseline_processes=len(old.timed) if old is not None else 0,
        current_processes=len(current.timed) if current is not None else 0,
        cpu_pressure_pct=current.cpu_pressure_pct if current is not None else None,
        bricks=bricks.changes,
    )


def _no_baseline_reasons(current: Measurement | None, policy: GatePolicy) -> tuple[Reason, ...]:
    remedy = (
        "Compare with a revision instead: --flamegate-against=origin/main."
        if policy.ci
        else "Accept this run with --flamegate-update."
    )
    missing = Reason(
        "E_NO_BASELINE",
        f"No baseline is accepted for this workload on this machine. {remedy}",
    )
    if current is None or len(current.timed) >= MIN_PROCESSES:
        return (missing,)
    return missing, Reason(
        "E_FEW_PROCESSES",
        f"A baseline needs {MIN_PROCESSES} timed processes; this run has {len(current.timed)}. "
        "Give it more time (--flamegate-budget sets the seconds).",
    )


# --- tokens per second, in two ways --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _JudgedRate:
    """The decision about tokens per second, and what follows from how it was measured.

    ``cpu`` is the change of log CPU time per token, None if no pairs measured it;
    ``batch_drift_sd`` is the drift between the two sides in log time.
    """

    signal: Signal
    verdict: RateVerdict | None
    reported: ReportedRates
    batch_drift_sd: float
    cpu: Estimate | None = None
    phases: tuple[PhaseChange, ...] = ()
    pairs: int | None = None
    analyses: tuple[int, ...] = ()


def _judge_stored_rate(
    baseline: StoredBaseline,
    old: Measurement,
    new: Measurement,
    policy: GatePolicy,
    rates: ErrorRates,
) -> _JudgedRate:
    signal, verdict = judge_throughput(
        old, new, policy.thresholds.tokens_per_second_pct, rates, baseline.batches
    )
    return _JudgedRate(signal, verdict, nominal_rates(rates), BATCH_DRIFT_SD_WITHOUT_REFERENCE)


def _judge_paired_rate(
    base: PairedBase, head: Evidence, old: Measurement, new: Measurement, policy: GatePolicy
) -> _JudgedRate:
    """Judge tokens per second by the last analysis that was due.

    Raises:
        UndecidedError: ``E_UNPAIRED`` if the two sides do not belong together, ``E_FEW_PAIRS``
            before the first analysis, ``E_REPEATED_SAMPLES`` if all pairs are the same.
    """
    drop_pct = policy.thresholds.tokens_per_second_pct
    differences = pair_differences(base.evidence, head)
    analysis = last_analysis(base.evidence, head, drop_pct, base.analyses, ended=base.ended)
    _check_spread(differences)
    if analysis is None:
        raise UndecidedError(
            "E_FEW_PAIRS",
            f"{len(differences)} pair(s) were measured; the first analysis needs "
            f"{base.analyses[0]}.",
            "Give it more time (--flamegate-budget sets the seconds).",
        )
    rates = pair_rates(base.analyses)
    analysed = differences[: analysis.pairs]
    reported = base.rates or pair_error_rates(
        head.workload, drop_pct, rates, default_plan=base.analyses == FIRST_ANALYSES
    )
    signal = rate_signal(
        old,
        new,
        analysis.verdict,
        rate_change_pct(analysis.estimate.mean_diff),
        drop_pct,
        helps=analysis.verdict.decision == "inconclusive" and not base.ended,
    )
    return _JudgedRate(
        signal,
        analysis.verdict,
        reported,
        # Both sides ran in turn: no batch drifted from the other.
        batch_drift_sd=0.0,
        cpu=trimmed_mean([pair.cpu for pair in analysed]),
        phases=phase_changes(base.evidence, head, analysed, rates),
        pairs=analysis.pairs,
        analyses=base.analyses,
    )


def _check_spread(differences: Sequence[PairDifference]) -> None:
    if len(differences) > 1 and len({pair.quiet for pair in differences}) == 1:
        raise repeated_samples(f"All {len(differences)} pairs differ by exactly the same.")


def _commit(evidence: Evidence) -> str | None:
    return evidence.commit.revision if evidence.commit else None


# --- all decisions together ----------------------------------------------------------------


def _combine_decisions(rate: Signal, shares: JudgedShares, bricks: JudgedBricks) -> VerdictName:
    """Combine the decisions: certain harm outweighs an open question, and that a gain."""
    decisions = {rate.decision, *(hotspot.decision for hotspot in shares.hotspots)}
    decisions.update(signal.decision for signal in bricks.signals)
    if "regressed" in decisions:
        return "regressed"
    reasons = (*shares.reasons, *bricks.reasons)
    if "inconclusive" in decisions or any(reason.leaves_open for reason in reasons):
        return "inconclusive"
    return "improved" if "improved" in decisions else "pass"


def _order_reasons(
    name: VerdictName, rate: Signal, shares: JudgedShares, bricks: JudgedBricks
) -> tuple[Reason, ...]:
    """Put the reasons that decided first; tokens per second leads among equals."""
    shown = (rate, *(hotspot.signal for hotspot in shares.hotspots), *bricks.signals)
    general = (*shares.reasons, *bricks.reasons)
    is_open = name == "inconclusive"
    return (
        *_reasons_of(signal for signal in shown if signal.decision == name),
        *(reason for reason in general if reason.leaves_open and is_open),
        *_reasons_of(signal for signal in shown if signal.decision != name),
        *(reason for reason in general if not (reason.leaves_open and is_open)),
    )


def _reasons_of(signals: Iterable[Signal]) -> tuple[Reason, ...]:
    return tuple(reason for signal in signals for reason in signal.reasons)


def _collect_helpers(
    rate: Signal, shares: JudgedShares, bricks: JudgedBricks
) -> tuple[Helper, ...]:
    """Return the kinds of process of which more could settle an open question."""
    helpers: set[Helper] = {*rate.helped_by, *shares.helped_by, *bricks.helped_by}
    for signal in bricks.signals:
        helpers.update(signal.helped_by)
    for hotspot in shares.hotspots:
        helpers.update(hotspot.helped_by)
    return tuple(sorted(helpers))

"""Tokens per second of a run and its base, measured in pairs: the last analysis that was due.

Earlier attempts at the same comparison are judged together with it.
"""

import math
from dataclasses import dataclass, replace

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.analyses import FIRST_ANALYSES, last_analysis, pair_rates
from pytest_flamegate.gate.attempts import Attempt, find_open_attempts, pool_attempts
from pytest_flamegate.gate.calibration import rates_without_calibration
from pytest_flamegate.gate.measurement import Measurement, repeated_samples_error
from pytest_flamegate.gate.pairs import (
    PhaseChange,
    find_busy_cores,
    find_disagreement,
    judge_whole,
    others_pct,
    pair_differences,
    phase_changes,
)
from pytest_flamegate.gate.rule import (
    FAVOURABLE,
    RateVerdict,
    Reason,
    ReportedRates,
    Signal,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import Estimate, trimmed_mean
from pytest_flamegate.gate.throughput import rate_signal
from pytest_flamegate.gate.verdict import PairMethod
from pytest_flamegate.receipt.types import Evidence


@dataclass(frozen=True, slots=True)
class PairedBase:
    """The base of a comparison in pairs.

    ``analyses`` is the plan that was made before measuring. ``rates`` are the error rates by a
    calibration, None without one. ``earlier`` are attempts at the same comparison, judged alone.
    """

    evidence: Evidence
    analyses: tuple[int, ...] = FIRST_ANALYSES
    rates: ReportedRates | None = None
    earlier: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedRate:
    """The decision about tokens per second, with the figures that depend on how it was measured.

    ``verdict`` has the bounds of this measurement, which explain its profile, and the decision of
    all attempts. ``cpu`` (the change of log CPU time per token, None if no pairs measured it) and
    ``phases`` are those of all pairs, also of those after the decision. ``batch_drift_sd`` is the
    drift between the two sides in log time. ``others_pct`` is the part of a shared core's time that
    other programs had.
    """

    signal: Signal
    verdict: RateVerdict | None
    reported: ReportedRates
    batch_drift_sd: float
    cpu: Estimate | None = None
    phases: tuple[PhaseChange, ...] = ()
    pairs: int | None = None
    pair_method: PairMethod | None = None
    analyses: tuple[int, ...] = ()
    others_pct: float | None = None


def judge_paired_rate(
    base: PairedBase, head: Evidence, old: Measurement, new: Measurement, thresholds: Thresholds
) -> JudgedRate:
    """Judge tokens per second by the last analysis that was due.

    Raises:
        UndecidedError: ``E_UNPAIRED`` if the two sides do not belong together, ``E_FEW_PROCESSES``
            before the first analysis, ``E_REPEATED_SAMPLES`` if all pairs are the same.
    """
    drop_pct = thresholds.tokens_per_second_pct
    differences = pair_differences(base.evidence, head)
    count = len(differences)
    analysis = last_analysis(base.evidence, head, drop_pct, base.analyses, ended=True)
    if count > 1 and len({pair.quiet for pair in differences}) == 1:
        raise repeated_samples_error(f"All {count} pairs differ by exactly the same.")
    if analysis is None:
        raise UndecidedError(
            "E_FEW_PROCESSES",
            f"{count} pair(s) were measured; the first analysis needs {base.analyses[0]}.",
        )
    rates = pair_rates(base.analyses)
    analysed = differences[: analysis.pairs]
    shares_core = any(run.shares_core for run in head.runs)
    reported = base.rates or rates_without_calibration(
        head.workload, drop_pct, base.analyses, shares_core=shares_core
    )
    verdict = analysis.verdict
    threshold = log_time_of_drop(drop_pct)

    def find_doubts(verdict: RateVerdict) -> tuple[tuple[Reason, ...], tuple[Reason, ...]]:
        """Return what leaves a verdict open, and what only warns."""
        doubts = find_disagreement(analysed, verdict, rates, head)
        # Pairs may have been added for the whole of a program: they decide nothing about the rate.
        whole = judge_whole(differences, analysis.pairs, verdict, head, threshold)
        if whole is None:
            return doubts, ()
        return (doubts or (whole,), ()) if whole.leaves_open else (doubts, (whole,))

    doubts, warnings = find_doubts(verdict)
    doubts += find_busy_cores(base.evidence, head)
    known = () if doubts else tuple(pair.quiet for pair in analysed)
    word = "inconclusive" if doubts else verdict.decision
    # Its other signals are judged after this one, by themselves.
    last = Attempt(head.created, word, word, known, old.quiet_tokens_per_second)
    pairs = analysis.pairs
    pooled = pool_attempts((*base.earlier, last), threshold, rates)
    if pooled is None:
        change_pct = rate_change_pct(analysis.estimate.mean_diff)
        signal = rate_signal(old, new, verdict, change_pct, drop_pct)
    else:
        if verdict.decision not in FAVOURABLE:
            more, warnings = find_doubts(pooled.verdict)
            doubts += more
        verdict, pairs, change_pct = pooled.verdict, pooled.pairs, rate_change_pct(pooled.change)
        signal = rate_signal(old, new, verdict, change_pct, drop_pct, (pooled.reason,))
        # Of several attempts only the change is pooled: the second rate follows from it.
        after = pooled.base_rate * math.exp(-pooled.change)
        signal = replace(signal, baseline=pooled.base_rate, current=after)
    if verdict.decision != "regressed":
        doubts += find_open_attempts(base.earlier)
    if warnings:
        signal = replace(signal, reasons=(*signal.reasons, *warnings))
    if doubts:
        verdict = replace(verdict, decision="inconclusive")
        reasons = (*doubts, *signal.reasons)
        signal = replace(signal, decision="inconclusive", reasons=reasons)
    return JudgedRate(
        signal,
        replace(analysis.verdict, decision=verdict.decision),
        reported,
        # Both sides ran together: no batch drifted from the other.
        batch_drift_sd=0.0,
        cpu=trimmed_mean([pair.cpu for pair in differences]),
        phases=phase_changes(base.evidence, head, differences, rates),
        pairs=pairs,
        pair_method="shared core" if shares_core else "one after the other",
        analyses=base.analyses,
        others_pct=others_pct(base.evidence, head),
    )

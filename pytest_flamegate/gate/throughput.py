"""Tokens per second on the quiet clock: slower, faster, unchanged, or not yet known.

The unit of evidence is the fresh process: one process can stay 8 to 11 % off all its
life because of where it was placed, so blocks and tokens of one process are no
independent samples (taken as such they gave up to 15 % false alarms). Each process
gives x = ln(quiet time per token / quiet time of the reference kernel). Two batches
are compared by Welch's t over the processes' x, with a variance added for the drift
between batches, which no batch can see from inside.

What the difference then means is decided in `rule`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.conditions import reference_shift
from pytest_flamegate.gate.rule import decide
from pytest_flamegate.gate.signals import (
    MIN_PROCESSES,
    Reason,
    Signal,
    in_words,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.stats import Estimate, combine, mean, sample_variance, welch

if TYPE_CHECKING:
    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.gate.rule import RateDecision, RateVerdict
    from pytest_flamegate.gate.signals import ErrorRates

TOKENS_PER_SECOND = "tokens_per_second"
WALL_TOKENS_PER_SECOND = "tokens_per_second_wall"

BATCH_DRIFT_SD = 0.0042
"""Measured drift of log(CPU / reference kernel) between batches over 40 minutes."""
BATCH_DRIFT_SD_WITHOUT_REFERENCE = 0.02
"""The same for CPU time alone."""
REFERENCE_LEAK = 0.21
"""Part of a change of the machine's speed that the ratio to the reference does not cancel.

Measured: of a drift of 2.0 % in CPU time, 0.42 % was left in CPU time over reference.
"""
_REFERENCE_WORTH_SAYING = 0.01


def drift_variance(baseline: Measurement, current: Measurement) -> float:
    """Return the variance that the drift between two batches adds to their difference.

    The further the machine's own speed has moved, the less the ratio to it is trusted.
    """
    referenced = baseline.has_reference and current.has_reference
    drift_sd = BATCH_DRIFT_SD if referenced else BATCH_DRIFT_SD_WITHOUT_REFERENCE
    shift = reference_shift(baseline, current) or 0.0
    return 2.0 * drift_sd**2 + (REFERENCE_LEAK * shift) ** 2


def estimate_log_time(baseline: Measurement, current: Measurement) -> Estimate:
    """Estimate the change of log time per token between two batches of fresh processes.

    Raises UndecidedError ``E_FEW_PROCESSES`` below three processes a side and
    ``E_CONSTANT_SAMPLES`` where the processes of a side show no spread at all.
    """
    for side, measurement in (("baseline", baseline), ("current", current)):
        _check_spread(side, measurement)
    return welch(
        [process.log_time for process in baseline.timed],
        [process.log_time for process in current.timed],
        drift_variance(baseline, current),
    )


def judge_throughput(
    baseline: Measurement, current: Measurement, allowed_drop_pct: float, rates: ErrorRates
) -> tuple[Signal, RateVerdict | None]:
    """Judge tokens per second of ``current``; the second value is None where it was refused."""
    try:
        estimate = estimate_log_time(baseline, current)
    except UndecidedError as refusal:
        curable = refusal.code == "E_FEW_PROCESSES" and len(baseline.timed) >= MIN_PROCESSES
        return (
            Signal(
                name=TOKENS_PER_SECOND,
                baseline=baseline.quiet_tokens_per_second,
                current=current.quiet_tokens_per_second,
                unit="tokens/s",
                direction="higher_is_better",
                decision="inconclusive",
                threshold_pct=allowed_drop_pct,
                reasons=(Reason.of(refusal),),
                helped_by=("timed",) if curable else (),
            ),
            None,
        )
    threshold = log_time_of_drop(allowed_drop_pct)
    verdict = decide(estimate, threshold, rates)
    helped = verdict.decision == "inconclusive" and _more_would_help(
        baseline, current, estimate, threshold, rates
    )
    signal = Signal(
        name=TOKENS_PER_SECOND,
        baseline=baseline.quiet_tokens_per_second,
        current=current.quiet_tokens_per_second,
        unit="tokens/s",
        direction="higher_is_better",
        decision=verdict.decision,
        change_pct=rate_change_pct(estimate.mean_diff),
        ci_low_pct=rate_change_pct(verdict.high),
        ci_high_pct=rate_change_pct(verdict.low),
        threshold_pct=allowed_drop_pct,
        smallest_detectable_pct=-rate_change_pct(verdict.detectable),
        reasons=(
            _reason(verdict, estimate, allowed_drop_pct),
            *_baseline_too_wide(verdict.decision, helped=helped),
            *_reference_speed(baseline, current),
        ),
        helped_by=("timed",) if helped else (),
    )
    return signal, verdict


def wall_signal(baseline: Measurement | None, current: Measurement) -> Signal:
    """Return tokens per second on the wall clock: always shown, never gated."""
    old = baseline.wall_tokens_per_second if baseline is not None else None
    new = current.wall_tokens_per_second
    return Signal(
        name=WALL_TOKENS_PER_SECOND,
        baseline=old,
        current=new,
        unit="tokens/s",
        direction="higher_is_better",
        decision="not_gated",
        change_pct=100.0 * (new / old - 1.0) if old else None,
    )


def _check_spread(side: str, measurement: Measurement) -> None:
    count = len(measurement.timed)
    if count < MIN_PROCESSES:
        again = "Accept a new one" if side == "baseline" else "Give it more time"
        raise UndecidedError(
            "E_FEW_PROCESSES",
            f"The {side} has {count} timed process(es), and a spread needs {MIN_PROCESSES}.",
            f"{again} (--flamegate-budget sets the seconds).",
        )
    if len({process.log_time for process in measurement.timed}) == 1:
        raise UndecidedError(
            "E_CONSTANT_SAMPLES",
            f"All {count} processes of the {side} took exactly the same time per token.",
            "Measure again: real processes differ, so either these were copied or the clock is "
            "coarse.",
        )


def _more_would_help(
    baseline: Measurement,
    current: Measurement,
    estimate: Estimate,
    threshold: float,
    rates: ErrorRates,
) -> bool:
    """Say whether endless current processes could decide, given the baseline's own spread."""
    count = len(baseline.timed)
    own = sample_variance([process.log_time for process in baseline.timed]) / count
    variance, df = combine([(own, count - 1), (drift_variance(baseline, current), math.inf)])
    # More processes also move the estimate; towards zero is where most of them belong.
    best = (Estimate(centre, math.sqrt(variance), df) for centre in (estimate.mean_diff, 0.0))
    return any(decide(each, threshold, rates).decision != "inconclusive" for each in best)


def _reason(verdict: RateVerdict, estimate: Estimate, allowed_drop_pct: float) -> Reason:
    change = in_words(rate_change_pct(estimate.mean_diff))
    between = (
        f"between {in_words(rate_change_pct(verdict.low))} "
        f"and {in_words(rate_change_pct(verdict.high))}"
    )
    if verdict.decision == "regressed":
        return Reason(
            "E_SLOWER",
            f"Tokens per second: {change}, {between}; a drop of {allowed_drop_pct:g} % is allowed.",
        )
    if verdict.decision == "improved":
        return Reason("I_FASTER", f"Tokens per second: {change}, {between}.")
    if verdict.decision == "inconclusive":
        return Reason(
            "E_NOISE",
            f"Tokens per second: {between}, so neither a drop of {allowed_drop_pct:g} % "
            "nor its absence is shown.",
        )
    if verdict.slower:
        return Reason(
            "I_SLOWER_WITHIN_THRESHOLD",
            f"Tokens per second: {change}, {between}: certainly slower, and certainly by less "
            f"than the allowed {allowed_drop_pct:g} %.",
        )
    return Reason(
        "I_WITHIN_THRESHOLD",
        f"Tokens per second: {between}; a drop of {allowed_drop_pct:g} % is allowed.",
    )


def _baseline_too_wide(decision: RateDecision, *, helped: bool) -> tuple[Reason, ...]:
    if decision != "inconclusive" or helped:
        return ()
    return (
        Reason(
            "E_BASELINE_TOO_WIDE",
            "The spread of the baseline and the drift between batches hide a change of this size "
            "however long the current side is measured; accept a baseline of more processes or "
            "allow a larger drop.",
        ),
    )


def _reference_speed(baseline: Measurement, current: Measurement) -> tuple[Reason, ...]:
    """Say how far the machine itself had changed speed, where that is worth saying."""
    old = [math.log(p.reference_s) for p in baseline.timed if p.reference_s is not None]
    new = [math.log(p.reference_s) for p in current.timed if p.reference_s is not None]
    if not old or not new:
        return ()
    change = mean(new) - mean(old)
    if abs(change) < _REFERENCE_WORTH_SAYING:
        return ()
    return (
        Reason(
            "I_MACHINE_SPEED",
            f"The reference kernel ran {in_words(rate_change_pct(change))} than at the baseline; "
            "that much is the machine's and was taken out.",
        ),
    )

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

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.comparability import reference_shift
from pytest_flamegate.gate.rule import (
    MIN_BATCHES,
    combine_views,
    decide,
    estimate_from_batches,
    view_change,
)
from pytest_flamegate.gate.signals import (
    MIN_PROCESSES,
    Reason,
    Signal,
    describe_rate_change,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import Estimate, combine, mean, sample_variance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.gate.rule import RateDecision, RateVerdict, Views
    from pytest_flamegate.gate.signals import ErrorRates
    from pytest_flamegate.receipt.types import Batch


TOKENS_PER_SECOND = "tokens_per_second"
WALL_TOKENS_PER_SECOND = "tokens_per_second_wall"

_REFERENCE_WORTH_SAYING = 0.01
WAITING_WORTH_SAYING = 0.2
"""Part of the quiet time off the CPU from which on the verdict says so."""


def views_of_log_time(baseline: Measurement, current: Measurement) -> Views:
    """Return how the change of log time per token between two batches can be seen.

    Raises UndecidedError ``E_FEW_PROCESSES`` below three processes a side and
    ``E_CONSTANT_SAMPLES`` where the processes of a side show no spread at all.
    """
    for side, measurement in (("baseline", baseline), ("current", current)):
        _check_spread(side, measurement)
    return view_change(
        baseline,
        current,
        lambda process: process.log_time,
        lambda process: process.log_time_ratio,
    )


def judge_throughput(
    baseline: Measurement,
    current: Measurement,
    allowed_drop_pct: float,
    rates: ErrorRates,
    batches: Sequence[Batch] = (),
) -> tuple[Signal, RateVerdict | None]:
    """Judge tokens per second of ``current``; the second value is None where it was refused."""
    try:
        seen = views_of_log_time(baseline, current)
    except UndecidedError as refusal:
        curable = refusal.code == "E_FEW_PROCESSES" and len(baseline.timed) >= MIN_PROCESSES
        return (
            Signal(
                name=TOKENS_PER_SECOND,
                baseline=baseline.quiet_tokens_per_second,
                current=current.quiet_tokens_per_second,
                unit=current.unit,
                direction="higher_is_better",
                decision="inconclusive",
                threshold_pct=allowed_drop_pct,
                reasons=(Reason.of(refusal),),
                helped_by=("timed",) if curable else (),
            ),
            None,
        )
    threshold = log_time_of_drop(allowed_drop_pct)
    by_batch = len(batches) >= MIN_BATCHES
    estimates = _by_batch(batches, baseline, current) if by_batch else seen.estimates
    verdict = combine_views([decide(estimate, threshold, rates) for estimate in estimates])
    change_pct = rate_change_pct(mean([estimate.mean_diff for estimate in estimates]))
    helped = (
        verdict.decision == "inconclusive"
        and not by_batch
        and _more_would_help(seen, threshold, rates)
    )
    reasons = (
        *_baseline_too_wide(verdict.decision, helped=helped),
        *_reference_speed(baseline, current, seen),
    )
    signal = rate_signal(
        baseline, current, verdict, change_pct, allowed_drop_pct, reasons, helped=helped
    )
    return signal, verdict


def rate_signal(
    baseline: Measurement,
    current: Measurement,
    verdict: RateVerdict,
    change_pct: float,
    allowed_drop_pct: float,
    reasons: tuple[Reason, ...] = (),
    *,
    helped: bool,
) -> Signal:
    """Return tokens per second as judged; ``reasons`` stand between its own and the last one.

    ``helped`` says that more timed processes could settle it.
    """
    return Signal(
        name=TOKENS_PER_SECOND,
        baseline=baseline.quiet_tokens_per_second,
        current=current.quiet_tokens_per_second,
        unit=current.unit,
        direction="higher_is_better",
        decision=verdict.decision,
        change_pct=change_pct,
        ci_low_pct=rate_change_pct(verdict.high),
        ci_high_pct=rate_change_pct(verdict.low),
        threshold_pct=allowed_drop_pct,
        smallest_detectable_pct=-rate_change_pct(verdict.detectable),
        reasons=(
            rate_reason(verdict, change_pct, allowed_drop_pct),
            *reasons,
            *waiting_reason(baseline, current),
        ),
        helped_by=("timed",) if helped else (),
    )


def wall_signal(baseline: Measurement | None, current: Measurement) -> Signal:
    """Return tokens per second on the wall clock: always shown, never gated."""
    old = baseline.wall_tokens_per_second if baseline is not None else None
    new = current.wall_tokens_per_second
    return Signal(
        name=WALL_TOKENS_PER_SECOND,
        baseline=old,
        current=new,
        unit=current.unit,
        direction="higher_is_better",
        decision="not_gated",
        change_pct=100.0 * (new / old - 1.0) if old else None,
    )


def waiting_reason(baseline: Measurement, current: Measurement) -> tuple[Reason, ...]:
    """Say how much of the judged time was no computing, where that is worth saying."""
    share = max(
        side.waiting_s_per_token * side.quiet_tokens_per_second for side in (baseline, current)
    )
    if share < WAITING_WORTH_SAYING:
        return ()
    return (
        Reason(
            "I_WAITING",
            f"{100 * share:.0f} % of the quiet time was spent waiting for something else "
            "(a server, a device, a disk), whose speed no clock of this process can tell from the "
            "machine's: what could have been seen is that much less.",
        ),
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
    if len({process.log_time_ratio for process in measurement.timed}) == 1:
        raise UndecidedError(
            "E_CONSTANT_SAMPLES",
            f"All {count} processes of the {side} took exactly the same time per token.",
            "Measure again: real processes differ, so either these were copied or the clock is "
            "coarse.",
        )


def _by_batch(
    batches: Sequence[Batch], baseline: Measurement, current: Measurement
) -> list[Estimate]:
    """Return the change as each view shows it, its error that of the batches among themselves."""
    raw = estimate_from_batches(
        [batch.log_time for batch in batches], [process.log_time for process in current.timed]
    )
    if not (baseline.has_reference and current.has_reference):
        return [raw]
    ratio = estimate_from_batches(
        [batch.log_time_ratio for batch in batches],
        [process.log_time_ratio for process in current.timed],
    )
    follows = baseline.reference_follows and current.reference_follows
    return [ratio] if follows else [ratio, raw]


def _more_would_help(seen: Views, threshold: float, rates: ErrorRates) -> bool:
    """Say whether endless current processes could decide, given the baseline's own spread."""
    unchanged: list[RateVerdict] = []
    as_seen: list[RateVerdict] = []
    for (old, _, drift), estimate in zip(seen.each, seen.estimates, strict=True):
        own = sample_variance(old) / len(old)
        variance, df = combine([(own, len(old) - 1), (drift, math.inf)])
        # More processes also move the estimate; towards zero is where most of them belong.
        for best, centre in ((unchanged, 0.0), (as_seen, estimate.mean_diff)):
            best.append(decide(Estimate(centre, math.sqrt(variance), df), threshold, rates))
    return any(combine_views(best).decision != "inconclusive" for best in (unchanged, as_seen))


def rate_reason(verdict: RateVerdict, change_pct: float, allowed_drop_pct: float) -> Reason:
    """Return why the rate was judged as it was, as one sentence with its interval."""
    change = describe_rate_change(change_pct)
    between = (
        f"between {describe_rate_change(rate_change_pct(verdict.low))} "
        f"and {describe_rate_change(rate_change_pct(verdict.high))}"
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
            "however long the current side is measured. Compare with a revision in pairs "
            "(--flamegate-against=REV), accept further batches of the baseline (--flamegate-update "
            f"at its commit, at other times; from {MIN_BATCHES} on their own spread counts), or "
            "allow a larger drop.",
        ),
    )


def _reference_speed(
    baseline: Measurement, current: Measurement, seen: Views
) -> tuple[Reason, ...]:
    """Say how far the machine itself had changed speed, where that is worth saying."""
    change = reference_shift(baseline, current)
    if change is None or abs(change) < _REFERENCE_WORTH_SAYING:
        return ()
    faster = describe_rate_change(rate_change_pct(change))
    ran = f"The reference kernel ran {faster} than at the baseline"
    if len(seen.each) == 1:
        return (Reason("I_MACHINE_SPEED", f"{ran}; that much is the machine's and was taken out."),)
    return (
        Reason(
            "I_MACHINE_MOVED",
            f"{ran}. Whether this engine follows it is not known, so the change was judged "
            "both with that taken out and without, and only what both say counts.",
        ),
    )

"""Tokens per second: judged against a stored baseline, and put into sentences.

The unit of evidence is the fresh process, because one process can stay off all its life by where
it was placed: blocks and tokens of one process taken as independent samples gave up to 15 %
false alarms. Each process gives x = ln(scheduler-adjusted time per token / time of the reference
kernel), and `rule` decides.

The machine itself changes speed between two batches of processes. If a reference kernel ran
beside the engine, the ratio to it takes most of that out; the rest is a drift whose size was
measured once and is assumed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_flamegate.config.thresholds import MIN_PROCESSES
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.measurement import Measurement, repeated_samples_error
from pytest_flamegate.gate.rule import (
    FAVOURABLE,
    TOKENS_PER_SECOND,
    Decision,
    ErrorRates,
    ProcessKind,
    RateDecision,
    RateVerdict,
    Reason,
    Signal,
    decide,
    describe_interval,
    describe_rate_change,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import Estimate, mean, plain_mean, welch

BATCH_DRIFT_SD = 0.0042
"""Drift of log(CPU / reference kernel) between batches, measured over 40 minutes."""
BATCH_DRIFT_SD_WITHOUT_REFERENCE = 0.02
"""The same for CPU time alone."""
REFERENCE_LEAK = 0.21
"""Part of a change of the machine's speed that the ratio to the reference does not cancel.

Measured: of a drift of 2.0 % in CPU time, 0.42 % was left in CPU time over reference.
"""

Clock = Literal["log_time", "log_cpu"]


@dataclass(frozen=True, slots=True)
class View:
    """One way to compare two sides: their values in log time and the variance of the drift."""

    baseline: tuple[float, ...]
    current: tuple[float, ...]
    drift_variance: float

    @property
    def estimate(self) -> Estimate:
        """The change, by Welch's t over processes with the drift added."""
        return welch(self.baseline, self.current).widen(self.drift_variance)


def view_change(
    baseline: Measurement, current: Measurement, clock: Clock = "log_time"
) -> tuple[View, ...]:
    """Return the one or two ways to compare a clock of two sides.

    With a reference kernel that the engine follows: the ratio to it. With another reference: the
    ratio and the plain time, because it is not known which holds still. Without a reference: the
    plain time.
    """
    shift = reference_shift(baseline, current)
    names: tuple[str, ...] = (clock,)
    drift_variance = 2.0 * BATCH_DRIFT_SD_WITHOUT_REFERENCE**2
    if shift is not None:
        names = (f"{clock}_ratio", clock)
        drift_variance = 2.0 * BATCH_DRIFT_SD**2
        if baseline.reference_follows and current.reference_follows:
            names = names[:1]
            # The ratio is trusted less the further the machine's speed has moved.
            drift_variance += (REFERENCE_LEAK * shift) ** 2
    old, new = (
        [tuple(getattr(process, name) for process in side.timed) for name in names]
        for side in (baseline, current)
    )
    return tuple(
        View(before, after, drift_variance) for before, after in zip(old, new, strict=True)
    )


def reference_shift(baseline: Measurement, current: Measurement) -> float | None:
    """Return the change of the reference kernel's log time; None without one on both sides."""
    old, new = mean_reference_log(baseline), mean_reference_log(current)
    return None if old is None or new is None else new - old


def mean_reference_log(side: Measurement) -> float | None:
    """Return the mean log time of the reference kernel in seconds; None if it did not run."""
    logs = [math.log(each.reference_s) for each in side.timed if each.reference_s is not None]
    return mean(logs) if logs else None


def combine_views(verdicts: Sequence[RateVerdict]) -> RateVerdict:
    """Combine decisions about one change: only what all views agree in is decided."""
    decisions = {verdict.decision for verdict in verdicts}
    decision: RateDecision = "inconclusive"
    if len(decisions) == 1:
        decision = decisions.pop()
    elif decisions == FAVOURABLE:
        decision = "pass"
    return RateVerdict(
        decision=decision,
        low=min(verdict.low for verdict in verdicts),
        high=max(verdict.high for verdict in verdicts),
        slower=all(verdict.slower for verdict in verdicts),
        faster=all(verdict.faster for verdict in verdicts),
        detectable=max(verdict.detectable for verdict in verdicts),
    )


_SHIFT_WORTH_REPORTING = 0.01
_TOO_WIDE = (
    "The spread of the baseline and the drift between batches hide a change of this size however "
    "long the current side is measured."
)
WAITING_WORTH_REPORTING = 0.2
"""Part of the adjusted time off the CPU from which on the verdict mentions it."""


def judge_throughput(
    baseline: Measurement,
    current: Measurement,
    allowed_drop_pct: float,
    rates: ErrorRates,
) -> tuple[Signal, RateVerdict | None]:
    """Judge tokens per second of ``current`` against a stored ``baseline``.

    The decision of the rule is None if too few processes, or copied ones, left the signal
    inconclusive.
    """
    try:
        views = compare_log_times(baseline, current)
    except UndecidedError as error:
        is_short = error.code == "E_FEW_PROCESSES" and len(baseline.timed) >= MIN_PROCESSES
        signal = replace(
            uncompared_rate(baseline, current, "inconclusive"),
            threshold_pct=allowed_drop_pct,
            reasons=(Reason.from_error(error),),
            more_processes=("timed",) if is_short else (),
        )
        return signal, None
    threshold = log_time_of_drop(allowed_drop_pct)
    estimates = [view.estimate for view in views]
    verdict = combine_views([decide(estimate, threshold, rates) for estimate in estimates])
    change_pct = rate_change_pct(mean([estimate.mean_diff for estimate in estimates]))
    is_open = verdict.decision == "inconclusive"
    more: tuple[ProcessKind, ...] = ()
    if is_open and _would_more_settle(views, threshold, rates):
        more = ("timed",)
    reasons = (
        *((Reason.advise("E_BASELINE_TOO_WIDE", _TOO_WIDE),) if is_open and not more else ()),
        *_machine_speed_reasons(baseline, current, views),
    )
    signal = rate_signal(
        baseline, current, verdict, change_pct, allowed_drop_pct, reasons, more_processes=more
    )
    return signal, verdict


def compare_log_times(baseline: Measurement, current: Measurement) -> tuple[View, ...]:
    """Return the ways to compare log time per token between two batches.

    Raises:
        UndecidedError: ``E_FEW_PROCESSES`` below three processes a side, ``E_REPEATED_SAMPLES``
            if the processes of a side show no spread at all.
    """
    for side, processes in (("baseline", baseline.timed), ("current", current.timed)):
        count = len(processes)
        if count < MIN_PROCESSES:
            again = "Accept a new baseline" if side == "baseline" else "Give it more time"
            raise UndecidedError(
                "E_FEW_PROCESSES",
                f"The {side} side has {count} timed process(es); a spread needs {MIN_PROCESSES}.",
                f"{again} (--flamegate-budget sets the seconds).",
            )
        if len({process.log_time_ratio for process in processes}) == 1:
            raise repeated_samples_error(
                f"All {count} processes of the {side} side took exactly the same time per token."
            )
    return view_change(baseline, current)


def _would_more_settle(views: Sequence[View], threshold: float, rates: ErrorRates) -> bool:
    """Return whether more current processes could decide, given the baseline's own spread."""
    # More processes also move the estimate; towards zero is where most of them belong.
    for centres in ([0.0] * len(views), [view.estimate.mean_diff for view in views]):
        best = []
        for view, centre in zip(views, centres, strict=True):
            own = replace(plain_mean(view.baseline), mean_diff=centre)
            best.append(decide(own.widen(view.drift_variance), threshold, rates))
        if combine_views(best).decision != "inconclusive":
            return True
    return False


def rate_signal(
    baseline: Measurement,
    current: Measurement,
    verdict: RateVerdict,
    change_pct: float,
    allowed_drop_pct: float,
    reasons: tuple[Reason, ...] = (),
    more_processes: tuple[ProcessKind, ...] = (),
) -> Signal:
    """Return tokens per second as judged.

    ``reasons`` come after the one that decided.
    """
    low_pct, high_pct = rate_change_pct(verdict.high), rate_change_pct(verdict.low)
    interval, allowed = describe_interval(low_pct, high_pct), f"{allowed_drop_pct:g} %"
    code, why = "I_WITHIN_THRESHOLD", f"; a drop of {allowed} is allowed."
    if verdict.decision == "regressed":
        code = "E_SLOWER"
        if -change_pct < allowed_drop_pct:
            why = f": certainly slower, and as far as is known by the {allowed} allowed or more."
    elif verdict.decision == "improved":
        code, why = "I_FASTER", "."
    elif verdict.decision == "inconclusive":
        code, why = "E_NOISE", f", so neither a drop of {allowed} nor its absence is shown."
    elif verdict.slower:
        why = f": certainly slower, and certainly by less than the {allowed} allowed."
    share = max(baseline.waiting_share, current.waiting_share)
    waiting = Reason(
        "I_WAITING",
        f"{100 * share:.0f} % of the scheduler-adjusted time was spent waiting for something else "
        "(a server, a device, a disk). The clocks of this process cannot separate its speed from "
        "the machine's, so only larger changes can be seen.",
    )
    return replace(
        uncompared_rate(baseline, current, verdict.decision),
        change_pct=change_pct,
        ci_low_pct=low_pct,
        ci_high_pct=high_pct,
        threshold_pct=allowed_drop_pct,
        smallest_detectable_pct=-rate_change_pct(verdict.detectable),
        reasons=(
            Reason(
                code, f"Tokens per second: {describe_rate_change(change_pct)} ({interval}){why}"
            ),
            *reasons,
            *((waiting,) if share >= WAITING_WORTH_REPORTING else ()),
        ),
        more_processes=more_processes,
    )


def uncompared_rate(
    baseline: Measurement | None, current: Measurement, decision: Decision
) -> Signal:
    """Return tokens per second of a run that was compared with nothing."""
    return Signal(
        name=TOKENS_PER_SECOND,
        baseline=baseline.quiet_tokens_per_second if baseline is not None else None,
        current=current.quiet_tokens_per_second,
        unit=current.unit,
        direction="higher_is_better",
        decision=decision,
    )


def _machine_speed_reasons(
    baseline: Measurement, current: Measurement, views: Sequence[View]
) -> tuple[Reason, ...]:
    """Report how far the machine itself changed speed, if it is worth mentioning."""
    shift = reference_shift(baseline, current)
    if shift is None or abs(shift) < _SHIFT_WORTH_REPORTING:
        return ()
    ran = (
        f"The reference kernel ran {describe_rate_change(rate_change_pct(shift))} than at the "
        "baseline"
    )
    corrected = "The change is corrected for it."
    if len(views) > 1:
        corrected = (
            "It is not known whether this engine gains and loses speed with it, so the change was "
            "judged with this correction and without, and only what both show counts."
        )
    return (Reason("I_MACHINE_SPEED", f"{ran}. {corrected}"),)

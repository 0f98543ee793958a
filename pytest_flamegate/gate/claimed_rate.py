"""Does a claimed rate hold? Two batches of one workload, measured far apart in time.

The scheduler-adjusted time per token is compared over fresh processes as for a stored baseline,
with the reference kernel and the drift between batches taken into account. Token times that were
scaled apart from the clocks around them would escape that, so each process counts with the part
of its judged time that its token times fill.

There are three answers. Inside the interval at 99 % the claim holds. Beyond what the spread of the
processes explains it is contradicted. In between neither is shown: a busy machine slows whole
batches by about as much as it scatters their processes, so that spread measures what noise can
explain.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from pytest_flamegate.config.thresholds import MIN_PROCESSES
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.comparability import REFERENCE_LIMIT, machine_differences, machine_id
from pytest_flamegate.gate.measurement import Measurement, TimedProcess, read_measurement
from pytest_flamegate.gate.rule import rate_change_pct
from pytest_flamegate.gate.statistics import Estimate, mean, trimmed_mean
from pytest_flamegate.gate.throughput import (
    BATCH_DRIFT_SD,
    BATCH_DRIFT_SD_WITHOUT_REFERENCE,
    REFERENCE_LEAK,
    reference_shift,
)
from pytest_flamegate.receipt.metrics import rate_of
from pytest_flamegate.receipt.rules.replay import RateAgain
from pytest_flamegate.receipt.types import Evidence

INSIDE_TAIL = 0.005
"""Probability, at either end, that the truth lies outside of the interval."""
BEYOND_TAIL = 0.001
"""Smaller, because the claim is called dishonest for it."""
BATCH_NOISE = 0.75
"""Drift of a whole batch, in standard deviations between its processes.

Measured while others worked on the machine: 4 of 3,480 pairs of honest batches were beyond.
"""
CONTENDED_PCT = 10.0
"""With this CPU pressure on either side, no claim is called dishonest for its rate.

A program claimed on a quiet machine ran at three quarters of its rate on a contended one.
"""
WIDEST = math.log(1.25)
"""Half an interval at most, in log time: a wider one says too little to stand for a rate.

The machine's own speed may have moved as far at most, because scaling the times of the reference
kernel too would look the same.
"""
_TOO_WIDE = "The processes of either side differ too much among themselves to show any rate."
_TOO_NOISY = (
    "It is outside of the interval, but by no more than noise explains: the processes of either "
    "side differ too much among themselves."
)
_MACHINE_MOVED = (
    "Relative to the reference kernel it is the same, and that kernel itself ran at another speed."
)


_RateView = tuple[Estimate, Estimate]
"""The change of log time in one view: as measured, and as far as noise explains."""


def compare_claimed_rate(claimed: Evidence, here: Evidence, tokens_per_second: float) -> RateAgain:
    """Compare the runs of a claim with runs of the same workload that were measured here.

    Sides that cannot be compared are an answer of their own, never an exception.
    ``tokens_per_second`` is the rate in the claimed receipt.
    """
    rate = rate_of(here.runs)
    answer = RateAgain(
        "unknown", tokens_per_second, wall=None if rate is None else rate.tokens_per_second
    )
    if machine_id(claimed.machine) != machine_id(here.machine):
        return replace(answer, answer="other_machine")
    if (why := _find_mismatch(claimed, here)) is not None:
        return replace(answer, why=why)
    try:
        then, now = read_measurement(claimed), read_measurement(here)
    except UndecidedError as error:
        return replace(answer, why=error.problem)
    fewest = min(len(then.timed), len(now.timed))
    if fewest < MIN_PROCESSES:
        return replace(answer, why=f"One side has {fewest} timed processes, not {MIN_PROCESSES}.")
    views, deciding = _view_rates(then, now, (_filled(claimed), _filled(here)))
    low = min(measured.lower(INSIDE_TAIL) for measured, _ in deciding)
    high = max(measured.upper(INSIDE_TAIL) for measured, _ in deciding)
    middle = mean([each.mean_diff for each, _ in deciding])
    rates = [
        tokens_per_second * (1.0 + rate_change_pct(log) / 100.0) for log in (middle, high, low)
    ]
    answer = replace(answer, here=rates[0], low=rates[1], high=rates[2])
    noise = [(noisy.lower(BEYOND_TAIL), noisy.upper(BEYOND_TAIL)) for _, noisy in views]
    noise_low = min(least for least, _ in noise)
    explained = noise_low <= 0.0 <= max(most for _, most in noise)
    all_explained = all(least <= 0.0 <= most for least, most in noise)
    all_small = all(abs(measured.mean_diff) <= WIDEST for measured, _ in views)
    within = low <= 0.0 <= high
    if high - low > 2.0 * WIDEST and explained:
        return replace(answer, why=_TOO_WIDE)
    if within and all_explained and all_small:
        return replace(answer, answer="inside")
    if explained:
        return replace(answer, why=_MACHINE_MOVED if within else _TOO_NOISY)
    if (why := _find_excuse(claimed, here, then, now)) is not None:
        return replace(answer, why=why)
    return replace(answer, answer="claim_faster" if noise_low > 0.0 else "claim_slower")


def _find_mismatch(claimed: Evidence, here: Evidence) -> str | None:
    """Return why times of the two sides do not mean the same; None if they do."""
    if claimed.clock_scope != here.clock_scope:
        return "One side was clocked by sequences, the other by whole processes."
    rates = [rate_of(side.runs) for side in (claimed, here)]
    if any(rate is None for rate in rates):
        return "All tokens of one side came at the same instant."
    if len({rate.formula for rate in rates if rate is not None}) > 1:
        return "Decode was separated from load and prefill on one side only."
    has_delay = [
        {block.judged.run_delay_ns is not None for run in side.timed for block in run.blocks}
        for side in (claimed, here)
    ]
    if has_delay[0] != has_delay[1] or len(has_delay[0]) > 1:
        return "The time spent waiting for a CPU is known on one side only."
    return None


def _find_excuse(
    claimed: Evidence, here: Evidence, then: Measurement, now: Measurement
) -> str | None:
    """Return a harmless reason for a rate beyond all noise; None if there is none."""
    pressure = max(side.cpu_pressure_pct or 0.0 for side in (then, now))
    if pressure > CONTENDED_PCT:
        return f"It is outside of the interval, and CPU pressure was {pressure:.0f} %."
    first = next(machine_differences(claimed, here), None)
    if first is None:
        return None
    return (
        f"It is outside of the interval, and {first.field} was {first.baseline} and is "
        f"{first.current} now."
    )


def _view_rates(
    then: Measurement, now: Measurement, filled: tuple[list[float], list[float]]
) -> tuple[list[_RateView], list[_RateView]]:
    """Return all views of the change, and those that make the interval."""

    def view(value: Callable[[TimedProcess], float], drift_sd: float, leak: float) -> _RateView:
        first, second = (
            trimmed_mean([value(p) + part for p, part in zip(side.timed, parts, strict=True)])
            for side, parts in zip((then, now), filled, strict=True)
        )
        drift = 2.0 * drift_sd**2 + leak**2
        spread = sum(each.standard_error**2 * (each.df + 1) for each in (first, second))
        change = second.minus(first)
        return change.widen(drift), change.widen(max(drift, BATCH_NOISE**2 * spread))

    time = view(lambda process: process.log_time, BATCH_DRIFT_SD_WITHOUT_REFERENCE, 0.0)
    shift = reference_shift(then, now)
    if shift is None or abs(shift) > REFERENCE_LIMIT:
        return [time], [time]
    follows = then.reference_follows and now.reference_follows
    leak = REFERENCE_LEAK * shift if follows else 0.0
    ratio = view(lambda process: process.log_time_ratio, BATCH_DRIFT_SD, leak)
    return [ratio, time], [ratio] if follows else [ratio, time]


def _filled(side: Evidence) -> list[float]:
    """Return, for each timed process, the log of the part of its judged time its tokens fill."""
    filled = []
    for run in side.timed:
        tokens_ns = sum(block.judged_tokens_ns for block in run.blocks)
        wall_ns = sum(block.judged.wall_ns for block in run.blocks)
        filled.append(math.log(max(tokens_ns, 1) / wall_ns))
    return filled

"""Was a claimed rate obtained again? Two batches of one workload, far apart in time.

The quiet time per token is compared over fresh processes, as for a stored baseline, with
what the reference kernel shows and the drift between batches allowed for. Token times that
were scaled apart from the clocks around them would escape that: each process counts with
the part of its judged time that its token times fill.

Three answers, and the bounds between them: inside the interval at 99 %; beyond what the
processes' own spread explains, and then the claim is contradicted; and in between, where
neither is shown. A busy machine slows whole batches by about as much as it scatters their
processes, so that spread is the measure of what noise can explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.config.thresholds import MIN_PROCESSES
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.batches import (
    BATCH_DRIFT_SD,
    BATCH_DRIFT_SD_WITHOUT_REFERENCE,
    REFERENCE_LEAK,
    reference_shift,
)
from pytest_flamegate.gate.comparability import REFERENCE_LIMIT, machine_differences, machine_id
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.pairs import trimmed_mean
from pytest_flamegate.gate.statistics import Estimate, combine
from pytest_flamegate.receipt.metrics import rate_of
from pytest_flamegate.receipt.replayed import RateAgain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.observe.observation import Run
    from pytest_flamegate.receipt.types import Evidence


INSIDE_TAIL = 0.005
"""Probability, at either end, that the truth lies outside of the interval."""
BEYOND_TAIL = 0.001
"""Less where somebody would be called dishonest for it."""
BATCH_NOISE = 0.75
"""Drift of a whole batch, in standard deviations between its processes.

Measured where others worked on the machine: 4 of 3,480 pairs of honest batches were beyond.
"""
CONTENDED_PCT = 10.0
"""CPU pressure on either side from which on nobody is called dishonest for a rate.

A program claimed on a quiet machine ran at three quarters of its rate on a contended one.
"""
WIDEST = math.log(1.25)
"""Half an interval at most, in log time: a wider one says too little to stand for a rate.

And as far at most may the machine's own speed have moved, which the reference kernel takes out:
whoever scales the times of that kernel too looks the same.
"""
_MAX_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class _View:
    """The change of log time as seen in one way: its interval, and the bounds of all noise."""

    middle: float
    low: float
    high: float
    least: float
    most: float

    @property
    def agrees(self) -> bool:
        """Whether noise explains the change, and it is no larger than an interval may be."""
        return self.least <= 0.0 <= self.most and abs(self.middle) <= WIDEST


def compare_claimed_rate(claimed: Evidence, here: Evidence, tokens_per_second: float) -> RateAgain:
    """Compare the runs of ``claimed``, whose receipt says ``tokens_per_second``, with ``here``.

    Never raises: what cannot be compared is an answer of its own.
    """
    found = rate_of(here.runs)
    told = RateAgain(
        "unknown", tokens_per_second, wall=None if found is None else found.tokens_per_second
    )
    if machine_id(claimed.machine) != machine_id(here.machine):
        return replace(told, answer="other_machine")
    if (why := _unlike(claimed, here)) is not None:
        return replace(told, why=why)
    try:
        then, now = read_measurement(claimed), read_measurement(here)
    except UndecidedError as error:
        return replace(told, why=error.problem)
    fewest = min(len(then.timed), len(now.timed))
    if fewest < MIN_PROCESSES:
        return replace(told, why=f"One side has {fewest} timed processes, not {MIN_PROCESSES}.")
    views, deciding = _views(then, now, (_filled(claimed.runs), _filled(here.runs)))
    low, high = min(view.low for view in deciding), max(view.high for view in deciding)
    told = replace(
        told,
        here=_slowed(tokens_per_second, sum(view.middle for view in deciding) / len(deciding)),
        low=_slowed(tokens_per_second, high),
        high=_slowed(tokens_per_second, low),
    )
    least, most = min(view.least for view in views), max(view.most for view in views)
    within = low <= 0.0 <= high
    if high - low > 2.0 * WIDEST and least <= 0.0 <= most:
        return replace(told, why=_TOO_WIDE)
    if within and all(view.agrees for view in views):
        return replace(told, answer="inside")
    if least <= 0.0 <= most:
        return replace(told, why=_MACHINE_MOVED if within else _TOO_NOISY)
    if (why := _excused(claimed, here, then, now)) is not None:
        return replace(told, why=why)
    return replace(told, answer="claim_faster" if least > 0.0 else "claim_slower")


_TOO_WIDE = "The processes of either side differ too much among themselves to show any rate."
_TOO_NOISY = (
    "It is outside of the interval, and by no more than noise explains: the processes of either "
    "side differ among themselves too much."
)
_MACHINE_MOVED = (
    "Beside the reference kernel it is the same, and that kernel was itself of another speed."
)


def _unlike(claimed: Evidence, here: Evidence) -> str | None:
    """Say why times of both sides do not mean the same; None where they do."""
    if claimed.clock_scope != here.clock_scope:
        return "One side was clocked by sequences, the other by whole processes."
    rates = [rate_of(side.runs) for side in (claimed, here)]
    if any(rate is None for rate in rates):
        return "All tokens of one side came at one instant."
    formulas = {rate.formula for rate in rates if rate is not None}
    if len(formulas) > 1:
        return "Decode was told apart from load and prefill on one side only."
    knows = [
        {block.judged.run_delay_ns is not None for run in _timed(side.runs) for block in run.blocks}
        for side in (claimed, here)
    ]
    if knows[0] != knows[1] or len(knows[0]) > 1:
        return "The time spent waiting for a CPU is known on one side only."
    return None


def _excused(claimed: Evidence, here: Evidence, then: Measurement, now: Measurement) -> str | None:
    """Say what explains a rate beyond all noise without anybody's dishonesty; None for nothing."""
    pressure = max(side.cpu_pressure_pct or 0.0 for side in (then, now))
    if pressure > CONTENDED_PCT:
        return f"It is outside of the interval, and CPU pressure was {pressure:.0f} %."
    differences = tuple(machine_differences(claimed, here))
    if not differences:
        return None
    first = differences[0]
    return (
        f"It is outside of the interval, and {first.field} was {first.baseline} and is "
        f"{first.current} now."
    )


def _views(
    then: Measurement, now: Measurement, filled: tuple[list[float], list[float]]
) -> tuple[list[_View], list[_View]]:
    """Return all ways of looking at the change, and those that make the interval."""
    raw = tuple(
        [process.log_time + part for process, part in zip(side.timed, parts, strict=True)]
        for side, parts in zip((then, now), filled, strict=True)
    )
    timed = _view(raw[0], raw[1], BATCH_DRIFT_SD_WITHOUT_REFERENCE, 0.0)
    shift = reference_shift(then, now)
    if shift is None or abs(shift) > REFERENCE_LIMIT:
        return [timed], [timed]
    ratios = tuple(
        [process.log_time_ratio + part for process, part in zip(side.timed, parts, strict=True)]
        for side, parts in zip((then, now), filled, strict=True)
    )
    if then.reference_follows and now.reference_follows:
        ratio = _view(ratios[0], ratios[1], BATCH_DRIFT_SD, REFERENCE_LEAK * shift)
        return [ratio, timed], [ratio]
    ratio = _view(ratios[0], ratios[1], BATCH_DRIFT_SD, 0.0)
    return [ratio, timed], [ratio, timed]


def _view(then: Sequence[float], now: Sequence[float], drift_sd: float, leak: float) -> _View:
    estimates = trimmed_mean(then), trimmed_mean(now)
    drift = 2.0 * drift_sd**2 + leak**2
    noise = BATCH_NOISE**2 * sum(each.standard_error**2 * (each.df + 1) for each in estimates)
    inside = _between(*estimates, drift)
    beyond = _between(*estimates, max(drift, noise))
    return _View(
        inside.mean_diff,
        inside.lower(INSIDE_TAIL),
        inside.upper(INSIDE_TAIL),
        beyond.lower(BEYOND_TAIL),
        beyond.upper(BEYOND_TAIL),
    )


def _between(then: Estimate, now: Estimate, drift: float) -> Estimate:
    variance, df = combine(
        [
            (then.standard_error**2, then.df),
            (now.standard_error**2, now.df),
            (drift, math.inf),
        ]
    )
    return Estimate(now.mean_diff - then.mean_diff, math.sqrt(variance), df)


def _filled(runs: Sequence[Run]) -> list[float]:
    """Return, for each timed process, the log of the part of its judged time its tokens fill."""
    found = []
    for run in _timed(runs):
        tokens_ns = sum(
            sum(gaps if block.decode is None else gaps[1:])
            for block in run.blocks
            for gaps in block.sequences_ns
        )
        wall_ns = sum(block.judged.wall_ns for block in run.blocks)
        found.append(math.log(max(tokens_ns, 1) / wall_ns))
    return found


def _timed(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.role == "timed"]


def _slowed(tokens_per_second: float, log_time: float) -> float:
    return tokens_per_second * math.exp(min(_MAX_EXPONENT, -log_time))

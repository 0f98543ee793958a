"""How the cost of a token changed, as a whole and function by function.

The cost of a function is its share of the samples × CPU time per token. Time off the CPU has a
row of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.measurement import Measurement, read_measurement
from pytest_flamegate.gate.pairs import pair_differences, trimmed_mean
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE, ErrorRates
from pytest_flamegate.gate.shares import ShareChange
from pytest_flamegate.gate.statistics import Estimate, combine, holm, mean, student_t_upper, welch
from pytest_flamegate.gate.throughput import view_change
from pytest_flamegate.receipt.types import Evidence

WAITING = "(waiting)"
"""The row of time off the CPU: sleeps, locks, input and output."""
MOST = 0.8
"""The part of a change that must be explained before the functions behind it are named."""
_WAITING_WORTH_A_ROW = 0.01
_US_PER_S = 1e6
_TAIL = 0.0005


@dataclass(frozen=True, slots=True)
class CostChange:
    """The cost of one function per token in µs, before and after.

    The interval (each row for itself) errs with the false-alarm rate of one analysis;
    ``no_more_than_us`` bounds the change from above with the miss rate of one analysis;
    ``p_adjusted`` is Holm's over all rows. ``explains`` is the part of the whole change that this
    row makes up, above 1 if other functions got cheaper; None if the whole did not certainly
    change.
    """

    name: str
    baseline_us: float
    current_us: float
    change_us: float
    ci_low_us: float
    ci_high_us: float
    no_more_than_us: float
    p_adjusted: float
    explains: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval of this row alone excludes that nothing changed."""
        return self.ci_low_us > 0.0 or self.ci_high_us < 0.0

    @property
    def is_certain(self) -> bool:
        """Whether the cost certainly changed, with 1 % false alarms over all rows together."""
        return self.p_adjusted <= FALSE_ALARM_RATE

    @property
    def explains_pct(self) -> float | None:
        """``explains`` in percent, at most 100: more than all of a change cannot be explained."""
        return None if self.explains is None else min(100.0, 100.0 * self.explains)


def cost_changes(
    shares: Sequence[ShareChange],
    baseline: Measurement,
    current: Measurement,
    rates: ErrorRates,
    *,
    whole_changed: bool,
    cpu: Estimate | None = None,
) -> tuple[CostChange, ...]:
    """Return the cost of every row of ``shares``, and of waiting if there is any; largest first.

    Both sides need two timed processes. ``whole_changed`` says that tokens per second certainly
    changed, so that rows explain a part of it; ``cpu`` is the change of log CPU time per token, if
    pairs measured it.
    """
    if cpu is None:
        cpu = cpu_change(baseline, current)
    cpu_us = baseline.cpu_s_per_token * _US_PER_S
    rows = [_estimate_row(share, cpu_us, cpu) for share in shares]
    if max(baseline.waiting_share, current.waiting_share) >= _WAITING_WORTH_A_ROW:
        rows.append(_estimate_waiting(baseline, current))
    adjusted = holm([estimate.p_two_sided for _, _, estimate in rows])
    total = math.fsum(estimate.mean_diff for _, _, estimate in rows)
    changes = [
        CostChange(
            name=name,
            baseline_us=before,
            current_us=before + estimate.mean_diff,
            change_us=estimate.mean_diff,
            ci_low_us=estimate.lower(rates.alpha / 2),
            ci_high_us=estimate.upper(rates.alpha / 2),
            no_more_than_us=estimate.upper(rates.beta),
            p_adjusted=p,
        )
        for (name, before, estimate), p in zip(rows, adjusted, strict=True)
    ]
    if whole_changed and total != 0.0:
        changes = [replace(change, explains=change.change_us / total) for change in changes]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_us), change.name)))


def explaining_functions(costs: Sequence[CostChange], part: float = MOST) -> tuple[str, ...]:
    """Return the fewest rows that together explain ``part`` of the change of the whole.

    Only rows that certainly changed count, the one that explains most first. The result is empty
    if the whole did not certainly change, or if all of them together explain less.
    """
    rows = sorted(
        (cost for cost in costs if (cost.explains or 0.0) > 0.0 and cost.excludes_zero),
        key=lambda cost: (-(cost.explains or 0.0), cost.name),
    )
    chosen: list[str] = []
    explained = 0.0
    for row in rows:
        chosen.append(row.name)
        explained += row.explains or 0.0
        if explained >= part:
            return tuple(chosen)
    return ()


def cpu_change(baseline: Measurement, current: Measurement) -> Estimate:
    """Return the change of log CPU time per token, without the machine's own change of speed.

    It lies between the views of it; if they disagree, the error grows by half their distance.

    Raises:
        ValueError: A side has fewer than two timed processes.
    """
    views = view_change(
        baseline, current, lambda side: side.log_cpu, lambda side: side.log_cpu_ratio
    )
    estimates = [view.estimate for view in views]
    middle = mean([estimate.mean_diff for estimate in estimates])
    apart = max(e.mean_diff for e in estimates) - min(e.mean_diff for e in estimates)
    widest = max(estimates, key=lambda estimate: estimate.standard_error)
    return Estimate(middle, math.hypot(widest.standard_error, apart / 2), widest.df)


def _estimate_row(share: ShareChange, cpu_us: float, cpu: Estimate) -> tuple[str, float, Estimate]:
    """Return a function's name, its cost before, and the change of its cost, in µs per token."""
    before = share.baseline_share * cpu_us
    after_cpu_us = cpu_us * math.exp(cpu.mean_diff)
    after = share.current_share * after_cpu_us
    old_variance, old_df = share.baseline_variance
    new_variance, new_df = share.current_variance
    total, df = combine(
        [
            (cpu_us**2 * old_variance, old_df),
            (after_cpu_us**2 * new_variance, new_df),
            ((after * cpu.standard_error) ** 2, cpu.df),
        ]
    )
    return share.name, before, Estimate(after - before, math.sqrt(total), df)


def _estimate_waiting(baseline: Measurement, current: Measurement) -> tuple[str, float, Estimate]:
    # Waiting does not scale with the machine's speed, so no reference corrects it.
    old, new = (
        [process.waiting_s_per_token * _US_PER_S for process in side.timed]
        for side in (baseline, current)
    )
    return WAITING, baseline.waiting_s_per_token * _US_PER_S, welch(old, new)


@dataclass(frozen=True, slots=True)
class CpuCost:
    """CPU seconds per token before and after, at the baseline's machine speed.

    ``error`` is the relative standard error of their ratio, widened for few processes so that
    quantiles of the normal distribution hold.
    """

    base_s: float
    head_s: float
    error: float


def estimate_cpu_cost(base: Evidence, head: Evidence, *, paired: bool = False) -> CpuCost | None:
    """Return the CPU time per token on both sides; None if too few processes show it.

    ``paired`` says that the two were measured in pairs with each other.
    """
    try:
        old, new = read_measurement(base), read_measurement(head)
        if paired:
            change = trimmed_mean([pair.cpu for pair in pair_differences(base, head)])
        else:
            change = cpu_change(old, new)
    except (UndecidedError, ValueError):
        return None
    wider = student_t_upper(_TAIL, change.df) / NormalDist().inv_cdf(1.0 - _TAIL)
    base_s = old.cpu_s_per_token
    return CpuCost(
        base_s=base_s,
        head_s=base_s * math.exp(change.mean_diff),
        error=max(wider, 1.0) * change.standard_error,
    )

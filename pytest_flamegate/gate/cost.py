"""What each function costs per token, before and after, and what of the whole that explains.

Cost per token = share of the profile × CPU time per token. The share comes from the
profiled processes, the CPU time from the timed ones, which no profiler slowed. Current
costs are given at the baseline's machine speed (the reference kernel's change is taken
out), so that the rows add up to the change that is judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.gate.stats import Estimate, combine, holm, welch
from pytest_flamegate.gate.views import views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.gate.shares import ShareChange
    from pytest_flamegate.gate.signals import ErrorRates

WAITING = "(waiting)"
"""Quiet time off the CPU: sleeps, locks, input and output."""
MOST = 0.8
"""The part of a change that has to be explained before the frames behind it are named."""
_WAITING_WORTH_SAYING = 0.01
_US_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class CostChange:
    """What one function costs per token in µs, before and after.

    The interval (each row for itself) errs with the false-alarm rate of a look;
    ``no_more_than_us`` bounds the change from above with the miss rate of a look;
    ``p_adjusted`` is Holm's over all rows. ``explains`` is the fraction of the whole
    change that this row makes up, None where the whole did not certainly change.
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
    def certain(self) -> bool:
        """Whether its interval excludes that nothing changed."""
        return self.ci_low_us > 0.0 or self.ci_high_us < 0.0


def cost_changes(
    shares: Sequence[ShareChange],
    baseline: Measurement,
    current: Measurement,
    rates: ErrorRates,
    *,
    whole_changed: bool,
    cpu: Estimate | None = None,
) -> tuple[CostChange, ...]:
    """Return the cost of every row of ``shares``, and of waiting where there is any.

    Largest change first. ``whole_changed`` says whether tokens per second certainly changed;
    ``cpu`` is the change of log CPU time per token where pairs told it, else the two sides do.
    ValueError below two timed processes a side.
    """
    if cpu is None:
        cpu = cpu_change(baseline, current)
    cpu_us = baseline.cpu_s_per_token * _US_PER_S
    rows = [_hotspot(share, cpu_us, cpu) for share in shares]
    waiting = _waiting(baseline, current)
    if waiting is not None:
        rows.append(waiting)
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


def explained_by(costs: Sequence[CostChange], part: float = MOST) -> tuple[str, ...]:
    """Return the fewest rows that together explain ``part`` of the change of the whole.

    Only rows that certainly changed count, the one that explains most first. There are none
    where the whole did not certainly change, or all of them together explain less.
    """
    rows = sorted(
        (cost for cost in costs if (cost.explains or 0.0) > 0.0 and cost.certain),
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
    """Return the change of the logarithm of CPU time per token, the machine's own taken out.

    It lies somewhere between its views. ValueError below two timed processes a side.
    """
    seen = views(baseline, current, lambda side: side.log_cpu, lambda side: side.log_cpu_ratio)
    estimates = seen.estimates
    apart = max(e.mean_diff for e in estimates) - min(e.mean_diff for e in estimates)
    widest = max(estimates, key=lambda estimate: estimate.standard_error)
    error = math.hypot(widest.standard_error, apart / 2)
    return Estimate(seen.middle, error, widest.df)


def _hotspot(share: ShareChange, cpu_us: float, cpu: Estimate) -> tuple[str, float, Estimate]:
    before = share.baseline_share * cpu_us
    after_cpu_us = cpu_us * math.exp(cpu.mean_diff)
    after = share.current_share * after_cpu_us
    old_variance, old_df = share.baseline_variance
    new_variance, new_df = share.current_variance
    variance, df = combine(
        [
            (cpu_us**2 * old_variance, old_df),
            (after_cpu_us**2 * new_variance, new_df),
            ((after * cpu.standard_error) ** 2, cpu.df),
        ]
    )
    return share.name, before, Estimate(after - before, math.sqrt(variance), df)


def _waiting(baseline: Measurement, current: Measurement) -> tuple[str, float, Estimate] | None:
    """Return the row of waiting; it does not scale with the machine's speed."""
    shares = (
        side.waiting_s_per_token * side.quiet_tokens_per_second for side in (baseline, current)
    )
    if max(shares) < _WAITING_WORTH_SAYING:
        return None
    old, new = (
        [process.waiting_s_per_token * _US_PER_S for process in side.timed]
        for side in (baseline, current)
    )
    return WAITING, baseline.waiting_s_per_token * _US_PER_S, welch(old, new)

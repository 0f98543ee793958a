"""How the share and the cost of each function changed between two sides.

Samples of one process are not independent (their spread is 1.1 to 3.3 times binomial), so the
unit is the process here too: Welch's t on the log-odds of the share per process, two-sided, with
Holm's correction over all hotspots and the bucket of the rest. The cost of a function per token
is its share of the samples × CPU time per token. Time off the CPU has a row of its own.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import Literal

from msgspec import Struct

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.measurement import Measurement, read_measurement
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE, POWER, ErrorRates
from pytest_flamegate.gate.statistics import (
    Estimate,
    combine,
    holm,
    log_odds,
    log_odds_variance,
    mean,
    student_t_upper,
    trimmed_mean,
    variance,
    welch,
)
from pytest_flamegate.gate.throughput import view_change
from pytest_flamegate.receipt.types import Evidence, ProcessProfile

OTHER = "(other)"
"""The bucket of all functions too small to be judged one by one."""
HOTSPOT_SHARE = 0.01
"""Functions with at least this share on either side are hotspots."""
PRIOR_SPREAD, PRIOR_DF = 3.0, 4.0
"""The usual variance of a share over processes, in binomial ones, and its degrees of freedom."""
PRIOR_SPREADS = {"perf": 1.5}
"""That of other profilers. perf samples at even steps of CPU time: 0.3 to 1.5 binomial variances in
four engines, on both sides of 14 to 30 pairs (two of five functions below 2 % had 2.1 on one side).
py-spy, which may wait for a CPU, had 6 to 15."""

Presence = Literal["both", "new", "vanished"]


@dataclass(frozen=True, slots=True)
class ShareChange:
    """How the self share of one function moved; shares are 0 to 1 of all samples of a side.

    The interval (percentage points) is for this function alone; ``p_adjusted`` is for the whole
    family. ``detectable_pp`` is the shift that would have been certain with 95 % probability. The
    variances are those of the share (0 to 1) with their df.
    """

    name: str
    baseline_share: float
    current_share: float
    presence: Presence
    shift_pp: float
    ci_low_pp: float
    ci_high_pp: float
    p_adjusted: float
    detectable_pp: float
    baseline_variance: tuple[float, float]
    current_variance: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _ShareOfSide:
    """One function on one side: its share of all samples, and the mean log-odds of it.

    ``corrected`` is the share with half a sample added, so that it is never 0 or 1, ``slope`` its
    derivative by the log-odds.
    """

    pooled: float
    corrected: float
    slope: float
    log_odds: Estimate

    @property
    def variance(self) -> tuple[float, float]:
        """The variance of the share, with its df."""
        return (self.slope * self.log_odds.standard_error) ** 2, self.log_odds.df


def share_changes(
    baseline: Sequence[ProcessProfile],
    current: Sequence[ProcessProfile],
    declared: Collection[str],
    alpha: float,
    profiler: str = "",
) -> tuple[ShareChange, ...]:
    """Return the change of every hotspot, of every declared function with samples, and the rest.

    The hottest comes first, the rest last. ``alpha`` is the false-alarm probability of the whole
    family, ``profiler`` took both profiles. A side with fewer than two processes is a
    ``ValueError``.
    """
    prior = PRIOR_SPREADS.get(profiler, PRIOR_SPREAD)

    def pooled_share(processes: Sequence[ProcessProfile], name: str) -> float:
        total = sum(process.samples for process in processes)
        return sum(process.self_samples.get(name, 0) for process in processes) / total

    names = tuple(
        name
        for name in observed_frames(baseline, current)
        if name in declared
        or max(pooled_share(baseline, name), pooled_share(current, name)) >= HOTSPOT_SHARE
    )
    sides = (baseline, current)
    pairs = [[_share_of(side, (name,), prior) for side in sides] for name in names]
    if any(_rest(process, names) for process in (*baseline, *current)):
        pairs.append([_share_of(side, names, prior, rest=True) for side in sides])
        names = (*names, OTHER)
    estimates = [new.log_odds.minus(old.log_odds) for old, new in pairs]
    adjusted = holm([estimate.p_two_sided for estimate in estimates])
    changes = []
    for name, (old, new), estimate, p in zip(names, pairs, estimates, adjusted, strict=True):
        start = math.log(old.corrected / (1.0 - old.corrected))
        low, high = (
            100.0 * (0.5 + 0.5 * math.tanh(0.5 * (start + bound)) - old.corrected)
            for bound in (estimate.lower(alpha / 2), estimate.upper(alpha / 2))
        )
        shift_pp = 100.0 * (new.pooled - old.pooled)
        # The first step of Holm's procedure is the hardest one.
        hardest = student_t_upper(alpha / 2 / len(names), estimate.df)
        t_sum = hardest + student_t_upper(1.0 - POWER, estimate.df)
        detectable = max(old.slope, new.slope) * t_sum * estimate.standard_error
        changes.append(
            ShareChange(
                name=name,
                baseline_share=old.pooled,
                current_share=new.pooled,
                presence="new" if not old.pooled else "both" if new.pooled else "vanished",
                shift_pp=shift_pp,
                # Few samples and a new function pull the corrected share away from the pooled one.
                ci_low_pp=min(low, shift_pp),
                ci_high_pp=max(high, shift_pp),
                p_adjusted=p,
                detectable_pp=min(100.0, 100.0 * detectable),
                baseline_variance=old.variance,
                current_variance=new.variance,
            )
        )
    return tuple(changes)


def observed_frames(*sides: Sequence[ProcessProfile]) -> tuple[str, ...]:
    """Return every function with a sample on any side, most samples first."""
    counts: Counter[str] = Counter()
    for process in chain(*sides):
        counts.update(process.self_samples)
    return tuple(sorted(+counts, key=lambda name: (-counts[name], name)))


def _rest(process: ProcessProfile, names: Iterable[str]) -> int:
    return process.samples - sum(process.self_samples.get(name, 0) for name in names)


def _share_of(
    processes: Sequence[ProcessProfile], names: Sequence[str], prior: float, *, rest: bool = False
) -> _ShareOfSide:
    totals = [process.samples for process in processes]
    counts = [
        _rest(process, names) if rest else process.self_samples.get(names[0], 0)
        for process in processes
    ]
    odds = [log_odds(count, total) for count, total in zip(counts, totals, strict=True)]
    # A few processes can agree by luck, and zeros always do, so the usual spread weighs as much as
    # that of five. One that is larger than both together stands for itself.
    binomial = mean(
        [log_odds_variance(count, total) for count, total in zip(counts, totals, strict=True)]
    )
    spread, df = variance(odds), len(processes) - 1.0
    moderated = (PRIOR_DF * prior * binomial + df * spread) / (PRIOR_DF + df)
    if spread <= moderated:
        spread, df = max(moderated, binomial), PRIOR_DF + df
    corrected = (sum(counts) + 0.5) / (sum(totals) + 1.0)
    return _ShareOfSide(
        pooled=sum(counts) / sum(totals),
        corrected=corrected,
        slope=corrected * (1.0 - corrected),
        log_odds=Estimate(mean(odds), math.sqrt(spread / len(processes)), df),
    )


WAITING = "(waiting)"
"""The row of time off the CPU: sleeps, locks, input and output."""
MOST = 0.8
"""The part of a change that must be explained before the functions behind it are named."""
_WAITING_WORTH_A_ROW = 0.01
_US_PER_S = 1e6
_TAIL = 0.0025
"""Where Student's and the normal tail are matched. The error of the whole is the same for every
function, so it is not corrected for their number. On recorded pairs of the same code, three at a
time, 0.3 % of all differences and 1.1 % of the worst kind show a change."""


def _name_in_document(name: str) -> str | None:
    return f"{name}_per_token" if name.endswith("_us") else None


class CostChange(Struct, frozen=True, rename=_name_in_document, omit_defaults=True):
    """The cost of one function per token in µs, before and after; a row of ``verdict.json``.

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
    p_adjusted: float
    explains: float | None
    no_more_than_us: float = math.inf

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval of this row alone excludes that nothing changed."""
        return self.ci_low_us > 0.0 or self.ci_high_us < 0.0

    @property
    def certainty(self) -> float:
        """The size of the change in half-widths of its interval; infinite if it has no width."""
        half = self.change_us - self.ci_low_us
        return abs(self.change_us) / half if half else math.inf

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
        # Waiting does not scale with the machine's speed, so no reference corrects it.
        old, new = (
            [process.waiting_s_per_token * _US_PER_S for process in side.timed]
            for side in (baseline, current)
        )
        rows.append((WAITING, baseline.waiting_s_per_token * _US_PER_S, welch(old, new)))
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
            explains=estimate.mean_diff / total if whole_changed and total else None,
        )
        for (name, before, estimate), p in zip(rows, adjusted, strict=True)
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_us), change.name)))


def explaining_functions(costs: Sequence[CostChange]) -> tuple[str, ...]:
    """Return the fewest rows that together explain ``MOST`` of the change of the whole.

    Only rows that certainly changed count, the one that explains most first. The result is empty
    if the whole did not certainly change, or if all of them together explain less.
    """
    rows = sorted(
        (-cost.explains, cost.name)
        for cost in costs
        if cost.explains is not None and cost.explains > 0.0 and cost.excludes_zero
    )
    chosen: list[str] = []
    explained = 0.0
    for part, name in rows:
        chosen.append(name)
        explained -= part
        if explained >= MOST:
            return tuple(chosen)
    return ()


def cpu_change(baseline: Measurement, current: Measurement) -> Estimate:
    """Return the change of log CPU time per token, without the machine's own change of speed.

    It lies between the views of it; if they disagree, the error grows by half their distance. A
    side with fewer than two timed processes is a ``ValueError``.
    """
    estimates = [view.estimate for view in view_change(baseline, current, "log_cpu")]
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
        error=wider * change.standard_error,
    )

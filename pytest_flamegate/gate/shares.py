"""How the share of each function moved between two sets of profiled processes.

Samples of one process are not independent (their spread is 1.1 to 3.3 times binomial), so the
unit is the process here too: Welch's t on the log-odds of the share per process, two-sided, with
Holm's correction over all hotspots and the bucket of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.gate.rule import POWER
from pytest_flamegate.gate.statistics import (
    Estimate,
    combine,
    holm,
    log_odds,
    log_odds_variance,
    mean,
    student_t_upper,
    variance,
)
from pytest_flamegate.receipt.types import ProcessProfile

OTHER = "(other)"
"""The bucket of all functions too small to be judged one by one."""
HOTSPOT_SHARE = 0.01
"""Functions with at least this share on either side are hotspots."""

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

    ``corrected`` is the share with half a sample added, so that it is never 0 or 1. ``variance``
    and ``df`` are those of the mean log-odds.
    """

    pooled: float
    corrected: float
    log_odds: float
    variance: float
    df: float

    @property
    def slope(self) -> float:
        """The derivative of the share by its log-odds."""
        return self.corrected * (1.0 - self.corrected)

    @property
    def share_variance(self) -> tuple[float, float]:
        """Variance of the share itself, with its df."""
        return self.slope**2 * self.variance, self.df


def share_changes(
    baseline: Sequence[ProcessProfile],
    current: Sequence[ProcessProfile],
    declared: Iterable[str],
    alpha: float,
) -> tuple[ShareChange, ...]:
    """Return the change of every hotspot, of every declared function with samples, and the rest.

    The hottest comes first, the rest last. ``alpha`` is the false-alarm probability of the whole
    family.

    Raises:
        ValueError: A side has fewer than two processes.
    """
    names = _judged_names(baseline, current, declared)
    pairs = [(_share_of(baseline, (name,)), _share_of(current, (name,))) for name in names]
    if any(_rest(process, names) for process in (*baseline, *current)):
        pairs.append((_share_of(baseline, names, rest=True), _share_of(current, names, rest=True)))
        names = (*names, OTHER)
    estimates = [_difference(old, new) for old, new in pairs]
    adjusted = holm([estimate.p_two_sided for estimate in estimates])
    return tuple(
        _change(name, old, new, estimate, p, alpha, len(names))
        for name, (old, new), estimate, p in zip(names, pairs, estimates, adjusted, strict=True)
    )


def pooled_share(processes: Sequence[ProcessProfile], name: str) -> float:
    """Return the share of ``name`` in all samples of one side, 0 to 1."""
    total = sum(process.samples for process in processes)
    return sum(process.self_samples.get(name, 0) for process in processes) / total


def observed_frames(*sides: Sequence[ProcessProfile]) -> tuple[str, ...]:
    """Return every function with a sample on any side, most samples first."""
    counts: dict[str, int] = {}
    for process in (process for side in sides for process in side):
        for name, count in process.self_samples.items():
            counts[name] = counts.get(name, 0) + count
    sampled = [name for name, count in counts.items() if count]
    return tuple(sorted(sampled, key=lambda name: (-counts[name], name)))


def _judged_names(
    baseline: Sequence[ProcessProfile],
    current: Sequence[ProcessProfile],
    declared: Iterable[str],
) -> tuple[str, ...]:
    wanted = set(declared)
    return tuple(
        name
        for name in observed_frames(baseline, current)
        if name in wanted
        or max(pooled_share(baseline, name), pooled_share(current, name)) >= HOTSPOT_SHARE
    )


def _rest(process: ProcessProfile, names: Iterable[str]) -> int:
    return process.samples - sum(process.self_samples.get(name, 0) for name in names)


def _share_of(
    processes: Sequence[ProcessProfile], names: Sequence[str], *, rest: bool = False
) -> _ShareOfSide:
    totals = [process.samples for process in processes]
    counts = [
        _rest(process, names) if rest else process.self_samples.get(names[0], 0)
        for process in processes
    ]
    odds = [log_odds(count, total) for count, total in zip(counts, totals, strict=True)]
    # A few processes can agree by luck, and zeros always do: sampling alone has at least the
    # binomial variance.
    binomial = mean(
        [log_odds_variance(count, total) for count, total in zip(counts, totals, strict=True)]
    )
    return _ShareOfSide(
        pooled=sum(counts) / sum(totals),
        corrected=(sum(counts) + 0.5) / (sum(totals) + 1.0),
        log_odds=mean(odds),
        variance=max(variance(odds), binomial) / len(processes),
        df=len(processes) - 1.0,
    )


def _difference(old: _ShareOfSide, new: _ShareOfSide) -> Estimate:
    total, df = combine([(old.variance, old.df), (new.variance, new.df)])
    return Estimate(new.log_odds - old.log_odds, math.sqrt(total), df)


def _change(
    name: str,
    old: _ShareOfSide,
    new: _ShareOfSide,
    estimate: Estimate,
    p_adjusted: float,
    alpha: float,
    family: int,
) -> ShareChange:
    start = math.log(old.corrected / (1.0 - old.corrected))
    low, high = (
        100.0 * (_logistic(start + bound) - old.corrected)
        for bound in (estimate.lower(alpha / 2), estimate.upper(alpha / 2))
    )
    # The first step of Holm's procedure is the hardest one.
    t_sum = student_t_upper(alpha / 2 / family, estimate.df) + student_t_upper(
        1.0 - POWER, estimate.df
    )
    detectable = max(old.slope, new.slope) * t_sum * estimate.standard_error
    presence: Presence = "both"
    if old.pooled == 0.0:
        presence = "new"
    elif new.pooled == 0.0:
        presence = "vanished"
    return ShareChange(
        name=name,
        baseline_share=old.pooled,
        current_share=new.pooled,
        presence=presence,
        shift_pp=100.0 * (new.pooled - old.pooled),
        ci_low_pp=low,
        ci_high_pp=high,
        p_adjusted=p_adjusted,
        detectable_pp=min(100.0, 100.0 * detectable),
        baseline_variance=old.share_variance,
        current_variance=new.share_variance,
    )


def _logistic(log_odds_value: float) -> float:
    if log_odds_value >= 0:
        return 1.0 / (1.0 + math.exp(-log_odds_value))
    odds = math.exp(log_odds_value)
    return odds / (1.0 + odds)

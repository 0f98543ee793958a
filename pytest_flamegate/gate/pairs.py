"""Two sides measured in pairs: the differences, and the looks at which they may decide.

The unit of evidence is the pair of fresh processes. Its difference is the mean over
its blocks of ln(time per token of head / that of base), so what slowed both cancels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.hotspots import cpu_change
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.rule import RateVerdict, decide
from pytest_flamegate.gate.signals import rate_change_pct
from pytest_flamegate.gate.statistics import Estimate, mean, sample_variance, student_t_upper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_flamegate.gate.signals import ErrorRates
    from pytest_flamegate.observe.observation import Block, Run
    from pytest_flamegate.receipt.types import Evidence


FIRST_ANALYSES = (5, 7, 10, 14, 20, 28)
"""Pairs at which an answer may be given; each further look waits for 40 % more."""
_GROWTH = math.sqrt(2.0)
TRIMMED = 0.15
"""Part of the pairs at each end that the mean leaves out."""


class Side(Protocol):
    """What was seen of one side: an observation, or the evidence made of it."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All its runs."""

    @property
    def clock_scope(self) -> str:
        """``sequence`` or ``process``."""


@dataclass(frozen=True, slots=True)
class PairDifference:
    """One pair: how much longer head took per token than base, as natural logarithms.

    ``quiet``, ``cpu`` and ``wall`` are clocks; ``prefill`` is the time to the first token
    and ``decode`` that between further ones, on the wall clock. They are None where a
    phase is not told apart (a program's start and load are in its first token) or has no
    token.
    """

    quiet: float
    cpu: float
    wall: float
    prefill: float | None
    decode: float | None


@dataclass(frozen=True, slots=True)
class InterimAnalysis:
    """What the first ``pairs`` pairs said."""

    pairs: int
    estimate: Estimate
    verdict: RateVerdict


def plan_analyses(most: int) -> tuple[int, ...]:
    """Return the looks for at most ``most`` pairs: the first six, or more of the same growth.

    The plan is made before anything is measured: the error rates are spent over all of it.
    """
    looks = list(FIRST_ANALYSES)
    while (following := round(looks[-1] * _GROWTH)) <= most:
        looks.append(following)
    return tuple(looks)


def pair_differences(base: Side, head: Side) -> tuple[PairDifference, ...]:
    """Return the difference of every pair, in the order in which they ran.

    Raises UndecidedError ``E_UNPAIRED`` where the runs of the two sides do not belong
    together.
    """
    old, new = _blocks_by_pair(base), _blocks_by_pair(head)
    if old.keys() != new.keys():
        odd = sorted(old.keys() ^ new.keys())
        raise _unpaired(f"Pair {odd[0]} has a process on one side only.")
    served = base.clock_scope == head.clock_scope == "sequence"
    return tuple(_difference(number, old[number], new[number], served) for number in sorted(old))


def trimmed_mean(differences: Sequence[float]) -> Estimate:
    """Return the trimmed mean of paired differences, with Yuen's standard error and df.

    From seven pairs on the furthest 15 % at each end count no further than their neighbours:
    one process in twelve stays 10 to 40 % off all its life, by where it came to lie, and two
    or three such pairs would hide for long what all others show. ValueError below two.
    """
    ordered = sorted(differences)
    count = len(ordered)
    cut = int(TRIMMED * count)
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    spread = sample_variance(winsorised) * (count - 1)
    error = math.sqrt(spread / (len(kept) * (len(kept) - 1)))
    return Estimate(mean(kept), error, len(kept) - 1.0)


def interim_analyses(
    differences: Sequence[float],
    threshold: float,
    rates: ErrorRates,
    looks: Sequence[int],
    *,
    ended: bool,
) -> tuple[InterimAnalysis, ...]:
    """Return every look that was taken, the last of which decides if any does.

    ``rates.looks`` must be the number of planned looks. Nothing is looked at after a decision,
    so further pairs change nothing that was decided. ``ended`` says that no more pairs will
    come: then what there is takes the place of the next look, if it is enough for the first.
    """
    taken: list[InterimAnalysis] = []
    count = len(differences)
    due = [pairs for pairs in looks if pairs <= count]
    if ended and looks[0] <= count < looks[-1] and count not in due:
        due.append(count)
    for pairs in due:
        estimate = trimmed_mean(differences[:pairs])
        verdict = decide(estimate, threshold, rates)
        taken.append(InterimAnalysis(pairs, estimate, verdict))
        if verdict.decision != "inconclusive":
            break
    return tuple(taken)


def _blocks_by_pair(side: Side) -> Mapping[int, list[Block]]:
    found: dict[int, list[Block]] = defaultdict(list)
    for run in side.runs:
        if run.role != "timed":
            continue
        if run.pair is None:
            raise _unpaired(f"Process {run.pid} ran in no pair.")
        found[run.pair] += run.blocks
    return found


def _difference(
    number: int, old: Sequence[Block], new: Sequence[Block], served: bool
) -> PairDifference:
    if len(old) != len(new):
        raise _unpaired(f"Pair {number} has {len(old)} blocks at the base and {len(new)} now.")

    def over(value: Callable[[Block], float | None]) -> float | None:
        logs = [
            math.log(after / before)
            for before, after in ((value(a), value(b)) for a, b in zip(old, new, strict=True))
            if before and after
        ]
        return mean(logs) if logs else None

    quiet = over(lambda block: block.judged.quiet_ns / block.judged_tokens)
    cpu = over(lambda block: block.judged.cpu_ns / block.judged_tokens)
    wall = over(lambda block: block.judged.wall_ns / block.judged_tokens)
    assert quiet is not None
    assert cpu is not None
    assert wall is not None
    return PairDifference(
        quiet,
        cpu,
        wall,
        over(first_gap_ns) if served else None,
        over(further_gap_ns) if served else None,
    )


def first_gap_ns(block: Block) -> float | None:
    """Return the mean time to the first token of the block's sequences."""
    return mean([float(gaps[0]) for gaps in block.sequences_ns])


def further_gap_ns(block: Block) -> float | None:
    """Return the mean time between further tokens; None where there are none."""
    gaps = [float(gap) for sequence in block.sequences_ns for gap in sequence[1:]]
    return mean(gaps) if gaps else None


def _unpaired(what: str) -> UndecidedError:
    return UndecidedError(
        "E_UNPAIRED", what, "Measure again: both sides of a comparison must be whole."
    )


_TAIL = 0.0005


@dataclass(frozen=True, slots=True)
class CpuCost:
    """CPU seconds per token before and after, at the baseline's machine speed.

    ``error`` is the relative standard error of their ratio, widened for few processes so
    that quantiles of the normal distribution hold.
    """

    base_s: float
    head_s: float
    error: float


def estimate_cpu_cost(base: Evidence, head: Evidence, *, paired: bool = False) -> CpuCost | None:
    """Return what a token cost on both sides; None where too few processes tell.

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


PhaseName = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """One phase on the wall clock: ms to the first token, or ms between further ones.

    ``change_pct`` is that of the rate (negative is slower), as for tokens per second; its
    interval errs with the false-alarm rate of a look. ``certain`` says that it excludes zero.
    """

    name: PhaseName
    baseline_ms: float
    current_ms: float
    change_pct: float
    ci_low_pct: float
    ci_high_pct: float
    certain: bool


def phase_changes(
    base: Side, head: Side, differences: Sequence[PairDifference], rates: ErrorRates
) -> tuple[PhaseChange, ...]:
    """Return the phases that every pair tells apart, prefill first."""
    found = []
    phases: tuple[tuple[PhaseName, Callable[[Block], float | None]], ...] = (
        ("prefill", first_gap_ns),
        ("decode", further_gap_ns),
    )
    for name, gap_ns in phases:
        logs = [getattr(difference, name) for difference in differences]
        known = [value for value in logs if value is not None]
        if len(known) < max(2, len(logs)):
            continue
        estimate = trimmed_mean(known)
        low, high = estimate.lower(rates.alpha / 2), estimate.upper(rates.alpha / 2)
        found.append(
            PhaseChange(
                name=name,
                baseline_ms=_mean_ms(base, gap_ns),
                current_ms=_mean_ms(head, gap_ns),
                change_pct=rate_change_pct(estimate.mean_diff),
                ci_low_pct=rate_change_pct(high),
                ci_high_pct=rate_change_pct(low),
                certain=low > 0.0 or high < 0.0,
            )
        )
    return tuple(found)


def _mean_ms(side: Side, gap_ns: Callable[[Block], float | None]) -> float:
    gaps = (gap_ns(block) for run in side.runs if run.role == "timed" for block in run.blocks)
    return mean([gap for gap in gaps if gap is not None]) / 1e6

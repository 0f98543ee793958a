"""Prefill or decode: in which phase of a sequence the time of two sides differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.gate.pairs import estimate_of, first_gap_ns, further_gap_ns
from pytest_flamegate.gate.signals import rate_change_pct
from pytest_flamegate.gate.stats import mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flamegate.gate.pairs import PairDifference, Side
    from pytest_flamegate.gate.signals import ErrorRates
    from pytest_flamegate.workload.observation import Block

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
        estimate = estimate_of(known)
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

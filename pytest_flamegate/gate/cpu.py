"""What a token costs on two sides in CPU time, on one clock: by pairs where there are pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.cost import cpu_change
from pytest_flamegate.gate.measurement import measurement_of
from pytest_flamegate.gate.pairs import estimate_of, pair_differences
from pytest_flamegate.gate.student import student_t_upper

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence

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


def cpu_cost(base: Evidence, head: Evidence, *, paired: bool = False) -> CpuCost | None:
    """Return what a token cost on both sides; None where too few processes tell.

    ``paired`` says that the two were measured in pairs with each other.
    """
    try:
        old, new = measurement_of(base), measurement_of(head)
        if paired:
            change = estimate_of([pair.cpu for pair in pair_differences(base, head)])
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

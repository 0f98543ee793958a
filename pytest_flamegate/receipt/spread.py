"""By how much the shares of a profile differ from process to process."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.profile.difference import SPREAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.types import ProcessProfile

_EXPECTED = 5.0
"""Samples of a function in a process below which its share tells nothing of the spread."""


def spread_of(processes: Sequence[ProcessProfile]) -> float:
    """Return the standard deviation of a share between processes, in binomial ones.

    Never below what profiles of one program differ by on a quiet machine. A busy one
    stops a process anywhere, and a profiler by the wall clock then counts that place.
    """
    total = sum(process.samples for process in processes)
    if total <= 0:  # read from a file, it may name samples in functions all the same
        return SPREAD
    pooled: Counter[str] = Counter()
    for process in processes:
        pooled.update(process.self_samples)
    squares, freedom = 0.0, 0
    for name, count in pooled.items():
        share = count / total
        if min(share, 1.0 - share) * min(process.samples for process in processes) < _EXPECTED:
            continue
        squares += sum(
            (process.self_samples.get(name, 0) - process.samples * share) ** 2
            / (process.samples * share * (1.0 - share))
            for process in processes
        )
        freedom += len(processes) - 1
    return max(SPREAD, math.sqrt(squares / freedom)) if freedom else SPREAD

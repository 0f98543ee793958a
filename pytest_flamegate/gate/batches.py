"""A stored baseline that was measured more than once: how far its own batches lie apart.

Within one batch the drift of the machine between two days cannot be seen, so it has to
be assumed. With six batches of the same code, accepted at different times, it is measured.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate.stats import Estimate, mean, sample_variance

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH = 6
"""Fewer batches show no spread that could replace the assumed one."""


def batch_estimate(earlier: Sequence[float], current: Sequence[float]) -> Estimate:
    """Estimate how far one more batch lies from those before, in log time.

    ``earlier`` are the means of batches, ``current`` the processes of the new one. The error is
    that of predicting one batch from S others: their spread × √(1 + 1/S), S - 1 df.
    """
    count = len(earlier)
    error = math.sqrt(sample_variance(earlier) * (1.0 + 1.0 / count))
    return Estimate(mean(current) - mean(earlier), error, count - 1.0)

"""Was the machine in the same state? What the identity of a machine does not show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate.comparability import Difference
from pytest_flamegate.gate.stats import mean, sample_variance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.gate.measurement import Measurement

MAX_CPU_PRESSURE_PCT = 50.0
"""Above this the CPUs were contended; measured spread of fresh processes doubles there."""
REFERENCE_SD = 0.035
"""Measured spread of log CPU time between fresh processes on a quiet shared machine."""
REFERENCE_LIMIT_SD = 3.0

TRANSIENT_CODES = frozenset({"E_CPU_PRESSURE", "E_REFERENCE_OFF"})
"""Differences that may go away when more is measured."""


def condition_differences(baseline: Measurement, current: Measurement) -> tuple[Difference, ...]:
    """Return how the state of the machine differed between two stored measurements.

    ``E_CPU_PRESSURE`` where the CPUs were contended on one side only: contention on
    both sides is spread that the statistics see. ``E_REFERENCE_OFF`` where the fixed
    reference kernel itself changed speed by more than three standard deviations: then
    the ratio to it cannot be trusted either.
    """
    return (*_pressure(baseline, current), *_reference(baseline, current))


def _pressure(baseline: Measurement, current: Measurement) -> Iterator[Difference]:
    old, new = baseline.cpu_pressure_pct, current.cpu_pressure_pct
    if old is None or new is None:
        return
    if (old > MAX_CPU_PRESSURE_PCT) != (new > MAX_CPU_PRESSURE_PCT):
        yield Difference("CPU pressure", f"{old:.0f} %", f"{new:.0f} %", "E_CPU_PRESSURE")


def _reference(baseline: Measurement, current: Measurement) -> Iterator[Difference]:
    old, new = (
        [math.log(p.reference_s) for p in side.timed if p.reference_s is not None]
        for side in (baseline, current)
    )
    if len(old) < 2 or len(new) < 2:
        return
    # The spread of a few processes can be small by luck; the measured one is the floor.
    spread = math.sqrt(0.5 * (sample_variance(old) + sample_variance(new)))
    limit = REFERENCE_LIMIT_SD * max(spread, REFERENCE_SD)
    if abs(mean(new) - mean(old)) > limit:
        yield Difference(
            "speed of the reference kernel",
            f"{math.exp(mean(old)) * 1e3:.3f} ms",
            f"{math.exp(mean(new)) * 1e3:.3f} ms",
            "E_REFERENCE_OFF",
        )

"""Was the machine in the same state? What the identity of a machine does not show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate.comparability import Difference
from pytest_flamegate.gate.stats import mean
from pytest_flamegate.workload import floors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.gate.measurement import Measurement

MAX_CPU_PRESSURE_PCT = floors.MAX_CPU_PRESSURE_PCT
REFERENCE_LIMIT = 0.3
"""Beyond this change of its log time the machine is in another state altogether."""

TRANSIENT_CODES = frozenset({"E_CPU_PRESSURE", "E_REFERENCE_OFF"})
"""Differences that may go away when more is measured."""


def condition_differences(baseline: Measurement, current: Measurement) -> tuple[Difference, ...]:
    """Return how the state of the machine differed between two stored measurements.

    ``E_CPU_PRESSURE`` where the CPUs were contended on one side only: contention on
    both sides is spread that the statistics see. ``E_REFERENCE_OFF`` where the fixed
    reference kernel itself changed speed by more than ``REFERENCE_LIMIT``: then the ratio
    to it cannot be trusted either. A smaller change widens the interval instead.
    """
    return (*_pressure(baseline, current), *_reference(baseline, current))


def _pressure(baseline: Measurement, current: Measurement) -> Iterator[Difference]:
    old, new = baseline.cpu_pressure_pct, current.cpu_pressure_pct
    if old is None or new is None:
        return
    if (old > MAX_CPU_PRESSURE_PCT) != (new > MAX_CPU_PRESSURE_PCT):
        yield Difference("CPU pressure", f"{old:.0f} %", f"{new:.0f} %", "E_CPU_PRESSURE")


def reference_shift(baseline: Measurement, current: Measurement) -> float | None:
    """Return the change of the reference kernel's log time, None without one on both sides."""
    old, new = (
        [math.log(p.reference_s) for p in side.timed if p.reference_s is not None]
        for side in (baseline, current)
    )
    return mean(new) - mean(old) if old and new else None


def _reference(baseline: Measurement, current: Measurement) -> Iterator[Difference]:
    shift = reference_shift(baseline, current)
    if shift is None or abs(shift) <= REFERENCE_LIMIT:
        return
    old, new = (
        1e3 * math.exp(mean([math.log(p.reference_s) for p in side.timed if p.reference_s]))
        for side in (baseline, current)
    )
    yield Difference(
        "speed of the reference kernel", f"{old:.3f} ms", f"{new:.3f} ms", "E_REFERENCE_OFF"
    )

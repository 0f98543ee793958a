"""How the change between two batches can be seen, with and without the reference kernel.

The reference takes the machine's own change of speed out of the figures of an engine
that was measured to follow it. Where it is not known whether an engine does, the truth
lies somewhere between the change corrected by it and the change as it was timed: both
are judged, and only what both say counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.conditions import reference_shift
from pytest_flamegate.gate.stats import Estimate, mean, welch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.gate.measurement import Measurement, TimedProcess

    View = tuple[tuple[float, ...], tuple[float, ...], float]

BATCH_DRIFT_SD = 0.0042
"""Measured drift of log(CPU / reference kernel) between batches over 40 minutes."""
BATCH_DRIFT_SD_WITHOUT_REFERENCE = 0.02
"""The same for CPU time alone."""
REFERENCE_LEAK = 0.21
"""Part of a change of the machine's speed that the ratio to the reference does not cancel.

Measured: of a drift of 2.0 % in CPU time, 0.42 % was left in CPU time over reference.
"""


@dataclass(frozen=True, slots=True)
class Views:
    """The ways in which one change may be looked at; one where the engine is known well.

    Each is the two sides' values and the variance of the drift between their batches.
    """

    each: tuple[tuple[tuple[float, ...], tuple[float, ...], float], ...]

    @property
    def estimates(self) -> list[Estimate]:
        """Return the change as each view shows it."""
        return [welch(*view) for view in self.each]

    @property
    def middle(self) -> float:
        """The change half way between the views."""
        return mean([estimate.mean_diff for estimate in self.estimates])


def views(
    baseline: Measurement,
    current: Measurement,
    raw: Callable[[TimedProcess], float],
    ratio: Callable[[TimedProcess], float],
) -> Views:
    """Return how the change of ``raw``, whose ratio to the reference is ``ratio``, can be seen.

    With a reference that the engine follows: as the ratio, trusted the less the further
    the machine's own speed has moved. With another reference: as both. Without: as it is.
    """

    def view(value: Callable[[TimedProcess], float], sd: float, leak: float) -> View:
        old, new = (tuple(map(value, side.timed)) for side in (baseline, current))
        return old, new, 2.0 * sd**2 + leak**2

    shift = reference_shift(baseline, current)
    if shift is None:
        return Views((view(raw, BATCH_DRIFT_SD_WITHOUT_REFERENCE, 0.0),))
    if baseline.reference_follows and current.reference_follows:
        return Views((view(ratio, BATCH_DRIFT_SD, REFERENCE_LEAK * shift),))
    return Views((view(ratio, BATCH_DRIFT_SD, 0.0), view(raw, BATCH_DRIFT_SD, 0.0)))

"""What a clocked run of an engine's bricks says, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.bricks.durations import counts_of, quantile_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.names import Category

MOST = 2**63 - 1
"""No count and no time is more."""
Phase = Literal["prefill", "decode", ""]
"""Which part of a generation a call belongs to; empty where nobody told."""
Sync = Literal["immediate", "per_layer", "deferred", "none"]
"""When the device is waited for: after each brick, each layer, once at the end, or never."""
Provenance = Literal[
    "measured_wall",
    "measured_cpu",
    "measured_device_event",
    "counted",
    "sampled",
    "ingested",
    "derived",
]
"""How a figure came about. What is ``derived`` or ``ingested`` is shown and never gated."""


@dataclass(frozen=True, slots=True)
class BrickCall:
    """One call: the ``index`` of the call that it ran within is ``parent`` (None for none).

    Times are nanoseconds of the process's monotonic clock; ``self_ns`` is without the calls
    within. ``lane`` numbers the thread or task. ``kernel`` names what the call launched, if told.
    """

    name: str
    start_ns: int
    end_ns: int
    self_ns: int
    layer: int | None = None
    phase: Phase = ""
    lane: int = 0
    parent: int | None = None
    elements: int = 0
    bytes: int = 0
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class BrickTotals:
    """All calls of one brick in one layer and phase.

    ``total_ns`` is inclusive, of the outermost call where a brick runs within itself; ``self_ns``
    is without the bricks within. ``min_ns``, ``max_ns`` and ``durations`` (calls by bucket, see
    ``durations.bucket``, as text) are of single calls, inclusive. ``latency_ns`` is the time from
    enqueueing to the sync that ended deferred calls: of overlapping work, so it is no time spent.
    """

    name: str
    category: Category
    calls: int
    total_ns: int
    self_ns: int
    min_ns: int
    max_ns: int
    layer: int | None = None
    phase: Phase = ""
    elements: int = 0
    bytes: int = 0
    flops: int = 0
    durations: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    latency_ns: int = 0
    provenance: Provenance = "measured_wall"

    def quantile_ns(self, part: float) -> int:
        """Return the duration that ``part`` of the calls do not exceed, to 0.8 %."""
        return quantile_ns(counts_of(self.durations), part)


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread or task: at no moment does it spend time in two bricks' own code."""

    name: str
    self_ns: int
    calls: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that a profiler recorded while it was on, for ``wall_ns``.

    ``calls`` are kept only where they were asked for, the last ones; ``unended`` counts the
    calls that were still open at the end, which stand in no figure.
    """

    wall_ns: int
    sync: Sync
    totals: tuple[BrickTotals, ...]
    lanes: tuple[Lane, ...]
    calls: tuple[BrickCall, ...] = ()
    unended: int = 0


@dataclass(frozen=True, slots=True)
class BrickPass:
    """One process whose bricks were clocked, in a run that was for this alone.

    It generated ``sequences`` whole sequences, ``tokens`` in all, ``decode_tokens`` of them after
    the first of each. ``wall_ns`` is what that took by the process's own clock.
    """

    pid: int
    started_ticks: int | None
    sequences: int
    tokens: int
    decode_tokens: int
    wall_ns: int
    sync: Sync
    totals: tuple[BrickTotals, ...]
    lanes: tuple[Lane, ...]
    unended: int = 0

    @property
    def coverage(self) -> float:
        """The part of the wall time that the busiest lane spent in bricks, 0 to 1."""
        return max((lane.self_ns for lane in self.lanes), default=0) / max(self.wall_ns, 1)

"""Clocks and devices that a test controls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import BrickTotals, Recorded


class FakeClock:
    """Nanoseconds that pass only when a test says so; ``reads`` counts the calls."""

    def __init__(self) -> None:
        self.now = 1_000
        self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return self.now

    def pass_(self, ns: int) -> None:
        self.now += ns


class FakeDevice:
    """A device that works through ``work_ns`` of each piece enqueued, one after the other."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.syncs = 0
        self.queued_until = clock.now

    def enqueue(self, work_ns: int) -> None:
        self.queued_until = max(self.queued_until, self.clock.now) + work_ns

    def synchronise(self) -> None:
        self.syncs += 1
        self.clock.now = max(self.clock.now, self.queued_until)

    def event(self) -> FakeEvent:
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.at_ns = -1

    def record(self) -> None:
        self.at_ns = max(self.device.queued_until, self.device.clock.now)

    def elapsed_time(self, other: FakeEvent) -> float:
        return (other.at_ns - self.at_ns) / 1e6


def by_name(recorded: Recorded) -> dict[str, BrickTotals]:
    """Return the totals of a recording in which each brick has one layer and phase."""
    assert max(Counter(each.name for each in recorded.totals).values(), default=1) == 1
    return {each.name: each for each in recorded.totals}

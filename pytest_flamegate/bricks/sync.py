"""Bricks whose work a device does later: when it is waited for, and what is then known.

``deferred`` and ``per_layer`` calls end at a sync. Device events measure them. Without events
nobody saw them end, so a call's own time is the gap to the next start in its lane (or to the
sync), which sums to the time that passed; from enqueue to sync is its latency, no time spent.
"""

from __future__ import annotations

import math
from threading import RLock
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks import marks, unusual
from pytest_flamegate.bricks.marks import Scope
from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.cells import Cell
    from pytest_flamegate.bricks.lanes import LaneClock
    from pytest_flamegate.bricks.record import Provenance, Sync


class Synced(Scope):
    """A call that waits for the device before it begins and before it ends."""

    __slots__ = ("wait",)
    wait: Callable[[], None]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait, and end; a call whose device fails is recorded too."""
        try:
            self.wait()
        finally:
            super().__exit__(kind, error, trace)


class Enqueued(Scope):
    """A call that ends at a later sync; ``gap`` is the time to the next start, None so far."""

    __slots__ = ("again", "around", "closed", "device", "done", "gap", "opened")
    again: bool
    around: Scope | None
    closed: Any
    device: Device
    done: bool
    gap: int | None
    opened: Any

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Note that nothing more is enqueued."""
        lane = marks._here.lane
        if lane.top is not self and not unusual.end(self, lane, error):
            return
        lane.top = self.parent
        self.closed = self.device.event()
        name = self.cell.name
        self.again = any(each.cell.name is name for each in lane.opened())
        self.done = True


class Device:
    """What is enqueued and not yet waited for, by lane. Times in nanoseconds of ``clock``."""

    def __init__(
        self,
        sync: Sync,
        synchronise: Callable[[], None],
        event: Callable[[], Any] | None,
        clock: Callable[[], int],
    ) -> None:
        self._sync = sync
        self._synchronise = synchronise
        self._make_event = event if sync != "immediate" else None
        self._clock = clock
        self._lock = RLock()
        self._layers: dict[LaneClock, int] = {}
        self.pending: dict[LaneClock, list[Enqueued]] = {}
        self.forget()

    @property
    def provenance(self) -> Provenance:
        """How the figures come about."""
        if self._sync == "immediate":
            return "measured_wall"
        return "derived" if self._make_event is None else "measured_device_event"

    def forget(self) -> None:
        """Wait for what was enqueued, and forget it."""
        with self._lock:
            self._synchronise()
            self.pending.clear()
            self._layers.clear()
            self._base = self.event()
            self._base_ns = self._clock()

    def event(self) -> Any:
        """Return an event recorded now, None where there are none."""
        if self._make_event is None:
            return None
        made = self._make_event()
        made.record()
        return made

    def scope(self, lane: LaneClock, cell: Cell) -> Scope:
        """Return what a call that is about to begin is; wait for the device where it is time."""
        if self._sync == "immediate":
            self._synchronise()
            synced = Synced()
            synced.wait = self._synchronise
            return synced
        with self._lock:
            layer = cell.key[1]
            if self._sync == "per_layer" and layer is not None:
                if self.pending.get(lane) and self._layers.get(lane, layer) != layer:
                    self.finish(lane)
                self._layers[lane] = layer
            scope = Enqueued()
            scope.device = self
            scope.around = lane.top
            scope.done = False
            scope.gap = None
            scope.opened = self.event()
            return scope

    def enqueue(self, lane: LaneClock, scope: Scope) -> None:
        """Hold a call that has begun until the next sync."""
        if isinstance(scope, Enqueued):
            with self._lock:
                self.pending.setdefault(lane, []).append(scope)

    def finish(self, lane: LaneClock | None = None) -> None:
        """Wait for the device, and count the calls that ended, of all lanes or of one."""
        with self._lock:
            self._synchronise()
            now = self._clock()
            for each in list(self.pending) if lane is None else [lane]:
                self._settle(each, self.pending.pop(each), now)

    def _settle(self, lane: LaneClock, pending: list[Enqueued], now: int) -> None:
        new = [scope for scope in pending if scope.gap is None]
        for scope, until in zip(new, [*(each.start for each in new[1:]), now], strict=True):
            scope.gap = until - scope.start
        still = []
        # Those within began later: they are counted first.
        for scope in reversed(pending):
            passed = scope.child
            if scope.done:
                passed = self._count(scope, now)
            elif lane.holds(scope):
                still.append(scope)
                continue
            if scope.around is not None:
                scope.around.child += passed
        if still:
            self.pending[lane] = still[::-1]

    def _count(self, scope: Enqueued, now: int) -> int:
        """Count a call; return its inclusive time."""
        if self._make_event is None:
            took = (scope.gap or 0) + scope.child
            end = scope.start + took
            child = scope.child
        else:
            took = _between_ns(scope.opened, scope.closed)
            end = self._base_ns + _between_ns(self._base, scope.closed)
            # Events are exact to half a microsecond, so parts may add up to more than the whole.
            child = min(scope.child, took)
        cell = scope.cell.within() if scope.again else scope.cell
        cell.elements += scope.elements
        if scope.told is not None:
            cell.tell(scope.told, end, took, took - child, scope.elements)
        if self._make_event is None:
            cell.wait(now - scope.start)
        cell.count(took, child)
        return took


def _between_ns(first: Any, last: Any) -> int:
    elapsed_ms = float(first.elapsed_time(last))
    if not math.isfinite(elapsed_ms) or elapsed_ms < 0:
        raise ToolError(
            "E_BRICKS_EVENT",
            f"Two device events are {elapsed_ms} ms apart.",
            "Give events that record time, all of one device.",
        )
    return round(elapsed_ms * 1e6)

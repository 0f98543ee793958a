"""Calls whose work runs on a device: each waits for it, or events on the device time them."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks import marks
from pytest_flamegate.bricks.marks import Scope
from pytest_flamegate.bricks.threads import end_out_of_order
from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    from pytest_flamegate.bricks.threads import ThreadClock


class SyncedScope(Scope):
    """A call that waits for the device before it begins and before it ends."""

    __slots__ = ("wait",)

    def __init__(self, wait: Callable[[], None]) -> None:
        wait()
        self.wait = wait

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait and end; the call is recorded even if waiting raises."""
        try:
            self.wait()
        finally:
            super().__exit__(kind, error, trace)


class EnqueuedScope(Scope):
    """A call whose time is known once the device was waited for.

    ``around`` is the call around it; ``opened`` and ``closed`` are device events.
    """

    __slots__ = ("around", "closed", "is_recursive", "opened", "queue")

    def __init__(self, queue: DeviceQueue, around: Scope | None) -> None:
        self.queue = queue
        self.around = around
        self.is_recursive = False
        self.opened = queue.record_event()
        self.closed: Any = None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Note that the call enqueues nothing more."""
        thread = marks._locator.current
        if thread.top is not self and not end_out_of_order(self, thread, error):
            return
        thread.top = self.parent
        name = self.log.name
        self.is_recursive = any(call.log.name is name for call in thread.iter_open())
        self.closed = self.queue.record_event()


class DeviceQueue:
    """The calls of each thread that were enqueued since the device was last waited for."""

    def __init__(
        self,
        synchronise: Callable[[], None],
        event: Callable[[], Any],
        clock: Callable[[], int],
    ) -> None:
        self._synchronise = synchronise
        self._make_event = event
        self._lock = RLock()
        self.pending: dict[ThreadClock, list[EnqueuedScope]] = {}
        # Times of events are moved onto the clock.
        self._base_event = self.record_event()
        self._base_ns = clock()

    def record_event(self) -> Any:
        """Enqueue an event, whose time is when the device has done all work enqueued before it."""
        event = self._make_event()
        event.record()
        return event

    def enqueue(self, thread: ThreadClock, scope: EnqueuedScope) -> None:
        """Hold a call that has begun until the device is waited for."""
        with self._lock:
            self.pending.setdefault(thread, []).append(scope)

    def finish(self) -> None:
        """Wait for the device and add the calls that ended."""
        with self._lock:
            self._synchronise()
            for thread in list(self.pending):
                self._settle(thread, self.pending.pop(thread))

    def _settle(self, thread: ThreadClock, pending: list[EnqueuedScope]) -> None:
        still_open = []
        # Reversed, so that calls within a call are added before it.
        for scope in reversed(pending):
            within_ns = scope.child
            if scope.closed is not None:
                within_ns = self._add(scope)
            elif thread.has_open(scope):
                still_open.append(scope)
                continue
            if scope.around is not None:
                scope.around.child += within_ns
        if still_open:
            self.pending[thread] = still_open[::-1]

    def _add(self, scope: EnqueuedScope) -> int:
        """Add a call to its log and return its inclusive time."""
        duration_ns = _elapsed_ns(scope.opened, scope.closed)
        # Events are exact to half a microsecond, so parts may add up to more than the whole.
        child_ns = min(scope.child, duration_ns)
        log = scope.log
        if scope.is_recursive:
            log = log.find_recursive_log()
        end_ns = self._base_ns + _elapsed_ns(self._base_event, scope.closed)
        log.add(scope, end_ns, duration_ns, child_ns)
        return duration_ns


def _elapsed_ns(first: Any, last: Any) -> int:
    elapsed_ms = float(first.elapsed_time(last))
    if not math.isfinite(elapsed_ms) or elapsed_ms < 0:
        raise ToolError("E_BRICKS_CLOCK", f"Two device events are {elapsed_ms} ms apart.")
    return round(elapsed_ms * 1e6)

"""Calls whose work runs on a device: when it is waited for, and how their time is found."""

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
    from pytest_flamegate.bricks.record import Provenance, Sync
    from pytest_flamegate.bricks.threads import CallLog, ThreadClock


class SyncedScope(Scope):
    """A call that waits for the device before it begins and before it ends."""

    __slots__ = ("wait",)
    wait: Callable[[], None]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait and end; the call is recorded even if waiting raises."""
        try:
            self.wait()
        finally:
            super().__exit__(kind, error, trace)


class EnqueuedScope(Scope):
    """A call whose time is known at a later sync.

    ``around`` is the call around it. ``opened`` and ``closed`` are device events, if there are
    any; ``gap_ns`` is the time to the next start in this thread, None until that is known.
    """

    __slots__ = ("around", "closed", "gap_ns", "has_ended", "is_recursive", "opened", "queue")
    around: Scope | None
    closed: Any
    gap_ns: int | None
    has_ended: bool
    is_recursive: bool
    opened: Any
    queue: DeviceQueue

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Note that the call enqueues nothing more."""
        thread = marks._locator.current
        if thread.top is not self and not end_out_of_order(self, thread, error):
            return
        thread.top = self.parent
        self.closed = self.queue.record_event()
        name = self.log.name
        self.is_recursive = any(call.log.name is name for call in thread.iter_open())
        self.has_ended = True


class DeviceQueue:
    """The calls of each thread that were enqueued since the last sync.

    Times are nanoseconds of ``clock``; those of device events are moved onto it.
    """

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
        self._layers: dict[ThreadClock, int] = {}
        self.pending: dict[ThreadClock, list[EnqueuedScope]] = {}
        synchronise()
        self._base_event = self.record_event()
        self._base_ns = clock()

    @property
    def provenance(self) -> Provenance:
        """How the times of calls are obtained."""
        if self._sync == "immediate":
            return "measured_wall"
        return "derived" if self._make_event is None else "measured_device_event"

    def record_event(self) -> Any:
        """Return an event recorded now, or None without events."""
        if self._make_event is None:
            return None
        event = self._make_event()
        event.record()
        return event

    def prepare_scope(self, thread: ThreadClock, log: CallLog) -> Scope:
        """Return the scope for a call that is about to begin; wait for the device if it is time."""
        if self._sync == "immediate":
            self._synchronise()
            synced = SyncedScope()
            synced.wait = self._synchronise
            return synced
        with self._lock:
            layer = log.key[1]
            if self._sync == "per_layer" and layer is not None:
                if self.pending.get(thread) and self._layers.get(thread, layer) != layer:
                    self.finish(thread)
                self._layers[thread] = layer
            scope = EnqueuedScope()
            scope.queue = self
            scope.around = thread.top
            scope.has_ended = False
            scope.gap_ns = None
            scope.opened = self.record_event()
            return scope

    def enqueue(self, thread: ThreadClock, scope: Scope) -> None:
        """Hold a call that has begun until the next sync."""
        if isinstance(scope, EnqueuedScope):
            with self._lock:
                self.pending.setdefault(thread, []).append(scope)

    def finish(self, thread: ThreadClock | None = None) -> None:
        """Wait for the device and add the calls that ended, of one thread or of all."""
        with self._lock:
            self._synchronise()
            now_ns = self._clock()
            for each in list(self.pending) if thread is None else [thread]:
                self._settle(each, self.pending.pop(each), now_ns)

    def _settle(self, thread: ThreadClock, pending: list[EnqueuedScope], now_ns: int) -> None:
        new = [scope for scope in pending if scope.gap_ns is None]
        ends_ns = [*(scope.start for scope in new[1:]), now_ns]
        for scope, end_ns in zip(new, ends_ns, strict=True):
            scope.gap_ns = end_ns - scope.start
        still_open = []
        # Reversed, so that calls within a call are added before it.
        for scope in reversed(pending):
            within_ns = scope.child
            if scope.has_ended:
                within_ns = self._add(scope, now_ns)
            elif thread.has_open(scope):
                still_open.append(scope)
                continue
            if scope.around is not None:
                scope.around.child += within_ns
        if still_open:
            self.pending[thread] = still_open[::-1]

    def _add(self, scope: EnqueuedScope, now_ns: int) -> int:
        """Add a call to its log and return its inclusive time."""
        if self._make_event is None:
            duration_ns = (scope.gap_ns or 0) + scope.child
            end_ns = scope.start + duration_ns
            child_ns = scope.child
        else:
            duration_ns = _elapsed_ns(scope.opened, scope.closed)
            end_ns = self._base_ns + _elapsed_ns(self._base_event, scope.closed)
            # Events are exact to half a microsecond, so parts may add up to more than the whole.
            child_ns = min(scope.child, duration_ns)
        log = scope.log
        if scope.is_recursive:
            log = log.find_recursive_log()
        log.elements += scope.elements
        if scope.extra is not None:
            log.bytes += scope.extra[0]
            log.flops += scope.extra[1]
            if log.buffer is not None:
                start_ns, self_ns = end_ns - duration_ns, duration_ns - child_ns
                log.buffer.append(log.key, scope.extra, start_ns, end_ns, self_ns, scope.elements)
        if self._make_event is None:
            log.add_latency(now_ns - scope.start)
        log.add(duration_ns, child_ns)
        return duration_ns


def _elapsed_ns(first: Any, last: Any) -> int:
    elapsed_ms = float(first.elapsed_time(last))
    if not math.isfinite(elapsed_ms) or elapsed_ms < 0:
        raise ToolError(
            "E_BRICKS_CLOCK",
            f"Two device events are {elapsed_ms} ms apart.",
            "Pass events that record time, all of the same device.",
        )
    return round(elapsed_ms * 1e6)

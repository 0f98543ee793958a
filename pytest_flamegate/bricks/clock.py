"""``BrickProfiler``: turns the marks on and returns what they recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heappop, heappush
from threading import Lock, RLock
from time import perf_counter_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from pytest_flamegate.bricks import marks, record
from pytest_flamegate.bricks.device import DeviceQueue, EnqueuedScope, SyncedScope
from pytest_flamegate.bricks.threads import (
    TaskLocator,
    ThreadClock,
    ThreadLocator,
    begin_scope,
    end_out_of_order,
    has_ended,
)
from pytest_flamegate.bricks.totals import CallBuffer, CallSums, check_counts
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Category, Phase, Provenance, Sync
    from pytest_flamegate.bricks.threads import BrickKey, Locator, Owner


_SWEEP_FROM = 64
"""Threads and tasks from which on a new one makes the recording look for those that ended."""


class BrickRecording:
    """The thread clocks of one recording.

    If ``reuses_clocks``, the sums of an ended thread or task are taken and its number goes to
    the next one that begins, so that there are as many numbers as ever ran side by side. That is
    off if a device may still have work of an ended thread.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        phase: Phase,
        buffer: CallBuffer | None,
        *,
        reuses_clocks: bool,
    ) -> None:
        self.categories: dict[str, Category] = dict(record.KNOWN_BRICKS)
        self._clock = clock
        self._phase: Phase = phase
        self._buffer = buffer
        self._lock = RLock()
        self._running: dict[Owner, ThreadClock] = {}
        self._free: list[int] = []
        self._sums: dict[BrickKey, CallSums] = {}
        self._threads: list[record.ThreadTotals] = []
        self._unended = 0
        self._reuses_clocks = reuses_clocks
        self._sweep_at = 0
        self._locator = ThreadLocator(self._make_clock)
        self._began_ns = clock()

    def set_locator(self, *, has_tasks: bool) -> None:
        """Have marks find the clock of their thread; of their task if asyncio may run some."""
        locator: Locator = self._locator
        if has_tasks:
            locator = TaskLocator(self._locator, self._running, self._make_clock)
        # In this order, so that a call that begins finds the clock in which it ends.
        marks._locator = locator
        marks._on = locator

    def enter_phase(self, phase: Phase) -> None:
        """Add the calls that begin from now on to ``phase``."""
        with self._lock:
            self._phase = phase
            for thread in self._running.values():
                thread.enter_phase(phase)

    def close(self) -> None:
        """Record nothing more: calls that are open now end silently."""
        with self._lock:
            for thread in self._running.values():
                thread.is_closed = True

    def declare_category(self, name: str, category: Category) -> None:
        """Set a brick's category. Raises ``E_BRICK_ARGUMENT`` if it is invalid or another."""
        if category not in record.CATEGORIES:
            raise UsageError(
                "E_BRICK_ARGUMENT",
                f"The brick {name!r} has the category {category!r}, which does not exist.",
                f"Pass one of {', '.join(record.CATEGORIES)}.",
            )
        known = self.categories.setdefault(record.resolve_alias(name), category)
        if known != category:
            raise UsageError(
                "E_BRICK_ARGUMENT",
                f"The brick {name!r} has the category {known!r}, and {category!r} elsewhere.",
                "Give it one category, or use two names. Known bricks have theirs already.",
            )
        # Also under the alias, which is what the next call looks up.
        self.categories[name] = category

    def take(self, sync: Sync, provenance: Provenance) -> record.Recorded:
        """Return the record up to now. ``ToolError`` ``E_BRICKS_CLOCK`` if the clock went back."""
        with self._lock:
            threads, unended = list(self._threads), self._unended
            sums: dict[BrickKey, CallSums] = {}
            _merge(sums, self._sums)
            for thread in self._running.values():
                unended += _add_thread(thread, threads, sums)
            calls = self._buffer.list_calls() if self._buffer is not None else ()
            # After the sums: other threads go on, and none may spend more than the wall time.
            wall_ns = self._clock() - self._began_ns
        busiest_ns = max((row.self_ns for row in threads), default=0)
        is_too_long = busiest_ns > wall_ns and provenance != "measured_device_event"
        if is_too_long or any(row.went_back for row in sums.values()):
            raise ToolError("E_BRICKS_CLOCK", "The clock went back while bricks were on.")
        ordered = sorted(sums, key=lambda key: (key[0], -1 if key[1] is None else key[1], key[2]))
        return record.Recorded(
            wall_ns=wall_ns,
            sync=sync,
            totals=tuple(
                sums[key].build_totals(*key, self.categories.get(key[0], "Other"), provenance)
                for key in ordered
            ),
            lanes=tuple(threads),
            calls=calls,
            unended=unended,
        )

    def _make_clock(self, owner: Owner, name: str) -> ThreadClock:
        with self._lock:
            if self._reuses_clocks and not _SWEEP_FROM < len(self._running) < self._sweep_at:
                self._sweep()
            if self._free:
                index = heappop(self._free)
            else:
                index = len(self._threads)
                valid = name.encode("utf-8", "backslashreplace").decode()[
                    : record.MAX_NAME_CHARACTERS
                ]
                self._threads.append(record.ThreadTotals(valid or "unnamed", 0, 0))
            thread = ThreadClock(name, index, self._phase, self._lock, self._buffer)
            self._running[owner] = thread
            return thread

    def _sweep(self) -> None:
        """Take the sums of ended threads and tasks; the lowest number is reused first."""
        for owner in [owner for owner in self._running if has_ended(owner)]:
            thread = self._running.pop(owner)
            thread.is_closed = True
            heappush(self._free, thread.index)
            self._unended += _add_thread(thread, self._threads, self._sums)
        self._sweep_at = 2 * len(self._running)


def _add_thread(
    thread: ThreadClock, threads: list[record.ThreadTotals], sums: dict[BrickKey, CallSums]
) -> int:
    """Add the sums of a thread to both collections; return its number of unended calls."""
    rows = {key: row for key, row in thread.compute_sums() if row.calls or row.went_back}
    before = threads[thread.index]
    threads[thread.index] = record.ThreadTotals(
        before.name,
        before.self_ns + sum(row.self_ns for row in rows.values()),
        before.calls + sum(row.calls for row in rows.values()),
    )
    _merge(sums, rows)
    return thread.unended + sum(1 for _ in thread.iter_open())


def _merge(sums: dict[BrickKey, CallSums], more: dict[BrickKey, CallSums]) -> None:
    for key, row in more.items():
        sums.setdefault(key, CallSums()).merge(row)


_switching = Lock()
# For calls that outlive their profiler: a clock without open calls.
_CLOSED = SimpleNamespace(current=ThreadClock("", -1, "", RLock(), None))


class BrickProfiler:
    """Times bricks while it is entered; one profiler at a time in a process.

    ::

        with BrickProfiler() as profiler:
            engine.generate("2+2=", 10)
        recorded = profiler.recorded()

    Args:
        sync: When the device is waited for: ``immediate`` (at each brick), ``deferred`` (once, at
            the end) or ``none``.
        synchronise: Waits for the device, like ``torch.cuda.synchronize``; needed unless ``sync``
            is ``none``.
        event: Makes a device event with ``record()`` and ``elapsed_time(other)`` in milliseconds;
            needed for ``deferred``.
        keep_calls: Number of calls to keep one by one, the last ones.
        clock: Returns nanoseconds.

    Raises:
        UsageError: ``E_BRICK_ARGUMENT`` for an invalid combination; ``E_BRICKS_STATE`` if another
            profiler is on when this one is entered.
    """

    def __init__(
        self,
        *,
        sync: Sync = "none",
        synchronise: Callable[[], None] | None = None,
        event: Callable[[], Any] | None = None,
        keep_calls: int = 0,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        needed = {"none": (), "immediate": (synchronise,), "deferred": (synchronise, event)}
        if sync not in needed or None in needed[sync]:
            raise UsageError(
                "E_BRICK_ARGUMENT",
                f"The sync mode {sync!r} does not exist, or lacks an argument.",
                'Pass "immediate" with synchronise=, "deferred" with that and event=, or "none".',
            )
        self._sync: Sync = sync
        self._synchronise = synchronise
        self._event = event
        self._keep_calls = keep_calls
        self._clock = clock
        self._phase: Phase = ""
        self._buffer: CallBuffer | None = None
        self._queue: DeviceQueue | None = None
        self._recording: BrickRecording | None = None
        self._recorded: record.Recorded | None = None
        self._error: FlamegateError | None = None

    @property
    def phase(self) -> Phase:
        """The part of a generation that calls which begin now belong to."""
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        if self._recording is not None:
            self._recording.enter_phase(phase)

    def __enter__(self) -> Self:
        """Turn the marks of this process on."""
        with _switching:
            if marks._on is not None:
                raise UsageError("E_BRICKS_STATE", "Another BrickProfiler or TileRecorder is on.")
            self._recorded = self._error = None
            self._buffer = CallBuffer(self._keep_calls) if self._keep_calls > 0 else None
            if self._synchronise is not None and self._sync != "none":
                self._synchronise()
                if self._event is not None and self._sync == "deferred":
                    self._queue = DeviceQueue(self._synchronise, self._event, self._clock)
            self._recording = BrickRecording(
                self._clock, self._phase, self._buffer, reuses_clocks=self._queue is None
            )
            sys.meta_path.insert(0, self)
            marks._begin = self._begin
            marks._end_out_of_order = end_out_of_order
            marks._declared = self._recording.categories
            marks._always = self._sync != "none" or self._buffer is not None
            marks._clock = self._clock
            self._recording.set_locator(has_tasks="asyncio" in sys.modules)
        return self

    def __exit__(self, *raised: object) -> None:
        """Turn the marks off and wait for the device; open calls are counted as unended."""
        with _switching:
            recording = self._recording
            assert recording is not None
            marks._on = None
            try:
                self._recorded = self._take(recording)
            except FlamegateError as error:
                # The engine did its work; recorded() raises this for those who want figures.
                self._error = error
            finally:
                marks._locator = _CLOSED
                sys.meta_path.remove(self)
                recording.close()
                self._recording = self._queue = None

    def recorded(self) -> record.Recorded:
        """Return the record; while on, the record so far, after waiting for the device.

        Raises ``E_BRICKS_STATE`` if the profiler was never on, ``E_BRICK_ARGUMENT`` if counts add
        up to more than 63 bits, ``E_BRICKS_CLOCK`` if the clock or device events are wrong.
        """
        if self._recording is not None:
            return self._take(self._recording)
        if self._error is not None:
            raise self._error
        if self._recorded is None:
            raise UsageError("E_BRICKS_STATE", "This BrickProfiler was never on.")
        return self._recorded

    def find_spec(self, name: str, *_: object) -> None:
        """Notice, as an import finder that finds nothing, that asyncio is about to be imported."""
        if name == "asyncio" and self._recording is not None:
            self._recording.set_locator(has_tasks=True)

    def _begin(
        self,
        name: str,
        elements: int,
        layer: int | None,
        size: int,
        flops: int,
        category: Category | None,
        kernel: str,
    ) -> marks.Scope | marks.Off:
        """Begin a call with any arguments, as ``marks.brick`` does with the usual ones."""
        recording = self._recording
        if recording is None:
            return marks.OFF
        check_counts(name, elements, size, flops)
        if kernel != "" and not record.is_valid_name(kernel):
            raise UsageError(
                "E_BRICK_ARGUMENT",
                f"The kernel of the brick {name!r} is not a text of at most "
                f"{record.MAX_NAME_CHARACTERS} characters.",
            )
        thread = marks._locator.current
        try:
            log = thread.logs[name][layer]
        except (KeyError, TypeError):
            log = thread.find_log(name, layer)
        if category is not None:
            recording.declare_category(name, category)
        extra: tuple[Any, ...] | None = (size, flops) if size or flops else None
        if self._buffer is not None:
            around = thread.top.extra if thread.top is not None else None
            parent = around[3] if around else 0
            extra = (size, flops, kernel, next(self._buffer.serials), parent)
        if self._queue is not None:
            enqueued = EnqueuedScope(self._queue, thread.top)
            begin_scope(enqueued, thread, log, self._clock, elements, extra)
            self._queue.enqueue(thread, enqueued)
            return enqueued
        scope = marks.Scope()
        if self._sync == "immediate" and self._synchronise is not None:
            scope = SyncedScope(self._synchronise)
        return begin_scope(scope, thread, log, self._clock, elements, extra)

    def _take(self, recording: BrickRecording) -> record.Recorded:
        provenance: Provenance = "measured_wall"
        if self._queue is not None:
            self._queue.finish()
            provenance = "measured_device_event"
        return recording.take(self._sync, provenance)

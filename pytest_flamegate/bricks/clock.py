"""``BrickProfiler``: turns the marks on, and says what they recorded."""

from __future__ import annotations

import math
import sys
from heapq import heappop, heappush
from threading import Lock, RLock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from pytest_flamegate.bricks import marks, threads
from pytest_flamegate.bricks.marks import Scope
from pytest_flamegate.bricks.record import MAX_NAME_CHARACTERS, Recorded, ThreadTotals
from pytest_flamegate.bricks.threads import (
    Categories,
    Figures,
    Kept,
    LaneClock,
    Nowhere,
    Tasks,
    Threads,
    ended,
)
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.record import Category, Phase, Provenance, Sync
    from pytest_flamegate.bricks.threads import Cell, Key, Owner


_FEW = 64
"""So many threads and tasks are looked through whenever one more begins."""


class Recording:
    """The lanes of a run.

    With ``early`` that of an ended thread or task is summed up, and gone on with by the next one
    that begins: there are as many as ever ran side by side. A device may have work of it left.
    """

    def __init__(
        self, clock: Callable[[], int], phase: Phase, kept: Kept | None, early: bool
    ) -> None:
        self.categories = Categories()
        self._clock = clock
        self._phase: Phase = phase
        self._kept = kept
        self._lock = RLock()
        self._live: dict[Owner, LaneClock] = {}
        self._free: list[int] = []
        self._figures: dict[Key, Figures] = {}
        self._rows: list[ThreadTotals] = []
        self._unended = 0
        self._early = early
        self._sweep_at = 0
        self._threads = Threads(self._make)
        self._began_ns = clock()

    def here(self, tasks: bool) -> Threads | Tasks:
        """Return what finds the lane of who asks; ``tasks`` where asyncio may run some."""
        return Tasks(self._threads, self._live, self._make) if tasks else self._threads

    def lanes(self) -> list[LaneClock]:
        """Return what is not yet summed up, by thread and task."""
        with self._lock:
            return list(self._live.values())

    def enter(self, phase: Phase) -> None:
        """Count the calls that begin from now on as of ``phase``."""
        with self._lock:
            self._phase = phase
            for lane in self._live.values():
                lane.enter(phase)

    def close(self) -> None:
        """Count nothing more: what is open now ends silently."""
        for lane in self.lanes():
            lane.closed = True

    def taken(self, sync: Sync, provenance: Provenance) -> Recorded:
        """Return what was recorded until now. ``ToolError`` ``E_BRICKS_CLOCK``."""
        with self._lock:
            rows, unended = list(self._rows), self._unended
            sums: dict[Key, Figures] = {}
            _add(sums, self._figures)
            for lane in self.lanes():
                row, figures, open_calls = _summed(lane)
                rows[lane.index] = _joined(rows[lane.index], row)
                unended += open_calls
                _add(sums, figures)
            kept = self._kept.calls() if self._kept is not None else ()
            # After the sums: other threads go on meanwhile, and nobody spends more than the wall.
            wall_ns = self._clock() - self._began_ns
        busiest_ns = max((row.self_ns for row in rows), default=0)
        by_events = provenance == "measured_device_event"
        if any(each.backwards for each in sums.values()) or (
            busiest_ns > wall_ns and not by_events
        ):
            raise went_back()
        return Recorded(
            wall_ns=wall_ns,
            sync=sync,
            totals=tuple(
                sums[key].totals(*key, self.categories.of(key[0]), provenance)
                for key in sorted(sums, key=_order)
            ),
            lanes=tuple(rows),
            calls=kept,
            unended=unended,
        )

    def _make(self, owner: Owner, name: str) -> LaneClock:
        with self._lock:
            if self._early and not _FEW < len(self._live) < self._sweep_at:
                self._sweep()
            if self._free:
                index = heappop(self._free)
            else:
                index = len(self._rows)
                told = name.encode("utf-8", "backslashreplace").decode()[:MAX_NAME_CHARACTERS]
                self._rows.append(ThreadTotals(told or "unnamed", 0, 0))
            lane = LaneClock(name, index, self._phase, self._lock, self._kept)
            self._live[owner] = lane
            return lane

    def _sweep(self) -> None:
        """Free the lanes of threads and tasks that mark nothing more; the first is taken first."""
        for owner in [each for each in self._live if ended(each)]:
            lane = self._live.pop(owner)
            lane.closed = True
            heappush(self._free, lane.index)
            row, figures, open_calls = _summed(lane)
            self._rows[lane.index] = _joined(self._rows[lane.index], row)
            self._unended += open_calls
            _add(self._figures, figures)
        self._sweep_at = 2 * len(self._live)


def went_back() -> ToolError:
    """Return the refusal of figures by a clock that goes back."""
    return ToolError(
        "E_BRICKS_CLOCK",
        "The clock went back while bricks were on.",
        "Run it again, with a clock that never goes back.",
    )


def _summed(lane: LaneClock) -> tuple[ThreadTotals, dict[Key, Figures], int]:
    figures = {key: each for key, each in lane.figures() if each.calls or each.backwards}
    self_ns = sum(each.self_ns for each in figures.values())
    calls = sum(each.calls for each in figures.values())
    return (
        ThreadTotals(lane.name, self_ns, calls),
        figures,
        lane.unended + sum(1 for _ in lane.opened()),
    )


def _joined(row: ThreadTotals, more: ThreadTotals) -> ThreadTotals:
    return ThreadTotals(row.name, row.self_ns + more.self_ns, row.calls + more.calls)


def _add(sums: dict[Key, Figures], figures: dict[Key, Figures]) -> None:
    for key, each in figures.items():
        sums.setdefault(key, Figures()).merge(each)


def _order(key: Key) -> tuple[str, int, str]:
    name, layer, phase = key
    return name, -1 if layer is None else layer, phase


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
        if lane.top is not self and not threads.end(self, lane, error):
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
            cell.bytes += scope.told[0]
            cell.flops += scope.told[1]
            if cell.kept is not None:
                cell.kept.keep(cell.key, scope.told, end - took, end, took - child, scope.elements)
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


_turning = Lock()
_NOWHERE = Nowhere()


class BrickProfiler:
    """Clocks bricks while it is entered, one profiler at a time in a process.

    ``sync`` says when the device is waited for, with ``synchronise`` (``torch.cuda.synchronize``),
    which all but ``none`` need; ``event`` makes device events for ``deferred`` and ``per_layer``:
    objects with ``record()`` and ``elapsed_time(other)`` in milliseconds. The last ``keep_calls``
    calls are kept one by one, 64 bytes each. ``clock`` gives nanoseconds. ``UsageError``:
    ``E_BRICKS_ON``, ``E_BRICKS_SYNC``.
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
        if sync not in ("immediate", "per_layer", "deferred", "none"):
            raise UsageError(
                "E_BRICKS_SYNC",
                f"There is no sync mode {sync!r}.",
                "Take immediate, per_layer, deferred or none.",
            )
        if sync != "none" and synchronise is None:
            raise UsageError(
                "E_BRICKS_SYNC",
                f"The sync mode {sync!r} has nothing that waits for the device.",
                "Give synchronise=torch.cuda.synchronize, or take sync='none'.",
            )
        self._sync: Sync = sync
        self._synchronise = synchronise
        self._event = event
        self._kept = Kept(keep_calls) if keep_calls > 0 else None
        self._steady = _Steady(clock) if clock is not perf_counter_ns else None
        self._clock = self._steady or clock
        self._phase: Phase = ""
        self._device: Device | None = None
        self._recording: Recording | None = None
        self._recorded: Recorded | None = None
        self._refusal: FlamegateError | None = None

    @property
    def phase(self) -> Phase:
        """The part of a generation that the calls which begin now belong to."""
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        if self._recording is not None:
            self._recording.enter(phase)

    def __enter__(self) -> Self:
        """Turn the marks of this process on."""
        with _turning:
            if marks._on is not None:
                raise UsageError(
                    "E_BRICKS_ON",
                    "Bricks are being clocked already.",
                    "End the one profiler before the next begins.",
                )
            self._recorded = self._refusal = None
            if self._synchronise is not None and self._sync != "none":
                self._device = Device(self._sync, self._synchronise, self._event, self._clock)
            sys.meta_path.insert(0, self)
            self._begin_recording()
        return self

    def __exit__(self, *raised: object) -> None:
        """Turn the marks off, wait for the device, and count the calls still open as unended."""
        with _turning:
            recording = self._on()
            marks._on = None
            try:
                self._recorded = self._taken(recording)
            except FlamegateError as refusal:
                # The engine did its work: it is figures that are refused, to who asks for them.
                self._refusal = refusal
            finally:
                marks._here = _NOWHERE
                sys.meta_path.remove(self)
                recording.close()
                self._recording = self._device = None

    def reset(self) -> None:
        """Forget all that was recorded so far; calls that are open now are forgotten too."""
        with _turning:
            self._on().close()
            if self._device is not None:
                self._device.forget()
            self._begin_recording()

    def recorded(self) -> Recorded:
        """Return what was recorded: so far while on, after having waited for the device.

        ``UsageError`` ``E_BRICKS_OFF`` where it never was on, ``ToolError`` ``E_BRICKS_CLOCK``
        where the clock went back, ``E_BRICKS_EVENT`` where device events make no sense.
        """
        if self._recording is not None:
            return self._taken(self._recording)
        if self._refusal is not None:
            raise self._refusal
        if self._recorded is None:
            raise UsageError(
                "E_BRICKS_OFF", "No brick was clocked.", "Run the engine within the profiler."
            )
        return self._recorded

    def find_spec(self, name: str, *_: object) -> None:
        """See to it, as an import finder that finds nothing, that tasks have their own lanes."""
        if name == "asyncio" and self._recording is not None:
            self._find_lanes(self._recording, tasks=True)

    def _begin_recording(self) -> None:
        if self._kept is not None:
            self._kept.clear()
        early = self._device is None or self._sync == "immediate"
        self._recording = Recording(self._clock, self._phase, self._kept, early)
        marks._begin = self._begin
        marks._unusual = threads.end
        marks._declared = self._recording.categories.declared
        marks._always = self._device is not None or self._kept is not None
        marks._clock = self._clock
        self._find_lanes(self._recording, tasks="asyncio" in sys.modules)

    def _find_lanes(self, recording: Recording, tasks: bool) -> None:
        # In this order: a call that begins finds the lane in which it ends.
        marks._here = recording.here(tasks)
        marks._on = marks._here

    def _begin(
        self,
        name: str,
        elements: int,
        layer: int | None,
        size: int,
        flops: int,
        category: Category | None,
        kernel: str,
    ) -> Scope | marks.Off:
        """Begin a call as ``marks.brick`` does, with all that it tells."""
        recording = self._recording
        if recording is None:
            return marks.OFF
        threads.check_counts(name, elements, size, flops)
        threads.check_kernel(name, kernel)
        lane = marks._here.lane
        try:
            cell = lane.cells[name][layer]
        except (KeyError, TypeError):
            cell = lane.cell(name, layer)
        if category is not None:
            recording.categories.declare(name, category)
        more = threads.told(lane, size, flops, kernel, self._kept)
        if self._device is None:
            return threads.begin(marks.Scope(), lane, cell, self._clock, elements, more)
        scope = self._device.scope(lane, cell)
        threads.begin(scope, lane, cell, self._clock, elements, more)
        self._device.enqueue(lane, scope)
        return scope

    def _on(self) -> Recording:
        if self._recording is None:
            raise UsageError(
                "E_BRICKS_OFF", "No brick is being clocked.", "Do this within the profiler."
            )
        return self._recording

    def _taken(self, recording: Recording) -> Recorded:
        provenance: Provenance = "measured_wall"
        if self._device is not None:
            self._device.finish()
            provenance = self._device.provenance
        if self._steady is not None and self._steady.went_back:
            raise went_back()
        return recording.taken(self._sync, provenance)


class _Steady:
    """A clock that was given: never back, and whether it tried to."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last: int | None = None
        self.went_back = False

    def __call__(self) -> int:
        with self._lock:
            now = self._clock()
            if self._last is not None and now < self._last:
                self.went_back = True
                return self._last
            self._last = now
            return now

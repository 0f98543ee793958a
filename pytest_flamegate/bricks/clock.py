"""``BrickProfiler``: turns the marks on, and says what they recorded."""

from __future__ import annotations

import sys
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from pytest_flamegate.bricks import marks, unusual
from pytest_flamegate.bricks.kept import Kept
from pytest_flamegate.bricks.lanes import Nowhere
from pytest_flamegate.bricks.recording import Recording, went_back
from pytest_flamegate.bricks.sync import Device
from pytest_flamegate.errors import FlamegateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.marks import Scope
    from pytest_flamegate.bricks.names import Category
    from pytest_flamegate.bricks.record import Phase, Provenance, Recorded, Sync

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
        marks._unusual = unusual.end
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
        unusual.check_counts(name, elements, size, flops)
        unusual.check_kernel(name, kernel)
        lane = marks._here.lane
        try:
            cell = lane.cells[name][layer]
        except (KeyError, TypeError):
            cell = lane.cell(name, layer)
        if category is not None:
            recording.categories.declare(name, category)
        more = unusual.told(lane, size, flops, kernel, self._kept)
        if self._device is None:
            return unusual.begin(marks.Scope(), lane, cell, self._clock, elements, more)
        scope = self._device.scope(lane, cell)
        unusual.begin(scope, lane, cell, self._clock, elements, more)
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

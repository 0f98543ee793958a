"""All that is clocked from one turning on, or forgetting, to the next: lanes and their sums."""

from __future__ import annotations

from heapq import heappop, heappush
from threading import RLock
from typing import TYPE_CHECKING

from pytest_flamegate.bricks.cells import Figures
from pytest_flamegate.bricks.lanes import LaneClock, Tasks, Threads, ended
from pytest_flamegate.bricks.names import LONGEST_NAME
from pytest_flamegate.bricks.record import Lane, Recorded
from pytest_flamegate.bricks.unusual import Categories
from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.bricks.kept import Kept
    from pytest_flamegate.bricks.lanes import Key, Owner
    from pytest_flamegate.bricks.record import Phase, Provenance, Sync

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
        self._rows: list[Lane] = []
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
                told = name.encode("utf-8", "backslashreplace").decode()[:LONGEST_NAME]
                self._rows.append(Lane(told or "unnamed", 0, 0))
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


def _summed(lane: LaneClock) -> tuple[Lane, dict[Key, Figures], int]:
    figures = {key: each for key, each in lane.figures() if each.calls or each.backwards}
    self_ns = sum(each.self_ns for each in figures.values())
    calls = sum(each.calls for each in figures.values())
    return Lane(lane.name, self_ns, calls), figures, lane.unended + sum(1 for _ in lane.opened())


def _joined(row: Lane, more: Lane) -> Lane:
    return Lane(row.name, row.self_ns + more.self_ns, row.calls + more.calls)


def _add(sums: dict[Key, Figures], figures: dict[Key, Figures]) -> None:
    for key, each in figures.items():
        sums.setdefault(key, Figures()).merge(each)


def _order(key: Key) -> tuple[str, int, str]:
    name, layer, phase = key
    return name, -1 if layer is None else layer, phase

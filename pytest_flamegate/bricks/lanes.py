"""Lanes: each thread, and each asyncio task, clocks its bricks for itself."""

from __future__ import annotations

import operator
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_flamegate.bricks.cells import Cell, Figures
from pytest_flamegate.bricks.names import LONGEST_NAME, canonical, is_name
from pytest_flamegate.bricks.record import MOST
from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Iterator, Mapping
    from threading import RLock

    from pytest_flamegate.bricks.kept import Kept
    from pytest_flamegate.bricks.marks import Scope
    from pytest_flamegate.bricks.record import Phase

Key: TypeAlias = "tuple[str, int | None, Phase]"
Owner: TypeAlias = "threading.Thread | Task[Any]"


class LaneClock:
    """One thread's or task's calls: ``top`` is the innermost open one, ``cells`` where to count.

    ``cells`` is that of the current phase. ``unended`` counts calls that were open when one
    around them ended; ``closed`` once its figures were taken for good or forgotten.
    """

    __slots__ = (
        "_kept",
        "_lock",
        "_phase",
        "_phases",
        "cells",
        "closed",
        "index",
        "name",
        "top",
        "unended",
    )

    def __init__(self, name: str, index: int, phase: Phase, lock: RLock, kept: Kept | None) -> None:
        self.name = name
        self.index = index
        self.top: Scope | None = None
        self.unended = 0
        self.closed = False
        self._lock = lock
        self._kept = kept
        self._phases: dict[Phase, dict[str, dict[int | None, Cell]]] = {}
        self.enter(phase)

    def enter(self, phase: Phase) -> None:
        """Count the calls that begin from now on as of ``phase``."""
        self._phase = phase
        self.cells = self._phases.setdefault(phase, {})

    def cell(self, name: str, layer: int | None) -> Cell:
        """Return where to count calls of a brick, by any of its names.

        ``UsageError`` ``E_BRICK_NAME`` or ``E_BRICK_LAYER``.
        """
        if not is_name(name):
            raise UsageError(
                "E_BRICK_NAME",
                f"{str(name)[:LONGEST_NAME]!a} is no name of a brick.",
                f"Give a text of 1 to {LONGEST_NAME} characters.",
            )
        try:
            number = None if layer is None else operator.index(layer)
        except TypeError:
            number = -1
        if number is not None and not 0 <= number <= MOST:
            raise UsageError(
                "E_BRICK_LAYER",
                f"The brick {name!r} is in layer {layer!r}, which is no whole number from 0 up.",
                "Number layers with integers, or leave the layer out.",
            )
        # One string object for each name: whether two calls are of one brick is asked by `is`.
        known = sys.intern(str(canonical(name)))
        with self._lock:
            cells = self.cells.setdefault(known, {})
            if number not in cells:
                cells[number] = Cell(known, number, self._phase, self._lock, self._kept, self)
            self.cells[name] = cells
            return cells[number]

    def opened(self) -> Iterator[Scope]:
        """Yield the calls that are open, the innermost first."""
        scope = self.top
        while scope is not None:
            yield scope
            scope = scope.parent

    def holds(self, scope: Scope) -> bool:
        """Say whether a call is open here."""
        return any(each is scope for each in self.opened())

    def figures(self) -> Iterator[tuple[Key, Figures]]:
        """Yield the figures of each brick, layer and phase; under the lock."""
        for phase, names in self._phases.items():
            for name, cells in names.items():
                if canonical(name) == name:
                    for layer, cell in cells.items():
                        yield (name, layer, phase), cell.figures()


class Threads(threading.local):
    """The lane of the thread that asks: made when it first asks."""

    lane: LaneClock

    def __init__(self, make: Callable[[Owner, str], LaneClock]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> LaneClock:
        # Called for what this thread has not: its lane, once.
        if name != "lane":
            raise AttributeError(name)
        thread = threading.current_thread()
        self.lane = self._make(thread, thread.name)
        return self.lane


class Tasks:
    """The lane of the asyncio task that asks, or of the thread where no task runs.

    ``lanes`` are those that ``make`` made and that still run.
    """

    def __init__(
        self,
        threads: Threads,
        lanes: Mapping[Owner, LaneClock],
        make: Callable[[Owner, str], LaneClock],
    ) -> None:
        self._loop: Callable[[], AbstractEventLoop | None] | None = None
        self._threads = threads
        self._make = make
        self._lanes = lanes

    @property
    def lane(self) -> LaneClock:
        """The lane of who asks: made when it first asks."""
        if self._loop is None:
            # Not before the engine's own import of it has ended: it may be what made this.
            from asyncio import current_task, events

            self._task = current_task
            self._loop = events._get_running_loop
        loop = self._loop()
        task = None if loop is None else self._task(loop)
        if task is None:
            return self._threads.lane
        try:
            return self._lanes[task]
        except KeyError:
            name = f"{threading.current_thread().name}/{task.get_name()}"
            return self._make(task, name)


class Nowhere:
    """Where calls end that outlived their profiler: no call is open here."""

    def __init__(self) -> None:
        self.lane = LaneClock("", -1, "", threading.RLock(), None)


def ended(owner: Owner) -> bool:
    """Return whether a thread or task will mark nothing more."""
    return not owner.is_alive() if isinstance(owner, threading.Thread) else owner.done()

"""Lanes: each thread, and each asyncio task, clocks its bricks for itself."""

from __future__ import annotations

import operator
import sys
import threading
from array import array
from collections import Counter
from itertools import count
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pytest_flamegate.bricks.marks import FOLD_AT, Scope
from pytest_flamegate.bricks.record import (
    CATEGORIES,
    KNOWN_BRICKS,
    MAX_COUNT,
    MAX_NAME_CHARACTERS,
    BrickCall,
    BrickTotals,
    find_bucket,
    is_valid_name,
    resolve_alias,
)
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Iterator, Mapping
    from threading import RLock

    from numpy.typing import NDArray

    from pytest_flamegate.bricks.record import Category, Phase, Provenance


if TYPE_CHECKING:
    KeptKey = tuple[str, int | None, Phase, int]

# Serial number, its parent's, start, end, self time, elements, bytes, key, kernel.
_ROW = Struct("=qqqqqqqII")


class Kept:
    """The last ``size`` calls to end, of all lanes."""

    def __init__(self, size: int) -> None:
        self.serials = count(1)
        self._size = size
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Forget the calls."""
        with self._lock:
            self._rows = bytearray()
            self._calls = 0
            self._keys: dict[KeptKey, int] = {}
            self._kernels: dict[str, int] = {}

    def keep(
        self,
        key: KeptKey,
        told: tuple[Any, ...],
        start_ns: int,
        end_ns: int,
        self_ns: int,
        elements: int,
    ) -> None:
        """Keep a call: of which brick, layer, phase and lane it is, and all that it told."""
        size, _, kernel, serial, parent = told
        with self._lock:
            row = _ROW.pack(
                serial,
                parent,
                start_ns,
                end_ns,
                self_ns,
                min(elements, MAX_COUNT),
                min(size, MAX_COUNT),
                self._keys.setdefault(key, len(self._keys)),
                self._kernels.setdefault(kernel, len(self._kernels)),
            )
            place = self._calls % self._size * _ROW.size
            self._rows[place : place + _ROW.size] = row
            self._calls += 1

    def calls(self) -> tuple[BrickCall, ...]:
        """Return the calls in the order in which they began.

        The parent of a call whose own parent is not among them is None.
        """
        with self._lock:
            rows = sorted(_ROW.iter_unpack(self._rows))
            keys, kernels = list(self._keys), list(self._kernels)
        index = {row[0]: number for number, row in enumerate(rows)}
        return tuple(_call(row, keys[row[7]], kernels[row[8]], index.get(row[1])) for row in rows)


def _call(row: tuple[int, ...], key: KeptKey, kernel: str, parent: int | None) -> BrickCall:
    name, layer, phase, lane = key
    _, _, start, end, self_ns, elements, size, *_ = row
    return BrickCall(
        name=name,
        start_ns=start,
        end_ns=end,
        self_ns=self_ns,
        layer=layer,
        phase=phase,
        lane=lane,
        parent=parent,
        elements=elements,
        bytes=size,
        kernel=kernel,
    )


class Categories:
    """The category of each brick: a known one's own, another's as it was declared."""

    def __init__(self) -> None:
        self.declared: dict[str, Category] = dict(KNOWN_BRICKS)

    def declare(self, name: str, category: Category) -> None:
        """Note the category of a brick; ``UsageError`` ``E_BRICK_CATEGORY``."""
        if category not in CATEGORIES:
            raise UsageError(
                "E_BRICK_CATEGORY",
                f"The brick {name!r} has the category {category!r}, which does not exist.",
                f"Take one of {', '.join(CATEGORIES)}.",
            )
        known = self.declared.setdefault(resolve_alias(name), category)
        if known != category:
            raise UsageError(
                "E_BRICK_CATEGORY",
                f"The brick {name!r} has the category {known!r}, and {category!r} elsewhere.",
                "Give it one category, or two names.",
            )
        # By its other name too, which is asked for at the next call.
        self.declared[name] = category

    def of(self, name: str) -> Category:
        """Return the category of a brick; ``Other`` where none was declared."""
        return self.declared.get(name, "Other")


def check_counts(name: str, elements: int, size: int, flops: int) -> None:
    """Raise ``UsageError`` ``E_BRICK_COUNT`` unless all counts can be."""
    try:
        counts = [operator.index(each) for each in (elements, size, flops)]
    except TypeError:
        raise uncounted(name) from None
    if min(counts) < 0 or max(counts) > MAX_COUNT:
        raise uncounted(name)


def uncounted(name: str) -> UsageError:
    """Return the refusal of a count that is none."""
    return UsageError(
        "E_BRICK_COUNT",
        f"The brick {name!r} told a count that is no whole number from 0 to 2**63 - 1.",
        "Give elements, bytes and flops as integers, as what they are.",
    )


def check_kernel(name: str, kernel: str) -> None:
    """Raise ``UsageError`` ``E_BRICK_KERNEL`` unless ``kernel`` can be kept."""
    if kernel != "" and not is_valid_name(kernel):
        raise UsageError(
            "E_BRICK_KERNEL",
            f"The brick {name!r} names a kernel that is no text of at most {MAX_NAME_CHARACTERS} "
            "characters.",
            "Give the kernel's name and launch as a short text, or leave it out.",
        )


def told(
    lane: LaneClock, size: int, flops: int, kernel: str, kept: Kept | None
) -> tuple[Any, ...] | None:
    """Return what a call says beyond its elements, as ``Scope.told``."""
    if kept is None:
        return (size, flops) if size or flops else None
    within = lane.top.told if lane.top is not None else None
    return size, flops, kernel, next(kept.serials), within[3] if within else 0


def begin(
    scope: Scope,
    lane: LaneClock,
    cell: Cell,
    clock: Callable[[], int],
    elements: int,
    more: tuple[Any, ...] | None,
) -> Scope:
    """Begin a call as ``brick`` does, and return it."""
    scope.cell = cell
    scope.elements = elements
    scope.told = more
    scope.child = 0
    scope.parent = lane.top
    lane.top = scope
    scope.start = clock()
    return scope


# The parent of calls that were open when one around them ended.
_ABANDONED = Scope()


def end(scope: Scope, lane: LaneClock, error: object) -> bool:
    """Say whether a call that is not the innermost of ``lane``, where it ends, counts.

    It does where it is open in this lane: then the calls open within it never ended, and stand
    in no figure, and those that ended within them were within this one. Else ``UsageError``
    ``E_BRICK_LANE``, ``E_BRICK_ORDER`` or ``E_BRICK_ENDED``, unless the engine itself raised.
    """
    within: list[Scope] = []
    at = lane.top
    while at is not None and at is not scope:
        within.append(at)
        at = at.parent
    if at is None:
        if scope.cell.lane.closed or error is not None:
            return False
        raise _refusal(scope, lane)
    for each in within:
        scope.child += each.child
        each.child = 0
        each.parent = _ABANDONED
    lane.unended += len(within)
    lane.top = scope
    return True


def _refusal(scope: Scope, lane: LaneClock) -> UsageError:
    name = scope.cell.name
    if scope.parent is _ABANDONED:
        return UsageError(
            "E_BRICK_ORDER",
            f"The brick {name!r} ended after the one around it.",
            "End what began last first; do not leave a generator while a brick in it is open.",
        )
    if scope.cell.lane is not lane and scope.cell.lane.holds(scope):
        return UsageError(
            "E_BRICK_LANE",
            f"The brick {name!r} began in {scope.cell.lane.name!r} and ended in {lane.name!r}.",
            "End a brick in the thread and task in which it began.",
        )
    return UsageError(
        "E_BRICK_ENDED",
        f"The brick {name!r} was ended twice.",
        "Call brick() or start() for each call, and end it once.",
    )


_BELOW = 52 - 6


class Figures:
    """Sums over calls. Times in nanoseconds; ``durations`` counts calls by bucket.

    ``backwards`` once a call took less than no time: the clock went back.
    """

    __slots__ = (
        "backwards",
        "bytes",
        "calls",
        "durations",
        "elements",
        "flops",
        "latency_ns",
        "max_ns",
        "min_ns",
        "self_ns",
        "total_ns",
    )

    def __init__(self) -> None:
        self.calls = self.total_ns = self.self_ns = self.max_ns = 0
        self.elements = self.bytes = self.flops = self.latency_ns = 0
        self.backwards = False
        self.min_ns: int | None = None
        self.durations: Counter[int] = Counter()

    def add(
        self, took_ns: NDArray[np.int64], child_ns: int, least_self_ns: int, again: bool
    ) -> None:
        """Add calls by their inclusive times; ``again`` where they ran within their own brick."""
        least = int(took_ns.min())
        if least < 0 or least_self_ns < 0:
            self.backwards = True
            return
        total = int(took_ns.sum())
        self.calls += len(took_ns)
        self.total_ns += 0 if again else total
        self.self_ns += total - child_ns
        self.min_ns = least if self.min_ns is None else min(self.min_ns, least)
        self.max_ns = max(self.max_ns, int(took_ns.max()))
        # A double's exponent and first six bits of fraction are finer than no bucket.
        tops = took_ns.astype(np.float64).view(np.int64) >> _BELOW
        first = int(tops.min())
        counts = np.bincount(tops - first)
        for top in np.flatnonzero(counts):
            edge = np.array(int(top) + first << _BELOW).view(np.float64)
            self.durations[find_bucket(int(edge))] += int(counts[top])

    def merge(self, other: Figures) -> None:
        """Add all that ``other`` has."""
        for name in ("calls", "total_ns", "self_ns", "elements", "bytes", "flops", "latency_ns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        least = [each for each in (self.min_ns, other.min_ns) if each is not None]
        self.min_ns = min(least, default=None)
        self.max_ns = max(self.max_ns, other.max_ns)
        self.backwards |= other.backwards
        self.durations.update(other.durations)

    def totals(
        self,
        name: str,
        layer: int | None,
        phase: Phase,
        category: Category,
        provenance: Provenance,
    ) -> BrickTotals:
        """Return the figures as data. ``UsageError`` ``E_BRICK_COUNT`` if a count is no integer."""
        # What was told one by one was taken as it came; sums may be too much as well.
        check_counts(name, self.elements, self.bytes, self.flops)
        return BrickTotals(
            name=name,
            category=category,
            calls=self.calls,
            total_ns=self.total_ns,
            self_ns=self.self_ns,
            min_ns=self.min_ns or 0,
            max_ns=self.max_ns,
            layer=layer,
            phase=phase,
            elements=int(self.elements),
            bytes=int(self.bytes),
            flops=int(self.flops),
            durations={str(number): self.durations[number] for number in sorted(self.durations)},
            latency_ns=self.latency_ns,
            provenance=provenance,
        )


class Cell:
    """One lane's calls of a brick in a layer and phase, the latest not yet folded.

    ``leaves`` holds the durations of calls with nothing within, ``nested`` pairs of the time
    within and the duration. Only the lane's own thread appends and folds; who reads takes
    ``lock``, which folding holds.
    """

    __slots__ = (
        "_again",
        "_figures",
        "_inner",
        "bytes",
        "elements",
        "flops",
        "kept",
        "key",
        "lane",
        "leaves",
        "lock",
        "name",
        "nested",
    )

    def __init__(
        self,
        name: str,
        layer: int | None,
        phase: Phase,
        lock: RLock,
        kept: Kept | None,
        lane: LaneClock,
        again: bool = False,
    ) -> None:
        self.name = name
        self.lane = lane
        self.key = (name, layer, phase, lane.index)
        self.lock = lock
        self.elements = self.bytes = self.flops = 0
        self.leaves: list[int] = []
        self.nested: list[int] = []
        self._figures = Figures()
        self._again = again
        self._inner: Cell | None = None
        self.kept = kept

    def within(self) -> Cell:
        """Return where this brick's calls within itself are counted: not in its total."""
        if self._inner is None:
            name, layer, phase, _ = self.key
            self._inner = Cell(name, layer, phase, self.lock, self.kept, self.lane, again=True)
        return self._inner

    def count(self, took_ns: int, child_ns: int) -> None:
        """Count a call as ``Scope.__exit__`` does."""
        log = self.nested if child_ns else self.leaves
        log.extend((child_ns, took_ns) if child_ns else (took_ns,))
        if len(log) > FOLD_AT:
            self.fold()

    def wait(self, latency_ns: int) -> None:
        """Count the time from a call's enqueueing to the sync that ended it."""
        self._figures.latency_ns += latency_ns

    def fold(self) -> None:
        """Fold the durations held into the figures."""
        with self.lock:
            leaves, nested = self._held()
            self.leaves.clear()
            self.nested.clear()
            _add(self._figures, leaves, nested, self._again)

    def figures(self) -> Figures:
        """Return the figures of all calls so far, those within itself too; under ``lock``."""
        figures = Figures()
        figures.merge(self._figures)
        _add(figures, *self._held(), self._again)
        figures.elements += self.elements
        figures.bytes += self.bytes
        figures.flops += self.flops
        if self._inner is not None:
            figures.merge(self._inner.figures())
        return figures

    def _held(self) -> tuple[array[int], array[int]]:
        nested = array("q", self.nested)
        return array("q", self.leaves), nested[: len(nested) // 2 * 2]


def _add(figures: Figures, leaves: array[int], nested: array[int], again: bool) -> None:
    if leaves:
        figures.add(np.frombuffer(leaves, np.int64), 0, 0, again)
    if nested:
        child, took = np.frombuffer(nested, np.int64).reshape(-1, 2).T
        figures.add(took, int(child.sum()), int((took - child).min()), again)


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
        if not is_valid_name(name):
            raise UsageError(
                "E_BRICK_NAME",
                f"{str(name)[:MAX_NAME_CHARACTERS]!a} is no name of a brick.",
                f"Give a text of 1 to {MAX_NAME_CHARACTERS} characters.",
            )
        try:
            number = None if layer is None else operator.index(layer)
        except TypeError:
            number = -1
        if number is not None and not 0 <= number <= MAX_COUNT:
            raise UsageError(
                "E_BRICK_LAYER",
                f"The brick {name!r} is in layer {layer!r}, which is no whole number from 0 up.",
                "Number layers with integers, or leave the layer out.",
            )
        # One string object for each name: whether two calls are of one brick is asked by `is`.
        known = sys.intern(str(resolve_alias(name)))
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
                if resolve_alias(name) == name:
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

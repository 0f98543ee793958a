"""What one lane's calls of one brick in one layer and phase add up to."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pytest_flamegate.bricks.durations import bucket
from pytest_flamegate.bricks.marks import FOLD_AT
from pytest_flamegate.bricks.record import BrickTotals
from pytest_flamegate.bricks.unusual import check_counts

if TYPE_CHECKING:
    from threading import RLock

    from numpy.typing import NDArray

    from pytest_flamegate.bricks.kept import Kept
    from pytest_flamegate.bricks.lanes import LaneClock
    from pytest_flamegate.bricks.names import Category
    from pytest_flamegate.bricks.record import Phase, Provenance


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
            self.durations[bucket(int(edge))] += int(counts[top])

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

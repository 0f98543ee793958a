"""Sums over the calls of a brick, and the buffer of the last single calls."""

from __future__ import annotations

import operator
from array import array
from collections import Counter, deque
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_flamegate.bricks import record
from pytest_flamegate.bricks.marks import invalid_count_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_flamegate.bricks.record import Category, Phase, Provenance

    CallKey = tuple[str, int | None, Phase, int]


_LOW_BITS = 52 - 6


class CallBuffer:
    """The last ``size`` calls that ended, of all threads."""

    def __init__(self, size: int) -> None:
        self.serials = count(1)
        self._lock = Lock()
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=size)

    def append(
        self,
        key: CallKey,
        extra: tuple[Any, ...],
        start_ns: int,
        end_ns: int,
        self_ns: int,
        elements: int,
    ) -> None:
        """Store a call; ``key`` is name, layer, phase and thread, ``extra`` that of its scope."""
        with self._lock:
            self._rows.append((extra, key, start_ns, end_ns, self_ns, elements))

    def list_calls(self) -> tuple[record.BrickCall, ...]:
        """Return the calls as they began; ``parent`` is None if it is no longer in the buffer."""
        with self._lock:
            rows = list(self._rows)
        rows.sort(key=lambda row: row[0][3])  # by serial number
        index = {row[0][3]: number for number, row in enumerate(rows)}
        return tuple(
            record.BrickCall(
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                self_ns=self_ns,
                layer=layer,
                phase=phase,
                lane=thread,
                parent=index.get(parent),
                elements=min(operator.index(elements), record.MAX_COUNT),
                bytes=min(operator.index(size), record.MAX_COUNT),
                kernel=kernel,
            )
            for extra, key, start_ns, end_ns, self_ns, elements in rows
            for size, _, kernel, _, parent in [extra]
            for name, layer, phase, thread in [key]
        )


def check_counts(name: str, elements: int, size: int, flops: int) -> None:
    """Raise ``UsageError`` ``E_BRICK_ARGUMENT`` unless all are counts of 63 bits."""
    try:
        counts = [operator.index(value) for value in (elements, size, flops)]
    except TypeError:
        raise invalid_count_error(name) from None
    if min(counts) < 0 or max(counts) > record.MAX_COUNT:
        raise invalid_count_error(name)


class CallSums:
    """Sums over calls. Times are nanoseconds.

    ``durations`` counts calls by the bucket of their inclusive time, ``own`` by that of their own
    time. ``went_back`` is True once a call took less than no time.
    """

    def __init__(self) -> None:
        self.calls = self.total_ns = self.self_ns = self.max_ns = 0
        self.elements = self.bytes = self.flops = 0
        self.went_back = False
        self.min_ns: int | None = None
        self.durations: Counter[int] = Counter()
        self.own: Counter[int] = Counter()

    def add_log(self, leaves: array[int], nested: array[int], *, is_recursive: bool) -> None:
        """Add durations as a ``CallLog`` holds them."""
        if leaves:
            durations_ns = np.frombuffer(leaves, np.int64)
            self._add(durations_ns, durations_ns, is_recursive)
        if nested:
            child_ns, durations_ns = np.frombuffer(nested, np.int64).reshape(-1, 2).T
            self._add(durations_ns, durations_ns - child_ns, is_recursive)

    def _add(
        self, durations_ns: NDArray[np.int64], own_ns: NDArray[np.int64], is_recursive: bool
    ) -> None:
        least = int(durations_ns.min())
        if least < 0 or own_ns.min() < 0:
            self.went_back = True
            return
        total = int(durations_ns.sum())
        self.calls += len(durations_ns)
        # The time of a brick within itself is already in its outermost call.
        self.total_ns += 0 if is_recursive else total
        self.self_ns += int(own_ns.sum())
        self.min_ns = least if self.min_ns is None else min(self.min_ns, least)
        self.max_ns = max(self.max_ns, int(durations_ns.max()))
        counts = _count_buckets(durations_ns)
        self.durations.update(counts)
        self.own.update(counts if own_ns is durations_ns else _count_buckets(own_ns))

    def merge(self, other: CallSums) -> None:
        """Add the sums of ``other``."""
        for name in ("calls", "total_ns", "self_ns", "elements", "bytes", "flops"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        known = [value for value in (self.min_ns, other.min_ns) if value is not None]
        self.min_ns = min(known, default=None)
        self.max_ns = max(self.max_ns, other.max_ns)
        self.went_back |= other.went_back
        self.durations.update(other.durations)
        self.own.update(other.own)

    def build_totals(
        self,
        name: str,
        layer: int | None,
        phase: Phase,
        category: Category,
        provenance: Provenance,
    ) -> record.BrickTotals:
        """Return the sums as data. ``UsageError`` ``E_BRICK_ARGUMENT`` if one is no count."""
        # The fast path takes counts as they come, and a sum may exceed 63 bits.
        check_counts(name, self.elements, self.bytes, self.flops)
        return record.BrickTotals(
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
            provenance=provenance,
            typical_ns=None
            if self.self_ns == self.total_ns
            else round(record.cut_own_time_ns(self.own, self.self_ns)),
        )


def _count_buckets(times_ns: NDArray[np.int64]) -> dict[int, int]:
    """Return the calls by bucket."""
    # Exponent and first six bits of fraction of a double: no bucket is narrower than that.
    tops = times_ns.astype(np.float64).view(np.int64) >> _LOW_BITS
    first = int(tops.min())
    counts = np.bincount(tops - first)
    found = Counter[int]()
    for top in np.flatnonzero(counts):
        edge = np.array(int(top) + first << _LOW_BITS).view(np.float64)
        found[record.find_bucket(int(edge))] += int(counts[top])
    return found

"""The last calls, kept compactly: one row of 64 bytes each, in a ring."""

from __future__ import annotations

from itertools import count
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, Any

from pytest_flamegate.bricks.record import MOST, BrickCall

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Phase

    Key = tuple[str, int | None, Phase, int]

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
            self._keys: dict[Key, int] = {}
            self._kernels: dict[str, int] = {}

    def keep(
        self,
        key: Key,
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
                min(elements, MOST),
                min(size, MOST),
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


def _call(row: tuple[int, ...], key: Key, kernel: str, parent: int | None) -> BrickCall:
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

"""Tiles: parts of a kernel as bricks, with operations per second and per byte.

A tile is a brick with the name of its level, so ``BrickProfiler`` records it like any other::

    with TileRecorder() as tiles:
        with tile("macro", flops=2 * m * n * k, bytes=4 * (m * k + k * n + m * n)):
            ...
    for level in tiles.stats():
        print(level.level, level.gflops, level.arithmetic_intensity)
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pytest_flamegate.bricks import BrickProfiler, brick, marks
from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Provenance


TileLevel = Literal["macro", "midi", "micro"]
LEVELS: tuple[TileLevel, ...] = get_args(TileLevel)
_LACKS = {"flops": " without flops", "bytes": " without bytes"}


def tile(
    level: TileLevel,
    *,
    flops: int | None = None,
    bytes: int | None = None,  # noqa: A002 - its name in every profiler
) -> AbstractContextManager[None]:
    """Time the block as a tile that does ``flops`` operations on ``bytes`` bytes.

    Do not nest tiles of one level: the operations of both would count. While no recorder and no
    ``BrickProfiler`` is on, no clock is read.

    Raises:
        UsageError: ``E_BRICK_ARGUMENT`` for an unknown level or an invalid count, while on.
    """
    if marks._on is None:
        return marks.OFF
    if level not in LEVELS:
        raise UsageError(
            "E_BRICK_ARGUMENT",
            f"There is no tile level {level!r}.",
            f"Pass one of {', '.join(LEVELS)}.",
        )
    # Tiles that lack an amount are bricks of their own: no rate can be computed from their sum.
    amounts = {"flops": flops, "bytes": bytes}
    lacking = "".join(words for amount, words in _LACKS.items() if amounts[amount] is None)
    return brick(f"tile/{level}{lacking}", flops=flops or 0, bytes=bytes or 0)


@dataclass(frozen=True, slots=True)
class TileStats:
    """All tiles of one level; ``flops`` and ``bytes`` are None if any of them lacks it.

    Times are nanoseconds. Threads side by side are added up, so ``gflops`` is per thread.
    """

    level: TileLevel
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    flops: int | None
    bytes: int | None
    provenance: Provenance = "measured_wall"

    @property
    def gflops(self) -> float | None:
        """10⁹ operations per second, derived; None if operations or time are not known."""
        return None if self.flops is None or not self.total_ns else self.flops / self.total_ns

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations per byte, derived; None if either is not known, or no byte is read."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes


class TileRecorder(BrickProfiler):
    """Records the tiles of all threads while it is entered. Raises as ``BrickProfiler`` does."""

    def stats(self) -> tuple[TileStats, ...]:
        """Return the figures of each level that has a tile, the largest tiles first."""
        totals = self.recorded().totals
        found = []
        for level in LEVELS:
            rows = [row for row in totals if f"{row.name} ".startswith(f"tile/{level} ")]
            names = " ".join(row.name for row in rows)
            if rows:
                found.append(
                    TileStats(
                        level,
                        calls=sum(row.calls for row in rows),
                        total_ns=sum(row.total_ns for row in rows),
                        min_ns=min(row.min_ns for row in rows),
                        max_ns=max(row.max_ns for row in rows),
                        flops=None if "flops" in names else sum(row.flops for row in rows),
                        bytes=None if "bytes" in names else sum(row.bytes for row in rows),
                        provenance=rows[0].provenance,
                    )
                )
        return tuple(found)

"""Tiles: how long blocked work takes at each level, and how much it computes.

A kernel that is cut into tiles marks them: ``macro`` for what a cache holds, ``midi`` for what a
thread works on, ``micro`` for what stands in registers. Rates and intensities are made of the
operations and bytes that the caller tells, and absent where any call of a level tells none.

Three figures that such profilers are known to show are left out, for none of them is measured:
a cache efficiency that is operations over a peak (no miss was ever counted; ``counters`` says
what a counter counted), instructions a cycle made of elements over cycles, and an efficiency of
asynchronous work made of how often it was polled.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from pytest_flamegate.bricks.record import Provenance

TileLevel = Literal["macro", "midi", "micro"]
LEVELS: tuple[TileLevel, ...] = get_args(TileLevel)


@dataclass(frozen=True, slots=True)
class TileStats:
    """All tiles of one level. ``flops`` and ``bytes`` are None where a call told none.

    Times are nanoseconds of the process's monotonic clock. Threads that work side by side are
    added up, so ``gflops`` is that of one thread.
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
        """10⁹ operations a second, derived; None where they were not told or took no time."""
        return None if self.flops is None or not self.total_ns else self.flops / self.total_ns

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations a byte, derived; None where either was not told, or no byte was."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes


@dataclass(slots=True)
class _Level:
    """What one thread's tiles of one level came to; ``depth`` is how many of them are open."""

    depth: int = 0
    calls: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    flops: int | None = 0
    bytes: int | None = 0

    def add(self, took_ns: int, flops: int | None, nbytes: int | None) -> None:
        self.min_ns = min(self.min_ns, took_ns) if self.calls else took_ns
        self.max_ns = max(self.max_ns, took_ns)
        self.calls += 1
        self.total_ns += took_ns
        self.flops = None if flops is None or self.flops is None else self.flops + flops
        self.bytes = None if nbytes is None or self.bytes is None else self.bytes + nbytes


@dataclass
class TileRecorder:
    """Records the tiles of all threads while it is on, in memory that does not grow with them.

    One at a time in a process: ``UsageError`` E_TILES_ON for a second.
    """

    _own: threading.local = field(default_factory=threading.local, repr=False)
    _all: list[dict[TileLevel, _Level]] = field(default_factory=list, repr=False)

    def __enter__(self) -> TileRecorder:
        """Turn the marks on."""
        global _on
        with _turning:
            if _on is not None:
                raise UsageError(
                    "E_TILES_ON",
                    "Tiles are recorded already.",
                    "Leave the first recorder before a second is entered.",
                )
            _on = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Turn the marks off."""
        global _on
        _on = None

    def stats(self) -> tuple[TileStats, ...]:
        """Return what each level with an ended call came to, the largest tiles first."""
        found = []
        for level in LEVELS:
            parts = [own[level] for own in tuple(self._all) if own[level].calls]
            if parts:
                found.append(
                    TileStats(
                        level,
                        calls=sum(part.calls for part in parts),
                        total_ns=sum(part.total_ns for part in parts),
                        min_ns=min(part.min_ns for part in parts),
                        max_ns=max(part.max_ns for part in parts),
                        flops=_sum([part.flops for part in parts]),
                        bytes=_sum([part.bytes for part in parts]),
                    )
                )
        return tuple(found)

    def level(self, level: TileLevel) -> _Level:
        """Return the calling thread's figures of a level."""
        own: dict[TileLevel, _Level] | None = getattr(self._own, "levels", None)
        if own is None:
            own = self._own.levels = {each: _Level() for each in LEVELS}
            self._all.append(own)
        return own[level]


_on: TileRecorder | None = None
_turning = threading.Lock()
_OFF: AbstractContextManager[None] = nullcontext()


def tile(
    level: TileLevel,
    *,
    flops: int | None = None,
    bytes: int | None = None,  # noqa: A002 - its name in every profiler
) -> AbstractContextManager[None]:
    """Mark a tile of synchronous work that does ``flops`` operations on ``bytes`` bytes.

    A tile within one of its own level is part of that one: its operations too. While nothing
    records, no clock is read. Raises ``UsageError``, when on: E_TILE_LEVEL for no known level,
    E_TILE_FIGURE for a figure that is no count.
    """
    recorder = _on  # read once: another thread may turn the marks off meanwhile
    return _OFF if recorder is None else _marked(recorder, level, flops, bytes)


@contextmanager
def _marked(
    recorder: TileRecorder, level: TileLevel, flops: int | None, nbytes: int | None
) -> Iterator[None]:
    if level not in LEVELS:
        raise UsageError(
            "E_TILE_LEVEL", f"There is no tile level {level!r}.", f"Use {', '.join(LEVELS)}."
        )
    for name, value in (("flops", flops), ("bytes", nbytes)):
        if value is not None and (type(value) is not int or value < 0):
            raise UsageError(
                "E_TILE_FIGURE",
                f"A tile of level {level} told {name} of {value!r}.",
                "Give a whole number from 0 up, or leave it out.",
            )
    own = recorder.level(level)
    own.depth += 1
    began_ns = time.perf_counter_ns()
    try:
        yield
    finally:
        took_ns = time.perf_counter_ns() - began_ns
        own.depth -= 1
        if not own.depth:
            own.add(took_ns, flops, nbytes)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None

"""A process that loads once and then generates on command, whatever it is commanded through."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.workload.clocks import Counters
    from pytest_flamegate.workload.observation import Block
    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.spec import Workload

WARM_TOKENS = 32

T_co = TypeVar("T_co", covariant=True)


class Window(Protocol[T_co]):
    """Something that watches a process for a while: a profiler that is attached."""

    def stop(self) -> T_co:
        """End the watch and return what it saw."""

    def close(self) -> None:
        """End the watch; what it saw is abandoned."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a timed run has its place: in which pair, and bound to which core."""

    pair: int | None = None
    cpu: int | None = None


ALONE = Place()


class LastingProcess(Protocol):
    """What the observer asks of such a process: a child of its own, or a server.

    ``load_ns`` is None where it ran before. ``facts`` is what the engine says that it is.
    """

    started_at: str
    load_ns: int | None
    facts: Mapping[str, str]
    token_source: str

    @property
    def notes(self) -> Mapping[str, str]:
        """What has to be known so far of how it was observed, by code."""

    @property
    def pid(self) -> int:
        """The process whose clocks are read."""

    def warm_up(self, tokens: int) -> None:
        """Generate one sequence of at most ``tokens`` tokens, unmeasured."""

    def block(self, sequences: int) -> Block:
        """Generate ``sequences`` whole sequences; return what they took."""

    def untold_block(self, sequences: int) -> Block:
        """Do the same under a profiler: the times of tokens may mean nothing."""

    def reports(self) -> tuple[Report, ...]:
        """Return what the engine said of its measured sequences so far."""

    def counters(self) -> Counters:
        """Read the process's counters."""

    def close(self, leave_s: float = 1.0) -> None:
        """End it and all it started; it has ``leave_s`` to leave by itself."""


def warm(process: LastingProcess, workload: Workload, block_s: float) -> int:
    """Warm the process up; return how many sequences fill about ``block_s``."""
    process.warm_up(WARM_TOKENS)
    began = time.monotonic()
    process.warm_up(WARM_TOKENS)
    took_s = max(time.monotonic() - began, 1e-6)
    part = max(1.0, workload.max_tokens / WARM_TOKENS)
    return max(1, math.floor(block_s / (took_s * part)))

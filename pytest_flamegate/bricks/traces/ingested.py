"""What a foreign file tells of bricks, and the refusals of what it cannot tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.errors import ReceiptError, UndecidedError
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.record import BrickCall, BrickTotals, Lane

MAX_NAMES = 10_000
"""Different bricks of one file."""
SLACK = 0.01
"""How far what was spent may exceed the wall: clocks are read a little apart."""
_SHOWN = 200
_TODO = "Have the tool that wrote it write it again."


@dataclass(frozen=True, slots=True)
class Ingested:
    """What ``source`` clocked. It is ``ingested``: nothing of it may be gated.

    ``wall_ns`` and ``tokens`` are None where the file does not tell them. ``calls`` are there
    where it tells single calls; their times count from its first. ``kernels`` is how often each
    kernel was dispatched, ``medians_us`` what a figure is in the middle of all runs.
    """

    source: str
    wall_ns: int | None
    totals: tuple[BrickTotals, ...]
    tokens: int | None = None
    calls: tuple[BrickCall, ...] = ()
    lanes: tuple[Lane, ...] = ()
    kernels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    medians_us: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    provenance: Literal["ingested"] = "ingested"


def contradicts(why: str) -> ReceiptError:
    """Return the refusal of a file whose figures cannot all be true."""
    return ReceiptError(
        "E_TRACE_CONTRADICTS", f"The trace contradicts itself: {escape(why, _SHOWN)}.", _TODO
    )


def self_exceeds_wall(why: str) -> ReceiptError:
    """Return the refusal of more time spent than there was."""
    return ReceiptError(
        "E_SELF_EXCEEDS_WALL",
        f"The trace tells of more time spent than passed: {escape(why, _SHOWN)}.",
        "Have the profiler clock each thread by itself, and calls within calls only once.",
    )


def no_bricks(what: str) -> UndecidedError:
    """Return the refusal of a file that tells of nothing."""
    return UndecidedError(
        "E_NO_BRICKS", f"{what} tells of no brick.", "Record while the engine generates."
    )

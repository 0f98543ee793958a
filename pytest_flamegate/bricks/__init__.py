"""Where does an engine spend its time by its own clock? Marks in an engine, and their record.

An engine marks its parts as *bricks*. While a ``BrickProfiler`` is on, each call is timed; while
none is on, a mark reads no clock and allocates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.marks import brick, profiled, start, stop

if TYPE_CHECKING:
    from pytest_flamegate.bricks.clock import BrickProfiler


__all__ = ["BrickProfiler", "brick", "profiled", "start", "stop"]


def __getattr__(name: str) -> object:
    # The profiler needs NumPy, which an engine with marks alone may not want to load.
    if name == "BrickProfiler":
        from pytest_flamegate.bricks.clock import BrickProfiler

        return BrickProfiler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

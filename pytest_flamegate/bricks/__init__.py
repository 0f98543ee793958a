"""What do the engine's own clocks say? Marks in an engine, and what is made of them.

An engine marks its parts as *bricks*; while a profiler is on each call is clocked, and while
none is on a mark costs next to nothing and reads no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.marks import brick, profiled, start, stop

if TYPE_CHECKING:
    from pytest_flamegate.bricks.clock import BrickProfiler


__all__ = ["BrickProfiler", "brick", "profiled", "start", "stop"]


def __getattr__(name: str) -> object:
    # The profiler needs numpy, which an engine that is only marked may not want to load.
    if name == "BrickProfiler":
        from pytest_flamegate.bricks.clock import BrickProfiler

        return BrickProfiler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What other profilers clocked, read as bricks: shown beside what was measured, never gated.

A new format is one file here and one line in ``reading.FORMATS``.
"""

from __future__ import annotations

from pytest_flamegate.bricks.traces.ingested import Ingested as Ingested
from pytest_flamegate.bricks.traces.reading import is_trace as is_trace
from pytest_flamegate.bricks.traces.reading import read_trace as read_trace

__all__ = ["Ingested", "is_trace", "read_trace"]

from __future__ import annotations

import pytest

from pytest_flamegate.core.clocks import Interval

# Wall, CPU and run delay in, quiet time out.
QUIET = [
    (100, 90, 0, 100),  # a sleep is the engine's own
    (100, 90, 10, 90),  # a wait for a CPU is the machine's
    (100, 60, 10, 90),
    (100, 100, 5, 100),  # clocks that are read one after another may disagree
    (100, 95, 20, 95),
    (100, 400, 0, 100),  # four threads
    (100, 400, 300, 100),  # their waits overlap
    (400, 400, 0, 400),  # the same work one after another
    (100, 70, None, 70),
]


@pytest.mark.parametrize(("wall", "cpu", "delay", "quiet"), QUIET)
def test_quiet_clock(wall: int, cpu: int, delay: int | None, quiet: int) -> None:
    assert Interval(wall, cpu, delay).quiet_ns == quiet

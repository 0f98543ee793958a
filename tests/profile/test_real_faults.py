"""The installed perf and py-spy, killed and out of room while they sample."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.profile.profilers import perf, pyspy
from pytest_flamegate.profile.profilers.base import Setup
from tests.tools import require

pytestmark = pytest.mark.measures

_SPIN = """
import ctypes, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
end = time.monotonic() + 60
while time.monotonic() < end:
    sum(range(1000))
"""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def leave_no_room(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("make", [perf.make_perf, pyspy.make_pyspy])
@pytest.mark.parametrize("spoil", [kill, leave_no_room])
def test_a_recording_that_is_cut_short_is_an_error(
    make: Any, spoil: Callable[[int], None], tmp_path: Path
) -> None:
    profiler = make(Setup())
    probe = profiler.probe()
    require(probe.usable, f"{profiler.name} cannot be used: {probe.reason}")
    child = process.start([sys.executable, "-I", "-c", _SPIN])
    try:
        recording = profiler.attach(child.pid, tmp_path)
        try:
            spoil(recording.child.pid)
            with pytest.raises(ToolError, match=r"E_PROFILER_(FAILED|OUTPUT)") as refused:
                profiler.parse(recording.stop())
            assert refused.value.problem.startswith((profiler.name, "The output of"))
        finally:
            recording.close()
    finally:
        child.end()

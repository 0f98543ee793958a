"""The embedded passage in a process of its own, ready to be profiled."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Served
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.observe.engine_process import EngineProcess
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import PROFILERS, perf_data
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.stacks import trim_stacks


@contextmanager
def passage(python_flags: Sequence[str] = ()) -> Iterator[EngineProcess]:
    """Start it, warm it up, and end it. ``python_flags`` are the profiler's."""
    workload = next(each for each in embedded_workloads(Path()) if each.name == "passage")
    kind = engine(workload.engine)
    plan = kind.plan(workload, kind.model(workload))
    assert isinstance(plan, Served)
    with Observer(workload, plan).serve(python_flags=python_flags) as served:
        served.warm_up(workload.max_tokens)
        try:
            yield served
        finally:
            pid = served.pid
    perf_data.remove_jit_files(
        pid
    )  # the file of -X perf_jit is complete only after its process has ended


def profiled(name: str, seconds: float, rate_hz: int | None = None) -> Profile:
    """Return the profile of one process of its own, sampled for so long.

    At the profiler's default rate if none is given. Raises ``ToolError``.
    """
    profiler = PROFILERS[name](Setup(rate_hz=rate_hz))
    with tempfile.TemporaryDirectory() as directory:
        with passage(profiler.python_flags) as served:
            recording = profiler.attach(served.pid, Path(directory))
            try:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    served.profile_block(1)
                raw = recording.stop()
            finally:
                recording.close()
        return trim_stacks(profiler.parse(raw))

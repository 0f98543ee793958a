"""What CPython writes for perf goes with the process it was written for, however that ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.engines import engine
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import perf_data
from pytest_flamegate.profile.profilers.base import Recording
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run.processes import Budget, SideProcesses
from pytest_flamegate.run.stages import PreparedSide
from tests.profile.profiles import profile, python

# Stands in for CPython's -X perf_jit, which names its files by the process, too.
ENGINE = """
import os, time
for name in (f"jit-{os.getpid()}.dump", f"jitted-{os.getpid()}-7.so"):
    open(os.path.join(os.path.dirname(__file__), name), "w").close()

def generate(prompt, max_tokens):
    yield from range(max_tokens)
"""


@dataclass(frozen=True, slots=True)
class Faulty:
    """A profiler of CPython's own frames that fails ``at`` a step."""

    at: str
    name: str = "faulty"
    rate_hz: int = 100_000
    python_flags: tuple[str, ...] = ("-X", "flamegate_unknown")

    def probe(self) -> NoReturn:
        raise NotImplementedError

    def wrap(self, argv: Sequence[str], directory: Path) -> NoReturn:
        raise NotImplementedError

    def attach(self, pid: int, directory: Path) -> Running:
        if self.at == "attach":
            raise ToolError("E_PROFILER_DENIED", "It may not.", "Let it.")
        if self.at == "kill":
            os.kill(pid, signal.SIGKILL)
        return Running(self.at)

    def parse(
        self, recording: Recording, stderr: bytes = b"", window_ns: tuple[int, int] | None = None
    ) -> Profile:
        if self.at == "parse":
            raise ToolError("E_PROFILER_OUTPUT", "It is cut off.", "Measure again.")
        return profile({(python("f"),): 9})

    def clean_up(self, pid: int) -> None:
        perf_data.remove_jit_files(pid)


@dataclass(frozen=True, slots=True)
class Running:
    at: str

    def stop(self) -> Recording:
        if self.at == "stop":
            raise ToolError("E_PROFILER_FAILED", "It hangs.", "Try again.")
        return Recording(Path())

    def close(self) -> None:
        pass


@pytest.mark.parametrize("at", ["", "load", "attach", "kill", "stop", "parse"])
def test_nothing_is_left(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_data, "DIRECTORY", tmp_path)
    another = tmp_path / "jit-1.dump"
    another.touch()
    source = ENGINE + ("raise SystemError" if at == "load" else "")
    (tmp_path / "leaves_litter.py").write_text(source)
    workload = Workload("w", "python", "p", 4, "test", tmp_path, target="leaves_litter:generate")
    plan = engine("python").plan(workload, None)
    subject = Subject(workload, {"path": "m"}, {}, None, "0", None)
    processes = SideProcesses(PreparedSide(None, subject, workload, plan, Faulty(at)), Budget(1.0))
    if at:
        with pytest.raises(FlamegateError):
            processes.profile_once(0.01)
    else:
        processes.profile_once(0.01)
        assert processes.samples == 9
    assert list(tmp_path.glob("jit*")) == [another]

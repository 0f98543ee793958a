"""What CPython writes for perf goes with the process it was written for, however that ended."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.engines import engine
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import perf_data
from pytest_flamegate.profile.profilers.base import Recording
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run.processes import SideProcesses
from pytest_flamegate.run.schedule import Budget
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


class Faulty:
    """A profiler of CPython's own frames, and its running process: it fails ``at`` a step."""

    name = "faulty"
    rate_hz = 100_000
    python_flags = ("-X", "flamegate_unknown")

    def __init__(self, at: str) -> None:
        self.at = at

    def _reach(self, step: str) -> None:
        if self.at == step:
            raise ToolError("E_PROFILER_FAILED", f"It fails at {step}.", "Try again.")

    def attach(self, pid: int, directory: Path) -> Any:
        self._reach("attach")
        if self.at == "kill":
            os.kill(pid, signal.SIGKILL)
        return self

    def stop(self) -> Recording:
        self._reach("stop")
        return Recording(Path())

    def close(self) -> None:
        pass

    def parse(self, *_: Any) -> Profile:
        self._reach("parse")
        return profile({(python("f"),): 9})

    def clean_up(self, pid: int) -> None:
        perf_data.remove_jit_files(pid)


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
    faulty: Any = Faulty(at)
    processes = SideProcesses(PreparedSide(None, subject, workload, plan, faulty), Budget(1.0))
    if at:
        with pytest.raises(FlamegateError):
            processes.profile_once(0.01)
    else:
        processes.profile_once(0.01)
        assert processes.samples == 9
    assert list(tmp_path.glob("jit*")) == [another]

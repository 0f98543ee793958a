"""Trees that do not want to end: ``benchmarks/durability.py trees`` ends a thousand of them."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from pytest_flamegate.core import process, process_system
from tests.core import trees

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
]

CLEANS_UP = """
import os, signal, sys, time
def end(*_):
    open(sys.argv[1], "w").write("clean")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP) if sys.argv[2] == "stopped" else None
while True:
    time.sleep(60)
"""


@pytest.mark.parametrize("shape", trees.SHAPES)
def test_nothing_is_left_of_a_tree(tmp_path: Path, shape: str) -> None:
    left = hang(shape, tmp_path)
    assert (left.survivors, left.zombies) == (0, 0)
    assert left.members >= trees.SHAPES[shape][1]


def test_one_that_ignores_sigterm_gets_no_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 600.0)
    assert hang("ignores SIGTERM", tmp_path).seconds < 300


@pytest.mark.parametrize("how", ["running", "stopped"])
def test_one_that_handles_sigterm_ends_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 60.0)
    path = tmp_path / "said"
    child = process.start([sys.executable, "-S", "-E", "-c", CLEANS_UP, str(path), how])
    deadline = time.monotonic() + 60
    while child.stdout_bytes() != b"ready\n" or (how == "stopped" and not stops(child.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.end()
    assert child.returncode == 0
    assert path.read_text() == "clean"


def stops(pid: int) -> bool:
    return process_system.read_stat(pid)[0] == b"T"


def test_what_others_wait_for_is_left_to_them() -> None:
    """A child of somebody else's in this process, dead and not yet waited for."""
    theirs = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    before = subprocess.Popen([sys.executable, "-c", "raise SystemExit(8)"], start_new_session=True)
    child = process.start([sys.executable, "-c", "import time; time.sleep(60)"])
    other = process.start([sys.executable, "-c", "raise SystemExit(9)"])
    deadline = time.monotonic() + 60
    for pid in (theirs.pid, before.pid, other.pid):
        while process_system.is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
    child.end()
    assert (theirs.wait(60), before.wait(60), other.wait(60)) == (7, 8, 9)
    other.end()


_OF_THIS_RUN = "FLAMEGATE_TREES_OF"
_STANDS_S = 60.0


@dataclass(frozen=True)
class Left:
    """What ending one tree took, and left of its ``members`` and of its kind."""

    shape: str
    members: int
    seconds: float
    survivors: int
    zombies: int


def hang(shape: str, directory: Path) -> Left:
    """Start a tree of one shape, wait until it stands, and end it."""
    log = directory / f"{os.getpid()}-{time.monotonic_ns()}"
    program = [sys.executable, "-S", "-E", trees.__file__, shape, str(log)]
    child = process.start(program, env={**os.environ, _OF_THIS_RUN: log.name})
    try:
        deadline = time.monotonic() + _STANDS_S
        while (lines := _lines(log)) < trees.SHAPES[shape][1]:
            if time.monotonic() > deadline:
                raise AssertionError(f"{shape} does not stand: {lines}, {child.stderr_text()}")
            time.sleep(0.002)
    finally:
        began = time.perf_counter()
        child.end()
        seconds = time.perf_counter() - began
    members = _lines(log)
    log.unlink()
    return Left(shape, members, seconds, len(_survivors(log.name)), _zombies())


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _survivors(name: str) -> list[int]:
    needle = f"{_OF_THIS_RUN}={name}".encode()
    found = []
    for pid in psutil.pids():
        try:
            if needle in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def _zombies() -> int:
    children = psutil.Process().children(recursive=True)
    return sum(process.status() == psutil.STATUS_ZOMBIE for process in children)

"""Trees that do not want to end: ``benchmarks/durability.py trees`` ends a thousand of them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_flamegate.core import process, process_system
from tests.core.hung import hang
from tests.core.trees import SHAPES

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


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_left_of_a_tree(tmp_path: Path, shape: str) -> None:
    left = hang(shape, tmp_path)
    assert (left.survivors, left.zombies) == (0, 0)
    assert left.members >= SHAPES[shape][1]


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

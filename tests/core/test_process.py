"""Starting, running and ending processes with all that they started."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError

pytestmark = pytest.mark.measures


ORPHAN = """
import subprocess, sys
sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
started = subprocess.Popen(sleeper, start_new_session=True)
open(sys.argv[1], "w").write(str(started.pid))
"""


def test_ending_twice_and_after_a_natural_end_is_harmless() -> None:
    child = process.start([sys.executable, "-c", "print('x')"])
    assert child.wait(20) == 0
    assert child.stdout_bytes() == b"x\n"
    child.end()
    child.end()


def test_ending_a_fork_ends_what_it_started(tmp_path: Path) -> None:
    """A child that only forked and one that runs a program, both in sessions of their own."""

    def leave_children() -> None:
        forked = os.fork()
        if forked == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
            os._exit(0)
        orphan = tmp_path / "orphan"
        subprocess.run([sys.executable, "-c", ORPHAN, str(orphan)], check=True)
        orphan.write_text(f"{forked} {orphan.read_text()}")
        orphan.rename(tmp_path / "pids")
        time.sleep(60)

    child = process.fork(leave_children)
    try:
        while not (tmp_path / "pids").exists() and child.wait(0.01) is None:
            pass
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 2
    finally:
        child.end()
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert psutil.Process().children() == []


def test_a_fork_that_fails_is_a_coded_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(ToolError, match="temporarily unavailable") as caught:
        process.fork(lambda: None)
    assert caught.value.code == "E_CANNOT_START"


def test_a_child_ends_on_sigint_although_this_process_ignores_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = process.start(
            [sys.executable, "-S", "-c", "import time; print(1, flush=True); time.sleep(60)"]
        )
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    deadline_s = time.monotonic() + 60
    while not child.stdout_bytes():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    child.interrupt()
    # Python turns it into an exception, whose traceback ends it.
    assert child.wait(30) in (1, -signal.SIGINT)
    child.end()


def test_a_process_that_just_started_is_no_orphan_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may end before it is registered; its status must wait for the thread that started it."""
    other = process.start(["true"])
    enders: list[threading.Thread] = []
    start = subprocess.Popen

    def start_slowly(*args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        started = start(*args, **options)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        ender = threading.Thread(target=other.end)
        ender.start()
        ender.join(0.5)
        enders.append(ender)
        return started

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    child = process.start(["true"])
    try:
        assert child.wait(20) == 0
    finally:
        child.end()
        enders[0].join()

"""Processes are started and ended with all that they started, even trees that do not want to end.

``benchmarks/durability.py trees`` ends a thousand of them.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_flamegate.core import process, process_system
from pytest_flamegate.core.errors import ToolError
from tests.core import trees

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
]

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


@pytest.mark.parametrize("wakes", [True, False])
def test_the_end_of_a_process_is_seen(wakes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a sandbox that forbids the descriptor by which a wait ends early."""

    def forbid(_: int) -> int:
        raise PermissionError

    monkeypatch.setattr(process, "_FIRST_POLL_S", 60.0 if wakes else 0.001)
    monkeypatch.setattr(process, "_POLL_S", 60.0 if wakes else 0.001)
    if not wakes:
        monkeypatch.setattr(os, "pidfd_open", forbid)
    began_s = time.monotonic()
    assert process.run(["sleep", "0.1"], timeout_s=120.0).returncode == 0
    assert time.monotonic() - began_s < 50.0


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


def test_a_directory_that_is_missing_is_named_and_not_the_program(tmp_path: Path) -> None:
    cwd = tmp_path / "gone"
    with pytest.raises(
        ToolError, match=rf"E_CANNOT_START: Cannot start 'true' in '{cwd}': No such"
    ):
        process.start(["true"], cwd=cwd)
    with pytest.raises(ToolError, match=r"E_CANNOT_START: Cannot start 'no-such-program': No such"):
        process.start(["no-such-program"], cwd=tmp_path)


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


DAEMON = """
import os, sys, time
ready, wait = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 3)
    while time.process_time() < 0.3:
        pass
    os._exit(0)
os.wait()
os.close(wait)
os.read(ready, 1)  # until the daemon has ended
print("it ended", flush=True)
sys.stdin = os.fdopen(int(sys.argv[1]))
sys.stdin.read()
"""


def test_the_work_of_a_daemon_is_that_of_the_program_that_started_it() -> None:
    """It left the session, its parents and, as it has ended, its environment."""
    stop, go = os.pipe()
    owner = process.start([sys.executable, "-c", DAEMON, str(stop)], pass_fds=[stop])
    other = process.start([sys.executable, "-c", "pass"])
    while b"it ended" not in owner.stdout_bytes():
        time.sleep(0.01)
    other.wait(20)
    other.end()
    os.close(go)
    owner.wait(20)
    owner.end()
    os.close(stop)
    assert other.left_cpu_ns == 0
    assert 250_000_000 < owner.left_cpu_ns < 450_000_000


def test_a_sandbox_that_allows_no_tag_runs_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for name in ("setrlimit", "prlimit"):
        monkeypatch.setattr(resource, name, refuse)
    child = process.start([sys.executable, "-c", ORPHAN, os.devnull])
    assert child.wait(20) == 0
    child.end()
    assert child.left_cpu_ns > 0  # what is left was found by its mark


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


def test_a_tree_is_found_without_lists_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels are built without them."""
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    code = f"import subprocess; subprocess.run({sleeps!r})"
    child = process.start([sys.executable, "-S", "-c", code])
    try:
        deadline = time.monotonic() + 10.0
        while len(process_system.find_tree(child.pid, child.marker)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        found = process_system.find_tree(child.pid, child.marker)
        monkeypatch.setattr(process_system, "_lists_children", lambda: False)
        read = process_system.read_proc
        monkeypatch.setattr(
            process_system,
            "read_proc",
            lambda pid, name: b"" if name.endswith("children") else read(pid, name),
        )
        assert process_system.find_tree(child.pid, child.marker) == found
    finally:
        child.end()

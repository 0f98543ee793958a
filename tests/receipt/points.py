"""Stops an operation of the store at one of its system calls, and says what is left of it.

strace attaches to a forked child that waits at a barrier, and kills it at its n-th call of
a kind, or lets that call fail. So a point costs ten milliseconds and no new interpreter.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.receipt import operations
from tests.receipt.operations import Operation

WRITING = frozenset(
    (
        *("open", "openat", "creat", "write", "pwrite64", "fsync", "fdatasync", "close"),
        *("rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"),
        *("ftruncate", "flock"),
    )
)
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT", "EINTR")
_CALL = re.compile(r"^(\w+)\(", re.MULTILINE)
_OK, _REFUSED, _RAISED = 0, 3, 4
_ATTACH_S = 30.0


@dataclass
class Tally:
    """What came of the points of one kind. ``faults`` says of each that is not right, why."""

    points: int = 0
    killed: int = 0
    acknowledged: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.points += other.points
        self.killed += other.killed
        self.acknowledged += other.acknowledged
        self.refused += other.refused
        self.faults += other.faults


def why_not() -> str | None:
    """Return why no call can be stopped here, None where it can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run(
        [strace, "-o", "/dev/null", "-e", "inject=getpid:error=EPERM:when=1", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if tried.returncode == 0:
        return None
    return f"strace may not trace here: {tried.stderr.strip()[:200]}"


@dataclass(frozen=True)
class Ended:
    """How a stopped child ended: its status, what it said, and whether it was acknowledged."""

    status: int
    told: str

    @property
    def acknowledged(self) -> bool:
        return self.told == "done"


@contextmanager
def _child(operation: Operation, artifacts: ArtifactStore) -> Iterator[tuple[int, int, int]]:
    """Fork one that acts once a byte comes; yields its pid, where to write it, what it says."""
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status, told = _RAISED, ""
        store.LOCK_TIMEOUT_S = 0.2  # a lock whose closing fails is held by this very process
        os.read(go_read, 1)
        try:
            operation.act(artifacts)
            status, told = _OK, "done"
        except FlamegateError as error:
            status, told = _REFUSED, f"{error}"
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        finally:
            with suppress(OSError):
                os.write(told_write, told.encode())
            os._exit(status)
    os.close(go_read)
    os.close(told_write)
    try:
        yield pid, go_write, told_read
    finally:
        os.close(told_read)


def _traced(operation: Operation, artifacts: ArtifactStore, *options: str) -> Ended:
    with _child(operation, artifacts) as (pid, go, told):
        tracer = subprocess.Popen(
            ["strace", "-q", *options, "-p", str(pid)], stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _ATTACH_S
        while "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
            if tracer.poll() is not None or time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise RuntimeError("strace does not attach")
            time.sleep(0.0005)
        os.write(go, b"x")
        os.close(go)
        _, status = os.waitpid(pid, 0)
        tracer.wait()
        said = b""
        while part := os.read(told, 4096):
            said += part
        return Ended(os.waitstatus_to_exitcode(status), said.decode("utf-8", "replace"))


def _fresh(operation: Operation, state: str, place: Path) -> ArtifactStore:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    artifacts = ArtifactStore(place / ".flamegate")
    operations.prepare(artifacts, operation.states[state])
    return artifacts


def calls_of(operation: Operation, state: str, place: Path) -> Counter[str]:
    """Return how often the operation makes each system call, from the barrier to its end."""
    log = place.with_name(f"{place.name}.log")
    # Once before: what is read and imported only the first time is none of the operation's.
    operation.act(_fresh(operation, state, place))
    ended = _traced(operation, _fresh(operation, state, place), "-o", str(log))
    if not ended.acknowledged:
        raise RuntimeError(f"{operation.name} over {state}: {ended.told}")
    calls = Counter(_CALL.findall(log.read_text("ascii", "replace")))
    log.unlink()
    calls["read"] -= 1  # the barrier
    del calls["exit_group"]
    return +calls


def kill(operation: Operation, state: str, call: str, number: int, place: Path) -> Tally:
    """Kill it at its ``number``-th ``call``, look, and let the next run do it again."""
    artifacts = _fresh(operation, state, place)
    old = operation.view(artifacts)
    number += call == "read"
    rule = f"inject={call}:signal=SIGKILL:when={number}"
    ended = _traced(operation, artifacts, "-e", f"trace={call}", "-e", rule, "-o", "/dev/null")
    faults = []
    seen = operation.view(artifacts)
    new = operations.after(operation, old)
    if ended.status not in (-signal.SIGKILL, _OK):
        faults.append(f"it ended with {ended.status}: {ended.told}")
    if ended.acknowledged and seen != new:
        faults.append(f"acknowledged and lost: {seen}")
    if seen not in (*operations.standing(operation, state, old), new, *operation.between):
        faults.append(f"neither old nor new: {seen}")
    faults += _again(operation, state, artifacts, seen)
    return _tally(operation, state, f"killed at {call} {number}", ended, faults)


def refuse(
    operation: Operation, state: str, call: str, number: int, error: str, place: Path
) -> Tally:
    """Let its ``number``-th ``call`` fail with ``error``, look, and do it again."""
    artifacts = _fresh(operation, state, place)
    old = operation.view(artifacts)
    rule = f"inject={call}:error={error}:when={number}"
    ended = _traced(operation, artifacts, "-e", f"trace={call}", "-e", rule, "-o", "/dev/null")
    faults = []
    seen = operation.view(artifacts)
    if ended.status == _OK and seen != operations.after(operation, old):
        faults.append(f"acknowledged and lost: {seen}")
    elif ended.status == _REFUSED and seen not in operations.standing(operation, state, old):
        faults.append(f"refused ({ended.told}), and the old does not stand: {seen}")
    elif ended.status not in (_OK, _REFUSED):
        faults.append(f"it raised {ended.told}")
    faults += _again(operation, state, artifacts, seen)
    return _tally(operation, state, f"{error} at {call} {number}", ended, faults)


def _again(
    operation: Operation, state: str, artifacts: ArtifactStore, seen: operations.View
) -> list[str]:
    faults = operations.foreign_faults(operation, state, artifacts)
    if operations.spoilt_lost(operation, artifacts):
        faults.append("what was spoilt is gone")
    try:
        operation.act(artifacts)
        artifacts.sweep()
    except FlamegateError as error:
        return [*faults, f"the next run fails: {error}"]
    if operation.view(artifacts) != operations.after(operation, seen):
        faults.append(f"the next run leaves {operation.view(artifacts)}")
    if operations.spoilt_lost(operation, artifacts):
        faults.append("what was spoilt is gone after the next run")
    if left := operations.litter(artifacts):
        faults.append(f"nobody swept {left}")
    return faults + operations.foreign_faults(operation, state, artifacts)


def _tally(operation: Operation, state: str, point: str, ended: Ended, faults: list[str]) -> Tally:
    return Tally(
        points=1,
        killed=int(ended.status == -signal.SIGKILL),
        acknowledged=int(ended.status == _OK),
        refused=int(ended.status == _REFUSED),
        faults=[f"{operation.name} over {state}, {point}: {fault}" for fault in faults],
    )

"""Stop an operation of the store at one of its system calls, and check the result.

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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.receipt import store
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.receipt import operations
from tests.receipt.operations import Operation

WRITING = {
    *("open", "openat", "creat", "write", "pwrite64", "fsync", "fdatasync", "close", "rename"),
    *("renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "ftruncate"),
    "flock",
}
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT", "EINTR")
_CALL = re.compile(r"^(\w+)\(", re.MULTILINE)
_DONE, _REJECTED, _RAISED = 0, 3, 4
_ATTACH_S = 30.0


@dataclass
class Tally:
    """The results of some points. ``faults`` describes each point with a wrong result."""

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
    """Return why no call can be stopped here; None if it can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    argv = [strace, "-o", "/dev/null", "-e", "inject=getpid:error=EPERM:when=1", "true"]
    tried = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return f"strace may not trace here: {tried.stderr[:200]}" if tried.returncode else None


class ChildResult(NamedTuple):
    """The exit status of a stopped child and its last message, ``done`` if it acknowledged."""

    status: int
    message: str


def _fork(operation: Operation, artifacts: ArtifactStore) -> tuple[int, int, int]:
    """Fork a child that acts when a byte comes; return its pid, the barrier, its messages."""
    go_read, go_write = os.pipe()
    said_read, said_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(go_read)
        os.close(said_write)
        return pid, go_write, said_read
    status, message = _RAISED, ""
    store.LOCK_TIMEOUT_S = 0.2  # a lock whose closing fails is held by this very process
    os.read(go_read, 1)
    try:
        operation.act(artifacts)
        status, message = _DONE, "done"
    except FlamegateError as error:
        status, message = _REJECTED, f"{error}"
    except BaseException as error:
        message = f"{type(error).__name__}: {error}"
    finally:
        with suppress(OSError):
            os.write(said_write, message.encode())
        os._exit(status)


def _trace(operation: Operation, artifacts: ArtifactStore, *options: str) -> ChildResult:
    pid, go, said = _fork(operation, artifacts)
    tracer = subprocess.Popen(["strace", "-q", *options, "-p", str(pid)], stderr=subprocess.DEVNULL)
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
    with os.fdopen(said, "rb") as pipe:
        message = pipe.read().decode("utf-8", "replace")
    return ChildResult(os.waitstatus_to_exitcode(status), message)


def _prepare(operation: Operation, state: str, place: Path) -> ArtifactStore:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    artifacts = ArtifactStore(place / ".flamegate")
    operations.prepare(artifacts, operation.states[state])
    return artifacts


def calls_of(operation: Operation, state: str, place: Path) -> Counter[str]:
    """Return how often the operation makes each system call, from the barrier to its end."""
    log = place.with_name(f"{place.name}.log")
    # Once before: what is imported only the first time does not belong to the operation.
    operation.act(_prepare(operation, state, place))
    ended = _trace(operation, _prepare(operation, state, place), "-o", str(log))
    if ended.status != _DONE:
        raise RuntimeError(f"{operation.name} over {state}: {ended.message}")
    calls = Counter(_CALL.findall(log.read_text("ascii", "replace")))
    log.unlink()
    calls["read"] -= 1  # the barrier
    del calls["exit_group"]
    return +calls


def stop(
    operation: Operation, state: str, call: str, number: int, place: Path, error: str | None = None
) -> Tally:
    """Kill the operation at its ``number``-th ``call``, check, and let the next run repeat it.

    With an ``error`` the call fails instead.
    """
    number += call == "read" and error is None
    rule = f"{'signal=SIGKILL' if error is None else f'error={error}'}:when={number}"
    artifacts = _prepare(operation, state, place)
    old = operation.view(artifacts)
    inject = f"inject={call}:{rule}"
    ended = _trace(operation, artifacts, "-e", f"trace={call}", "-e", inject, "-o", "/dev/null")
    killed = ended.status == -signal.SIGKILL
    faults = []
    observed, new = operation.view(artifacts), operation.expect(old)
    allowed = [*operation.old_views(state, old), *((new, *operation.between) if killed else ())]
    if ended.message == "done" and observed != new:
        faults.append(f"acknowledged and lost: {observed}")
    elif ended.status != _DONE and observed not in allowed:
        faults.append(f"neither old nor new: {observed} ({ended.message})")
    if not killed and ended.status not in (_DONE, _REJECTED):
        faults.append(f"it raised {ended.message}")
    faults += _repeat(operation, state, artifacts, observed)
    return Tally(
        points=1,
        killed=int(killed),
        acknowledged=int(ended.status == _DONE),
        refused=int(ended.status == _REJECTED),
        faults=[f"{operation.name} over {state}, {call} {rule}: {fault}" for fault in faults],
    )


def _repeat(
    operation: Operation, state: str, artifacts: ArtifactStore, observed: operations.View
) -> list[str]:
    faults = operation.find_touched(state, artifacts)
    if operation.lost_spoilt(artifacts):
        faults.append("the spoilt file is gone")
    try:
        operation.act(artifacts)
        artifacts.sweep()
    except FlamegateError as error:
        return [*faults, f"the next run fails: {error}"]
    if operation.view(artifacts) != operation.expect(observed):
        faults.append(f"the next run leaves {operation.view(artifacts)}")
    if operation.lost_spoilt(artifacts):
        faults.append("the spoilt file is gone after the next run")
    if left := operations.find_litter(artifacts):
        faults.append(f"leftovers were not swept: {left}")
    return faults + operation.find_touched(state, artifacts)

"""Locks between processes. The system releases them when their holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.receipt.disk import writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_S = 0.02
_PID_DIGITS = 16


@contextmanager
def lock(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock file ``path`` within the block; it stays in place afterwards.

    ToolError ``E_LOCK_TIMEOUT`` if another process holds it for ``timeout_s`` seconds,
    ``E_CANNOT_WRITE`` if the file cannot be made.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
    try:
        hold(descriptor, path, timeout_s)
        # The holder's pid is for the other's message only; a full disk must not stop us.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def directory_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the directory ``path`` itself within the block: no lock file is left in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        hold(descriptor, path, timeout_s)
        yield
    finally:
        os.close(descriptor)


def hold(descriptor: int, path: Path, timeout_s: float) -> None:
    """Lock the open file ``descriptor`` exclusively, until it is closed."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                raise
        else:
            return
        if time.monotonic() >= deadline_s:
            raise ToolError(
                "E_LOCK_TIMEOUT",
                f"{str(path)!a} has been locked for {timeout_s:g} s by {_holder(descriptor)}.",
                "Wait for that run to end, or end it.",
            )
        time.sleep(_POLL_S)


def _holder(descriptor: int) -> str:
    with suppress(OSError):
        pid = os.pread(descriptor, _PID_DIGITS, 0).strip()
        if pid.isdigit():
            return f"process {pid.decode('ascii')}"
    return "another process"

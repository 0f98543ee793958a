"""Locks between processes. The system releases them when their holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import close, make_directory, write_errors

if TYPE_CHECKING:
    from collections.abc import Iterator


_FIRST_POLL_S, _POLL_S = 0.001, 0.02
_PID_DIGITS = 16
_LOCKS = Path("/proc/locks")


@contextmanager
def lock_file(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock file ``path`` within the block; the file is left in place.

    Raises:
        ToolError: ``E_LOCK_TIMEOUT`` if another process holds it for ``timeout_s`` seconds,
            ``E_CANNOT_WRITE`` if the file cannot be made.
    """
    with write_errors(path):
        make_directory(path.parent)
        descriptor = _open_locked(path, timeout_s)
    try:
        write_holder(descriptor)
        yield
    finally:
        close(descriptor)


def _open_locked(path: Path, timeout_s: float) -> int:
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
        try:
            acquire_lock(descriptor, path, timeout_s)
            if is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            close(descriptor)
            raise
        # Another process removed the file during the wait: this lock has no name any more.
        close(descriptor)


@contextmanager
def lock_directory(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the directory ``path`` itself within the block, without a lock file in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        acquire_lock(descriptor, path, timeout_s)
        yield
    finally:
        close(descriptor)


def acquire_lock(descriptor: int, path: Path, timeout_s: float) -> None:
    """Lock the open file ``descriptor`` exclusively, until it is closed.

    Raises ``ToolError`` ``E_LOCK_TIMEOUT``, which names ``path`` and the holder.
    """
    deadline_s = time.monotonic() + timeout_s
    poll_s = _FIRST_POLL_S
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
                f"{str(path)!a} has been locked for {timeout_s:g} s by "
                f"{describe_holder(descriptor)}.",
                "Wait for that run to end, or end it.",
            )
        time.sleep(poll_s)
        poll_s = min(2 * poll_s, _POLL_S)


def write_holder(descriptor: int) -> None:
    """Write this process's id into a lock file, for systems without ``/proc/locks``."""
    # The id is only shown in a message; a full disk must not stop the run.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)


def describe_holder(descriptor: int) -> str:
    """Return the holder of the lock on the open file ``descriptor``: ``process 4711``."""
    with suppress(OSError, ValueError):
        pid = _holder_by_proc(os.fstat(descriptor)) or int(os.pread(descriptor, _PID_DIGITS, 0))
        if pid > 0:
            return f"process {pid}"
    return "another process"


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether ``path`` still names the open file ``descriptor``."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))


def _holder_by_proc(file: os.stat_result) -> int:
    """Return the process that holds a lock on ``file`` according to Linux, 0 if unknown."""
    inode = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with suppress(OSError):
        for line in _LOCKS.read_text("ascii", "replace").splitlines():
            # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131081 0 EOF
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == inode:
                return int(words[4])
    return 0

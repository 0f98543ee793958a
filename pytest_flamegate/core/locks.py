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
    """Hold the lock file ``path`` within the block; it stays in place afterwards.

    ToolError ``E_LOCK_TIMEOUT`` if another process holds it for ``timeout_s`` seconds,
    ``E_CANNOT_WRITE`` if the file cannot be made.
    """
    with write_errors(path):
        make_directory(path.parent)
        descriptor = open_locked(path, os.O_RDWR, timeout_s)
    try:
        write_holder(descriptor)
        yield
    finally:
        close(descriptor)


@contextmanager
def lock_directory(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the directory ``path`` itself within the block: no lock file is left in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        acquire_lock(descriptor, path, timeout_s)
        yield
    finally:
        close(descriptor)


def open_locked(path: Path, flags: int, timeout_s: float) -> int:
    """Return the open file ``path``, made if there is none and locked until it is closed.

    Raises ``OSError`` where the system refuses, ``ToolError`` ``E_LOCK_TIMEOUT``.
    """
    while True:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            acquire_lock(descriptor, path, timeout_s)
            if is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            close(descriptor)
            raise
        # Somebody removed it while we waited: what is locked now has no name any more.
        close(descriptor)


def acquire_lock(descriptor: int, path: Path, timeout_s: float) -> None:
    """Lock the open file ``descriptor`` exclusively, until it is closed."""
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
    """Write this process's pid into a lock file, for those whom ``/proc/locks`` does not tell."""
    # It is for their message only; a full disk must not stop us.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)


def describe_holder(descriptor: int) -> str:
    """Return who holds the lock on the open file ``descriptor``, in words."""
    with suppress(OSError, ValueError):
        pid = _locking(os.fstat(descriptor)) or _noted(descriptor)
        if pid > 0:
            return f"process {pid}"
    return "another process"


def is_same_file(descriptor: int, path: Path) -> bool:
    """Say whether ``path`` still names the open file ``descriptor``."""
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _locking(file: os.stat_result) -> int:
    """Return the process that Linux says holds a lock on ``file``; 0 where it does not say."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with suppress(OSError):
        for line in _LOCKS.read_text("ascii", "replace").splitlines():
            # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131081 0 EOF
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == place:
                return int(words[4])
    return 0


def _noted(descriptor: int) -> int:
    return int(os.pread(descriptor, _PID_DIGITS, 0))

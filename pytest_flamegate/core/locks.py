"""Locks between processes. The system releases them when their holder dies."""

from __future__ import annotations

import fcntl
import os
import platform
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from pytest_flamegate.core.errors import ToolError, UsageError, reason_of
from pytest_flamegate.core.files import close, read_system_text, write_errors

_FIRST_POLL_S, _POLL_S = 0.001, 0.02
_ANNOUNCED_S = 30.0
_LOCKS = Path("/proc/locks")
LOCK_DIRECTORY = "FLAMEGATE_LOCK_DIR"
"""Names another directory for the machine's lock: one that its containers share."""
_SHARED_DIRECTORY = "/tmp"  # noqa: S108 - the one place that all users share
_MACHINE_TIMEOUT_S = 3600.0


@contextmanager
def machine_lock(
    announce: Callable[[str], None], timeout_s: float = _MACHINE_TIMEOUT_S
) -> Iterator[None]:
    """Hold the machine within the block: two measurements at a time would measure each other.

    The lock is a file in ``/tmp``, whatever ``TMPDIR`` says, so that all users and their builds
    wait for one another. Every user may write there, so no link is followed, and a file that
    has another name somewhere is not written.

    ``announce`` is called with the holder when this begins to wait, and twice a minute from then
    on; or with the reason why only this user's own runs are waited for.

    Raises ``ToolError`` ``E_LOCK_TIMEOUT``, and ``UsageError`` ``E_NOT_LINUX`` on another system.
    """
    if (system := platform.system()) != "Linux":
        raise UsageError("E_NOT_LINUX", f"Measuring needs Linux, and this is {system}.")
    path = Path(os.environ.get(LOCK_DIRECTORY) or _SHARED_DIRECTORY, "flamegate.lock")
    try:
        descriptor = _hold(path, timeout_s, announce)
    except OSError as error:
        announce(
            f"{path} cannot be the machine's lock ({reason_of(error)}): "
            "only runs of this user with the same TMPDIR wait for one another"
        )
        path = Path(tempfile.gettempdir(), f"flamegate-{os.getuid()}.lock")
        with write_errors(path):
            descriptor = _hold(path, timeout_s)
    try:
        yield
    finally:
        close(descriptor)


def _hold(path: Path, timeout_s: float, announce: Callable[[str], None] | None = None) -> int:
    """Return the open file ``path``, locked."""
    while True:
        descriptor = _open(path)
        try:
            acquire_lock(descriptor, path, timeout_s, announce)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            close(descriptor)
            raise
        # Another process removed the file during the wait: this lock has no name any more.
        close(descriptor)


def _open(path: Path) -> int:
    # Opened without O_CREAT first: Linux refuses that on another user's file in a directory
    # that every user may write to (fs.protected_regular).
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        with suppress(FileExistsError):
            made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            os.fchmod(made, 0o666)
            return made
        descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        close(descriptor)
        raise OSError(None, "it is no plain file")
    return descriptor


@contextmanager
def lock_directory(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the directory ``path`` itself within the block, without a lock file in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        acquire_lock(descriptor, path, timeout_s)
        yield
    finally:
        close(descriptor)


def acquire_lock(
    descriptor: int, path: Path, timeout_s: float, announce: Callable[[str], None] | None = None
) -> None:
    """Lock ``descriptor`` until it is closed; ``E_LOCK_TIMEOUT`` names ``path`` and the holder."""
    began_s = announce_at_s = time.monotonic()
    poll_s = _FIRST_POLL_S
    while not _try_lock(descriptor):
        waited_s = time.monotonic() - began_s
        if announce is not None and began_s + waited_s >= announce_at_s:
            so_far = f" ({waited_s:.0f} s so far)" if announce_at_s > began_s else ""
            holder = describe_holder(descriptor)
            announce(
                f"waiting for {holder} to end its measurement on this machine, at most "
                f"{timeout_s / 60:.0f} minutes{so_far}; Ctrl-C gives up"
            )
            announce_at_s += _ANNOUNCED_S
        if waited_s >= timeout_s:
            raise ToolError(
                "E_LOCK_TIMEOUT",
                f"{str(path)!a} has been locked for {timeout_s:g} s by "
                f"{describe_holder(descriptor)}.",
            )
        time.sleep(poll_s)
        poll_s = min(2 * poll_s, _POLL_S)


def _try_lock(descriptor: int) -> bool:
    """Lock the open file unless another holds it; a lock that is held already is kept."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def describe_holder(descriptor: int) -> str:
    """Return the holder of the lock: ``process 4711 (flamegate, since 22:10:05)``.

    The time is that of its start. Linux does not name a holder in another container.
    """
    file = os.fstat(descriptor)
    inode = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in read_system_text(_LOCKS).splitlines():
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131081 0 EOF
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == inode and int(words[4]) > 0:
            return f"process {words[4]}{_describe_process(int(words[4]))}"
    return "another process"


def _describe_process(pid: int) -> str:
    """Return its name and its start; its arguments may hold secrets, and logs may be public."""
    try:
        process = psutil.Process(pid)
        name = process.name()
        since = time.strftime("%H:%M:%S", time.localtime(process.create_time()))
    except psutil.Error:
        return ""
    return f" ({name if name.isprintable() else '?'}, since {since})"

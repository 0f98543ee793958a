"""The few file operations that durable storage is made of."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_flamegate.errors import FlamegateError, ReceiptError, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}

_TODO = {
    errno.ENOSPC: "Free some space, or write elsewhere (--flamegate-dir).",
    errno.EDQUOT: "Free some of your quota, or write elsewhere (--flamegate-dir).",
    errno.EROFS: "Write to a place that is not read-only (--flamegate-dir).",
    errno.EACCES: "Change the permissions, or write elsewhere (--flamegate-dir).",
    errno.EPERM: "Change the permissions, or write elsewhere (--flamegate-dir).",
    errno.ENOTDIR: "Move the file away that stands where a directory is needed.",
    errno.EEXIST: "Move away what stands there.",
    errno.ELOOP: "Replace the symbolic link by what it points to.",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError within the block into a ToolError about ``path``."""
    try:
        yield
    except OSError as error:
        raise ToolError(
            "E_CANNOT_WRITE",
            f"{str(path)!a} cannot be written: {error.strerror or error}.",
            _TODO.get(error.errno or 0, "Repair that, or write elsewhere (--flamegate-dir)."),
        ) from error


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of the regular file ``path``.

    A symbolic link is not followed, a device or pipe not waited for, and no more than
    ``limit`` bytes are taken. ToolError where the system refuses; ReceiptError where
    what stands there is no regular file or too large.
    """
    return read_at(None, os.fspath(path), path, limit)


def read_at(directory: int | None, name: str, path: Path, limit: int) -> bytes:
    """Read ``name`` in the open ``directory`` like ``read_bounded``; ``path`` is for messages."""
    descriptor = -1
    try:
        # Looked at before it is opened: to open some devices is to do something already.
        _refuse_special(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=directory)
        found = os.fstat(descriptor)
        _refuse_special(found, path)
        # A sparse file of a terabyte need not be read to be known as too large.
        return _read(descriptor, path, limit) if found.st_size <= limit else _too_large(path, limit)
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error
    finally:
        if descriptor >= 0:
            close(descriptor)


def _refuse_special(found: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise ReceiptError(
            "E_NOT_A_FILE", f"{str(path)!a} is no regular file.", "Give the path of a file."
        )


def _read(descriptor: int, path: Path, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit + 1
    while left > 0:
        part = os.read(descriptor, min(left, 1 << 20))
        if not part:
            return b"".join(parts)
        parts.append(part)
        left -= len(part)
    return _too_large(path, limit)


def _too_large(path: Path, limit: int) -> NoReturn:
    raise ReceiptError(
        "E_TOO_LARGE",
        f"{str(path)!a} has more than the {limit:,} bytes allowed.",
        "Give the file that the run wrote; none of them is that large.",
    )


def cannot_read(path: Path, error: OSError | ValueError) -> FlamegateError:
    """Return the ToolError that says why ``path`` cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        reason = "it is a symbolic link"
    return ToolError(
        "E_CANNOT_READ",
        f"{str(path)!a} cannot be read: {reason}.",
        "Check the path and its permissions.",
    )


def write_synced(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Create ``path`` with ``data`` and wait until the disk has it; OSError if it exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``; OSError where the system takes no more."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in the directory ``path``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        close(descriptor)


def close(descriptor: int) -> None:
    """Close what nothing more is written to; the system closes it even where it complains."""
    with suppress(OSError):
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make ``path`` and what is missing above it, so that the disk keeps their names too.

    A name is synced before anything is put under it. So a directory that holds something
    needs no sync, whoever made it, and one that is empty gets one: its maker may have been
    killed before his.
    """
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        if next(entries, None) is None:
            # Only its maker needs the name to last, and he could read what is above it.
            with suppress(PermissionError):
                sync_directory(path.parent)
        return
    make_directory(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_directory(path.parent)


def refuse_symlink(path: Path) -> None:
    """Raise OSError where ``path`` is a symbolic link: its target may be anywhere."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system or file system cannot."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    import ctypes

    names = (os.fsencode(one), os.fsencode(other))
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


@cache
def _renameat2() -> Any:
    """Return the C library's renameat2, None where there is none: Python does not offer it."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = (
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        )
    return function


def create(path: Path, data: bytes, *, mode: int) -> None:
    """Make the file ``path`` with ``data``, all or nothing, where nothing stands yet.

    ``mode`` says who may use it, from the start. ToolError ``E_CANNOT_WRITE`` where the
    system refuses or something stands there, be it a link that leads nowhere.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(6)}")
        try:
            write_synced(fresh, data, mode)
            path.hardlink_to(fresh)  # unlike a rename it takes nobody's place
        finally:
            fresh.unlink(missing_ok=True)
        sync_directory(path.parent)

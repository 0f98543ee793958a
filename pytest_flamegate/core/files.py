"""The few file operations that durable storage is made of."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_flamegate.core.errors import FlamegateError, ReceiptError, ToolError

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
def write_errors(path: Path) -> Iterator[None]:
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
        raise read_error(path, error) from error
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


def read_error(path: Path, error: OSError | ValueError) -> FlamegateError:
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


def require_no_link(path: Path) -> None:
    """Raise OSError where ``path`` is a symbolic link: its target may be anywhere."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))


def exchange_names(one: Path, other: Path) -> bool:
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


def create_file(path: Path, data: bytes, *, mode: int) -> None:
    """Make the file ``path`` with ``data``, all or nothing, where nothing stands yet.

    ``mode`` says who may use it, from the start. ToolError ``E_CANNOT_WRITE`` where the
    system refuses or something stands there, be it a link that leads nowhere.
    """
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(6)}")
        try:
            write_synced(fresh, data, mode)
            path.hardlink_to(fresh)  # unlike a rename it takes nobody's place
        finally:
            fresh.unlink(missing_ok=True)
        sync_directory(path.parent)


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OpenDirectory:
    """An open directory: the same one however its name is used by now."""

    path: Path
    descriptor: int

    def holds(self, name: str) -> bool:
        """Say whether anything stands here under ``name``, be it a link that leads nowhere."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return True

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of the regular file ``name``; raises what ``read_bounded`` does."""
        return read_at(self.descriptor, _plain(name), self.path / name, limit)


@contextmanager
def open_directory(path: Path) -> Iterator[OpenDirectory]:
    """Open the directory that ``path`` leads to, by whatever links; ToolError if it is none."""
    with _open(None, os.fspath(path), path) as directory:
        yield directory


def read_beneath(root: Path, *parts: str, limit: int) -> bytes:
    """Return the content of the regular file ``parts`` beneath ``root``.

    No part may be a symbolic link, ``..`` or hold a slash. ToolError ``E_CANNOT_READ`` or
    ``E_BAD_NAME``, or what ``read_bounded`` raises.
    """
    *above, name = parts
    with open_directory(root) as directory:
        return _descend(directory, above, name, limit)


def _descend(directory: OpenDirectory, above: list[str], name: str, limit: int) -> bytes:
    if not above:
        return directory.read(name, limit)
    first, *rest = above
    with _open(directory.descriptor, _plain(first), directory.path / first) as inner:
        return _descend(inner, rest, name, limit)


@contextmanager
def _open(above: int | None, name: str, path: Path) -> Iterator[OpenDirectory]:
    flags = _DIRECTORY if above is None else _DIRECTORY | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, dir_fd=above)
    except (OSError, ValueError) as error:
        # Linux says of a link that it is no directory; which of the two it is, is not asked
        # for: by then it may be another.
        if above is not None and isinstance(error, OSError) and error.errno == errno.ENOTDIR:
            error = OSError(errno.ENOTDIR, "it is no directory, or a symbolic link to one")
        raise read_error(path, error) from error
    try:
        yield OpenDirectory(path, descriptor)
    finally:
        os.close(descriptor)


def _plain(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise ToolError(
            "E_BAD_NAME",
            f"{name!a} is no name of a file or directory.",
            "Use a name without slashes.",
        )
    return name


def require_confined(root: Path, path: Path) -> Path:
    """Return ``path``, which lies below ``root``.

    ToolError ``E_CANNOT_WRITE`` where it does not, or where ``root``, ``path`` or a directory
    between the two is a symbolic link: a repository may hold one, and what is written
    would land wherever it points to.
    """
    with write_errors(path):
        names = path.relative_to(root).parts if path.is_relative_to(root) else ("..",)
        if ".." in names:
            raise OSError(errno.EXDEV, f"it does not lie in {os.fspath(root)!a}")
        place = root
        require_no_link(place)
        for name in names:
            place /= name
            require_no_link(place)
    return path


_LEFT = re.compile(r"\.(?P<name>.+)\.(?P<role>new|old)-[0-9a-f]{12}", re.DOTALL)
_PROBE = re.compile(r"\.flamegate-probe-[0-9a-f]{12}")


def new_name(path: Path) -> Path:
    """Return an unused name for what is on its way to ``path``, or out of it: swept."""
    return path.with_name(f".{path.name}.new-{secrets.token_hex(6)}")


def old_name(path: Path) -> Path:
    """Return an unused name for what goes back to ``path`` if the writer is killed."""
    return path.with_name(f".{path.name}.old-{secrets.token_hex(6)}")


def corrupt_name(path: Path) -> Path:
    """Return an unused name for what is spoilt at ``path``. Nothing ever removes it."""
    # Microseconds keep two of one second apart; the writer's lock does the rest.
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return path.with_name(f".{path.name}.corrupt-{stamp}")


def probe_name(directory: Path) -> Path:
    """Return an unused name for a file that only tries whether ``directory`` can be written."""
    return directory / f".flamegate-probe-{secrets.token_hex(6)}"


def recover(directory: Path, name: str | None = None) -> None:
    """Bring back what ``name`` lost and remove what else killed writers left, under the lock.

    Without a name, of all of them. ``OSError`` where something cannot be brought back or
    taken out of the way of that; what only takes up space may stay.
    """
    for entry, named, role in _left(directory):
        if name not in (None, named):
            continue
        if role == "old" and not os.path.lexists(directory / named):
            entry.rename(directory / named)
        elif role == "old":
            gone = new_name(directory / named)
            # Half removed it must not come back.
            entry.rename(gone)
            discard(gone)
        else:
            discard(entry)


def remove_probes(directory: Path) -> None:
    """Remove the probes that killed writers left, under the lock."""
    for entry in list(directory.iterdir()):
        if _PROBE.fullmatch(entry.name):
            discard(entry)


def discard(path: Path) -> None:
    """Remove the file or directory ``path`` as far as the system lets us."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _left(directory: Path) -> Iterator[tuple[Path, str, str]]:
    for entry in sorted(directory.iterdir()):
        found = _LEFT.fullmatch(entry.name)
        if found is not None:
            yield entry, found["name"], found["role"]

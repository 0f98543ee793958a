"""Read files that others may have written, write files that outlive a crash, and cache values."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_flamegate.core.errors import (
    SYSTEM_REMEDIES,
    FlamegateError,
    ReceiptError,
    ToolError,
    reason_of,
)

MAX_BYTES = 64 << 20
"""The largest file that is read, unless less is expected: evidence of many runs."""
MOST_COPIED = 200_000_000
"""Bytes of a library that is copied for each process."""
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of a file system without hard links, such as vfat."""


# --- Paths -------------------------------------------------------------------------------------


def is_file(path: Path) -> bool:
    """Whether ``path`` is a file.

    ``Path.is_file`` raises, up to Python 3.13, if a name is too long for any file or if a
    directory above may not be read.
    """
    return os.path.isfile(path)  # noqa: PTH113


def is_directory(path: Path) -> bool:
    """Whether ``path`` is a directory. ``Path.is_dir`` raises as ``Path.is_file`` does."""
    return os.path.isdir(path)  # noqa: PTH112


def path_text(path: Path | str) -> str:
    """Return a path as text that can be printed, whatever bytes its name holds."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def real_path(path: Path) -> Path:
    """Return ``path`` with every link followed; a loop of links stays as it is.

    ``Path.resolve`` raises on such a loop, up to Python 3.12.
    """
    return type(path)(os.path.realpath(path))


def relative(path: Path, root: Path) -> str:
    """Return ``path`` as seen from ``root``, absolute if it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


# --- Reading -----------------------------------------------------------------------------------


def read_bounded(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of the regular file ``path``, which has at most ``limit`` bytes.

    A symbolic link is not followed, and a pipe or a device is not opened. Raises ``ToolError``
    ``E_CANNOT_READ``, and ``ReceiptError`` of the same code or ``E_TOO_LARGE``.
    """
    return _read_at(None, os.fspath(path), path, limit)


def read_beneath(root: Path, *parts: str, limit: int) -> bytes:
    """Return the content of the regular file ``parts`` beneath ``root``.

    No part may be a symbolic link. Raises ``E_BAD_NAME`` for a part that is ``..`` or contains a
    slash, and otherwise the errors of ``read_bounded``.
    """
    *above, name = parts
    with ExitStack() as stack:
        directory = stack.enter_context(open_directory(root))
        for each in above:
            inner = _open_at(directory.descriptor, _plain_name(each), directory.path / each)
            directory = stack.enter_context(inner)
        return directory.read(name, limit)


@dataclass(frozen=True, slots=True)
class OpenDirectory:
    """An open directory: it stays the same one if another takes its name."""

    path: Path
    descriptor: int

    def holds(self, name: str) -> bool:
        """Whether an entry ``name`` exists, even if it is a dangling link."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return True

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of the regular file ``name``; raises what ``read_bounded`` does."""
        return _read_at(self.descriptor, _plain_name(name), self.path / name, limit)


@contextmanager
def open_directory(path: Path) -> Iterator[OpenDirectory]:
    """Open the directory that ``path`` leads to; ``ToolError`` ``E_CANNOT_READ`` if it is none."""
    with _open_at(None, os.fspath(path), path) as directory:
        yield directory


def read_system_text(path: Path) -> str:
    """Return the text of a small file of the system, stripped; empty if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def read_error(path: Path, error: OSError | ValueError) -> FlamegateError:
    """Return the ToolError for a file that cannot be read."""
    is_link = isinstance(error, OSError) and error.errno == errno.ELOOP
    reason = "it is a symbolic link" if is_link else reason_of(error)
    return ToolError("E_CANNOT_READ", f"{str(path)!a} cannot be read: {reason}.")


def _read_at(directory: int | None, name: str, path: Path, limit: int) -> bytes:
    descriptor = -1
    try:
        # Checked before it is opened as well: opening some devices has effects.
        _require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
        descriptor = os.open(name, _READ_FLAGS, dir_fd=directory)
        status = os.fstat(descriptor)
        _require_regular(status, path)
        # A sparse file of a terabyte need not be read to be too large.
        data = _read(descriptor, limit + 1) if status.st_size <= limit else None
    except (OSError, ValueError) as error:
        raise read_error(path, error) from error
    finally:
        if descriptor >= 0:
            close(descriptor)
    if data is None or len(data) > limit:
        raise ReceiptError(
            "E_TOO_LARGE", f"{str(path)!a} has more than the {limit:,} bytes allowed."
        )
    return data


def _require_regular(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise ReceiptError("E_CANNOT_READ", f"{str(path)!a} is no regular file.")


def _read(descriptor: int, most: int) -> bytes:
    """Return at most ``most`` bytes; no more memory is taken than the file has bytes."""
    parts: list[bytes] = []
    while most > 0 and (part := os.read(descriptor, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


@contextmanager
def _open_at(above: int | None, name: str, path: Path) -> Iterator[OpenDirectory]:
    flags = _DIRECTORY_FLAGS if above is None else _DIRECTORY_FLAGS | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, dir_fd=above)
    except (OSError, ValueError) as error:
        # Linux reports a link as "not a directory". A second look could meet another entry.
        if above is not None and isinstance(error, OSError) and error.errno == errno.ENOTDIR:
            error = OSError(errno.ENOTDIR, "it is no directory, or a symbolic link to one")
        raise read_error(path, error) from error
    try:
        yield OpenDirectory(path, descriptor)
    finally:
        close(descriptor)


def _plain_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise ToolError("E_BAD_NAME", f"{name!a} is no name of a file or directory.")
    return name


# --- Writing -----------------------------------------------------------------------------------


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError within the block into a ToolError ``E_CANNOT_WRITE`` about ``path``."""
    try:
        yield
    except OSError as error:
        raise ToolError(
            "E_CANNOT_WRITE",
            f"{str(path)!a} cannot be written: {reason_of(error)}.",
            SYSTEM_REMEDIES.get(error.errno or 0, ""),
        ) from error


def require_confined(root: Path, path: Path) -> Path:
    """Return ``path``, which is below ``root`` with no symbolic link on the way.

    A repository may contain a link, and a file written through it would land anywhere. Raises
    ``ToolError`` ``E_CANNOT_WRITE`` if ``path`` is not below ``root`` or a part is a link.
    """
    with write_errors(path):
        names = path.relative_to(root).parts if path.is_relative_to(root) else ("..",)
        if ".." in names:
            raise OSError(errno.EXDEV, f"it does not lie in {os.fspath(root)!a}")
        for count in range(len(names) + 1):
            require_no_link(root.joinpath(*names[:count]))
    return path


def require_no_link(path: Path) -> None:
    """Raise OSError if ``path`` is a symbolic link."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))


def create_file(path: Path, data: bytes, *, mode: int) -> None:
    """Create ``path``, all or nothing; ``ToolError`` ``E_CANNOT_WRITE`` if even a link is there."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(6)}")
        try:
            write_synced(fresh, data, mode)
            try:
                path.hardlink_to(fresh)  # unlike a rename it replaces nothing
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                path.touch(exist_ok=False)  # fails if the name is taken
                try:
                    fresh.replace(path)
                except OSError:
                    path.unlink()
                    raise
        finally:
            fresh.unlink(missing_ok=True)
        sync_directory(path.parent)


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
    """Write all of ``data``; OSError if the system accepts no more."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def make_directory(path: Path) -> None:
    """Make ``path`` and the directories above it, durably.

    A name is synced before anything is put under it. So a directory with an entry needs no sync.
    An empty one gets one, because its maker may have been killed before the sync.
    """
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        if next(entries, None) is None:
            # Only its maker needs the name to last, and the maker could read the one above.
            with suppress(PermissionError):
                sync_directory(path.parent)
        return
    make_directory(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in the directory ``path``."""
    descriptor = os.open(path, _DIRECTORY_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        close(descriptor)


def close(descriptor: int) -> None:
    """Close a descriptor that is not written to any more, ignoring errors."""
    with suppress(OSError):
        os.close(descriptor)


# --- Cached values -----------------------------------------------------------------------------

_MAX_CACHED = 256
_MAX_CACHED_BYTES = 4096


def read_cached(kind: str, key: str) -> str | None:
    """Return the value of ``key`` among the cached values of ``kind``; None if it is not there."""
    with suppress(ValueError, FlamegateError):
        return read_bounded(_cache_file(kind, key), _MAX_CACHED_BYTES).decode("ascii")
    return None


def write_cached(kind: str, key: str, value: str) -> None:
    """Store a value, with the 255 latest others; errors are ignored, because it is only a cache."""
    with suppress(OSError, ValueError):
        path = _cache_file(kind, key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{secrets.token_hex(6)}")
        try:
            write_synced(fresh, value.encode("ascii"))
            fresh.replace(path)  # a reader sees either of the two
        finally:
            fresh.unlink(missing_ok=True)
        by_age = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for old in by_age[:-_MAX_CACHED]:
            old.unlink()


def _cache_file(kind: str, key: str) -> Path:
    """Return the file of a cached value; ValueError if the user has no directory for it."""
    # The XDG specification ignores a relative path. Path.home() raises if there is no home.
    named = os.environ.get("XDG_CACHE_HOME", "")
    place = named if os.path.isabs(named) else os.path.expanduser("~/.cache")  # noqa: PTH111, PTH117
    if not os.path.isabs(place):  # noqa: PTH117
        raise ValueError("the user has no home")
    return Path(place, "pytest-flamegate", kind, hashlib.sha256(key.encode()).hexdigest())

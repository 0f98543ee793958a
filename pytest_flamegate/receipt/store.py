"""The one place that writes what must survive.

After a crash at any point, a file holds all of its old or all of its new content, and
a published directory the files of one run or of the other, never of both. A write that
fails leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.receipt import disk
from pytest_flamegate.receipt.disk import (
    read_bounded,
    refuse_symlink,
    sync_directory,
    write_all,
    write_synced,
    writing,
)
from pytest_flamegate.receipt.locks import directory_lock, hold, lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "append_line",
    "clear",
    "ensure_gitignore",
    "inside",
    "lock",
    "probe",
    "publish",
    "read_bounded",
    "write_atomic",
]

LOCK_TIMEOUT_S = 30.0

_GITIGNORE = b"""\
# Written by flamegate: of its files only accepted baselines and calibrations belong in git.
*
!baselines/
!baselines/**
baselines/**/.*
!calibration/
!calibration/**
calibration/**/.*
"""
_GITIGNORE_OURS = b"# Written by flamegate"
_GITIGNORE_MAX_BYTES = 64 << 10
_PROBE = bytes(1 << 20)
"""As much as the files of one run."""


def inside(root: Path, name: str) -> Path:
    """Return ``root / name`` where ``name`` is one plain name; ToolError for any other.

    Names come from workload files: ``../x``, ``a/b`` and the empty name lead elsewhere.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name or name.startswith("."):
        raise ToolError(
            "E_BAD_NAME",
            f"{name!a} is no name for a file or directory.",
            "Use a name without slashes that does not start with a dot.",
        )
    return root / name


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``, all or nothing; directories above it are made.

    ToolError ``E_CANNOT_WRITE`` where the system refuses or ``path`` is no regular file: a
    device or a pipe would be replaced by one.
    """
    with writing(path):
        refuse_symlink(path)
        _refuse_special(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with directory_lock(path.parent, LOCK_TIMEOUT_S):
            for left in _siblings(path, "new"):
                left.unlink()
            fresh = _sibling(path, "new")
            try:
                write_synced(fresh, data)
                fresh.replace(path)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise
            sync_directory(path.parent)


def publish(directory: Path, files: Mapping[str, bytes]) -> None:
    """Make ``directory`` hold exactly ``files`` (name to content), in one step.

    The files are written beside it first and the two directories then swapped, so
    nobody ever sees files of two runs together; nothing of the earlier run stays.
    ToolError ``E_CANNOT_WRITE`` where the system refuses (what was there stays),
    ``E_LOCK_TIMEOUT`` where another process is publishing for too long.
    """
    for name in files:
        inside(directory, name)
    with writing(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with directory_lock(directory.parent, LOCK_TIMEOUT_S):
            _refuse_other_than_directory(directory)
            _recover(directory)
            fresh = _sibling(directory, "new")
            try:
                fresh.mkdir()
                for name, data in files.items():
                    write_synced(fresh / name, data)
                sync_directory(fresh)
                _swap(fresh, directory)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
            sync_directory(directory.parent)
            _sweep(directory)


def clear(directory: Path) -> None:
    """Remove a published ``directory``, all at once; nothing happens if there is none.

    To be called before a run begins: a run that fails then leaves no earlier result
    that could be taken for its own.
    """
    with writing(directory):
        if not directory.parent.is_dir():
            return
        with directory_lock(directory.parent, LOCK_TIMEOUT_S):
            _refuse_other_than_directory(directory)
            if directory.exists():
                directory.rename(_sibling(directory, "new"))
                sync_directory(directory.parent)
            _sweep(directory)


def probe(directory: Path) -> None:
    """Write, sync and remove a file in ``directory``, or where it will be made.

    To be called before a run begins: ToolError ``E_CANNOT_WRITE`` now saves the wait for
    the same after it. Nothing is left, and nothing that stands there is touched.
    """
    with writing(directory):
        place = directory
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        path = place / f".flamegate-probe-{secrets.token_hex(6)}"
        try:
            write_synced(path, _PROBE)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise
        path.unlink()


def append_line(path: Path, line: bytes) -> None:
    """Append ``line`` and a newline to ``path``, durably and whole, whoever else appends.

    A line that a crash cut off earlier is ended first. ToolError ``E_CANNOT_WRITE``
    where the system refuses: the file then is as long as before.
    """
    if b"\n" in line:
        raise ToolError(
            "E_NOT_ONE_LINE", "A record holds a newline.", "Write a record as one line of JSON."
        )
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
        try:
            hold(descriptor, path, LOCK_TIMEOUT_S)
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            try:
                write_all(descriptor, b"\n" * torn + line + b"\n")
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
            if size == 0:
                sync_directory(path.parent)
        finally:
            os.close(descriptor)


def ensure_gitignore(root: Path) -> None:
    """Keep everything in ``root`` but ``baselines/`` and ``calibration/`` out of git.

    A ``.gitignore`` that somebody else wrote is left as it is.
    """
    path = root / ".gitignore"
    if path.is_symlink() or path.exists():
        present = read_bounded(path, _GITIGNORE_MAX_BYTES)
        if present == _GITIGNORE or not present.startswith(_GITIGNORE_OURS):
            return
    write_atomic(path, _GITIGNORE)


def _sibling(path: Path, role: str) -> Path:
    """Return an unused hidden name beside ``path``: same file system, same directory."""
    return path.with_name(f".{path.name}.{role}-{secrets.token_hex(6)}")


def _siblings(path: Path, role: str) -> Iterator[Path]:
    prefix = f".{path.name}.{role}-"
    for entry in sorted(path.parent.iterdir()):
        if entry.name.startswith(prefix):
            yield entry


def _swap(fresh: Path, directory: Path) -> None:
    """Put ``fresh`` in the place of ``directory``; what stood there goes to a hidden name."""
    if not directory.exists():
        fresh.rename(directory)
    elif not disk.exchange(fresh, directory):
        # Two steps where there is no single one. Between them no result is to be seen,
        # and after a crash there the next publish brings the earlier one back.
        old = _sibling(directory, "old")
        directory.rename(old)
        try:
            fresh.rename(directory)
        except BaseException:
            old.rename(directory)
            raise


def _recover(directory: Path) -> None:
    """Bring back what a crash between the two steps of a swap left under a hidden name."""
    for old in _siblings(directory, "old"):
        if not directory.exists():
            old.rename(directory)
    _sweep(directory)


def _sweep(directory: Path) -> None:
    """Remove what writers that were killed left behind; the lock says that none is at work."""
    for role in ("new", "old"):
        for left in _siblings(directory, role):
            shutil.rmtree(left, ignore_errors=True)


def _refuse_special(path: Path) -> None:
    if path.exists() and not stat.S_ISREG(path.lstat().st_mode) and not path.is_dir():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _refuse_other_than_directory(path: Path) -> None:
    refuse_symlink(path)
    if path.exists() and not stat.S_ISDIR(path.lstat().st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

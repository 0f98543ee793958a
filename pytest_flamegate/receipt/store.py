"""The one place that writes what must survive.

After a crash at any point, a file holds all of its old or all of its new content, and
a published directory the files of one run or of the other, never of both. A write that
fails leaves what was there before. What is spoilt is set aside under a hidden name when
something else is to stand in its place, and nothing removes it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_flamegate.core import files
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import (
    close,
    make_directory,
    read_bounded,
    require_no_link,
    sync_directory,
    write_all,
    write_errors,
    write_synced,
)
from pytest_flamegate.core.locks import lock_directory, open_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


__all__ = [
    "append_line",
    "child_path",
    "clear",
    "ensure_gitignore",
    "publish",
    "read_bounded",
    "require_writable",
    "sweep",
    "sweep_probes",
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


def child_path(root: Path, name: str) -> Path:
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


def write_atomic(path: Path, data: bytes, *, set_aside: bool = False) -> Path | None:
    """Replace the file ``path`` by ``data``, all or nothing; directories above it are made.

    With ``set_aside`` what stood there is kept under a hidden name, which is returned; None
    where nothing did. ToolError ``E_CANNOT_WRITE`` where the system refuses (what was there
    stays) or ``path`` is no regular file: a device or a pipe would be replaced by one;
    ``E_LOCK_TIMEOUT`` where another process is writing there for too long.
    """
    with write_errors(path):
        require_no_link(path)
        _refuse_special(path)
        return _put(path, lambda fresh: write_synced(fresh, data), set_aside=set_aside)


def publish(directory: Path, files: Mapping[str, bytes], *, set_aside: bool = False) -> Path | None:
    """Make ``directory`` hold exactly ``files`` (name to content), in one step.

    The files are written beside it first and the two directories then swapped, so
    nobody ever sees files of two runs together; nothing of the earlier run stays, unless
    ``set_aside`` keeps what stood there, file or directory, under the hidden name returned.
    ToolError ``E_CANNOT_WRITE`` where the system refuses (what was there stays),
    ``E_LOCK_TIMEOUT`` where another process is publishing for too long.
    """
    for name in files:
        child_path(directory, name)

    def make(fresh: Path) -> None:
        fresh.mkdir()
        for name, data in files.items():
            write_synced(fresh / name, data)
        sync_directory(fresh)

    with write_errors(directory):
        require_no_link(directory)
        if not set_aside:
            _refuse_other_than_directory(directory)
        return _put(directory, make, set_aside=set_aside)


def clear(directory: Path) -> None:
    """Remove a published ``directory``, all at once; nothing happens if there is none.

    To be called before a run begins: a run that fails then leaves no earlier result
    that could be taken for its own.
    """
    with write_errors(directory):
        if not directory.parent.is_dir():
            return
        with lock_directory(directory.parent, LOCK_TIMEOUT_S):
            _refuse_other_than_directory(directory)
            files.recover(directory.parent, directory.name)
            gone = files.new_name(directory)
            with suppress(FileNotFoundError):
                directory.rename(gone)
            try:
                # Even where there is none: who removed it may have been killed before this.
                sync_directory(directory.parent)
            except BaseException:
                with suppress(OSError):
                    gone.rename(directory)
                raise
            files.discard(gone)


def sweep(directory: Path) -> None:
    """Remove what killed writers left in ``directory``; later, where one is at work there."""
    with suppress(OSError, ToolError), lock_directory(directory, 0.0):
        files.recover(directory)
        files.remove_probes(directory)


def sweep_probes(directory: Path) -> None:
    """Remove only the probes, whose names nobody else uses: others' files stand here too."""
    with suppress(OSError, ToolError), lock_directory(directory, 0.0):
        files.remove_probes(directory)


def require_writable(directory: Path) -> None:
    """Write, sync and remove a file in ``directory``, or where it will be made.

    To be called before a run begins: ToolError ``E_CANNOT_WRITE`` now saves the wait for
    the same after it. Nothing is left, and nothing that stands there is touched.
    """
    with write_errors(directory):
        place = directory
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        with lock_directory(place, LOCK_TIMEOUT_S):
            files.remove_probes(place)
            path = files.probe_name(place)
            try:
                write_synced(path, _PROBE)
            except BaseException:
                files.discard(path)
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
    with write_errors(path):
        _refuse_special(path)
        make_directory(path.parent)
        descriptor = open_locked(path, os.O_RDWR | os.O_APPEND, LOCK_TIMEOUT_S)
        try:
            size = os.fstat(descriptor).st_size
            if size == 0:
                # Before its first line the file has a name that lasts: so every later line.
                sync_directory(path.parent)
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            try:
                write_all(descriptor, b"\n" * torn + line + b"\n")
                os.fsync(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            close(descriptor)


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


def _put(target: Path, make: Callable[[Path], None], *, set_aside: bool) -> Path | None:
    """Put what ``make`` makes in the place of ``target``; return where that went, if set aside.

    When this returns, the disk has it. OSError where it does not: then nothing has changed.
    """
    make_directory(target.parent)
    with lock_directory(target.parent, LOCK_TIMEOUT_S):
        files.recover(target.parent, target.name)
        fresh = files.new_name(target)
        kept = files.corrupt_name(target) if set_aside and os.path.lexists(target) else None
        try:
            make(fresh)
            undo = _swap(fresh, target, kept)
            try:
                sync_directory(target.parent)
            except BaseException:
                with suppress(OSError):
                    undo()
                raise
        except BaseException:
            files.discard(fresh)
            raise
        # What is done is done: what cannot be removed now is swept another time.
        with suppress(OSError):
            files.recover(target.parent, target.name)
        return kept


def _swap(fresh: Path, target: Path, kept: Path | None) -> Callable[[], object]:
    """Put ``fresh`` in the place of ``target``; return what takes that back.

    What stood there goes to the name ``kept``, else to a hidden one.
    """
    if not os.path.lexists(target):
        fresh.rename(target)
        return lambda: target.rename(fresh)
    if kept is None and files.exchange_names(fresh, target):
        return lambda: files.exchange_names(fresh, target)
    if kept is None and not target.is_dir():
        # One step for a file; a second name keeps what stood there until all is synced.
        old = files.old_name(target)
        try:
            with suppress(OSError):
                old.hardlink_to(target)
            fresh.replace(target)
        except BaseException:
            files.discard(old)
            raise
        return lambda: old.replace(target)
    # Two steps where there is no single one. Between them no result is to be seen,
    # and after a crash there the next writer brings the earlier one back.
    moved = kept or files.old_name(target)
    target.rename(moved)
    try:
        fresh.rename(target)
    except BaseException:
        moved.rename(target)
        raise

    def undo() -> None:
        target.rename(fresh)
        moved.rename(target)

    return undo


def _refuse_special(path: Path) -> None:
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _refuse_other_than_directory(path: Path) -> None:
    require_no_link(path)
    if path.exists() and not path.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

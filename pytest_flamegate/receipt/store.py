"""Write files and directories that survive a crash: the one place that does.

After a crash at any point, a file holds all of its old or all of its new content, and a
published directory the files of one run or of the other, never of both. A write that fails
leaves the earlier content. A file that is corrupt is moved to a hidden name before another takes
its place, and is never removed.

Hidden names beside ``NAME``: ``.NAME.new-HEX`` is on its way in or out and may be removed,
``.NAME.old-HEX`` goes back if the writer was killed, ``.NAME.corrupt-TIME`` was set aside.
"""

import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

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
from pytest_flamegate.core.locks import lock_directory

LOCK_TIMEOUT_S = 30.0
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<role>new|old)-[0-9a-f]{12}", re.DOTALL)
_PROBE = bytes(1 << 20)
"""As much as the files of one run."""
_GITIGNORE = b"""\
# Written by flamegate: of its files only these belong in git.
*
!baselines/
!baselines/**
baselines/**/.*
!calibration/
!calibration/**
calibration/**/.*
!waivers/
!waivers/*.toml
"""
_GITIGNORE_MARK = b"# Written by flamegate"
_GITIGNORE_MAX_BYTES = 64 << 10


def child_path(root: Path, name: str) -> Path:
    """Return ``root / name`` for one plain name; ``ToolError`` ``E_BAD_NAME`` for ``../x``."""
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise ToolError("E_BAD_NAME", f"{name!a} is no name for a file or directory.")
    return root / name


def write_atomic(path: Path, data: bytes, *, set_aside: bool = False) -> Path | None:
    """Replace the file ``path`` by ``data``, all or nothing; missing directories are made.

    With ``set_aside`` the earlier file is moved to a hidden name, which is returned. ToolError
    ``E_CANNOT_WRITE`` (the earlier content stays), ``E_LOCK_TIMEOUT``.
    """
    with write_errors(path):
        require_no_link(path)
        _require_file(path)
        return _put(path, lambda fresh: write_synced(fresh, data), set_aside=set_aside)


def publish(directory: Path, files: Mapping[str, bytes], *, set_aside: bool = False) -> Path | None:
    """Make ``directory`` hold exactly ``files`` (name to content), in one step.

    The files are written beside it first, and then the two directories are swapped: no reader
    ever sees files of two runs together. Arguments, result and errors are those of
    ``write_atomic``.
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
            _require_directory(directory)
        return _put(directory, make, set_aside=set_aside)


def remove(directory: Path) -> None:
    """Remove a published ``directory``, all at once; nothing happens if there is none."""
    with write_errors(directory):
        if not directory.parent.is_dir():
            return
        with lock_directory(directory.parent, LOCK_TIMEOUT_S):
            _require_directory(directory)
            _recover(directory.parent, directory.name)
            gone = _hidden_name(directory, "new")
            with suppress(FileNotFoundError):
                directory.rename(gone)
            try:
                # Even if there was none: its remover may have been killed before this.
                sync_directory(directory.parent)
            except BaseException:
                with suppress(OSError):
                    gone.rename(directory)
                raise
            _discard(gone)


def append_line(path: Path, line: bytes) -> None:
    """Append ``line`` and a newline to ``path``, in one write and without waiting for the disk.

    Other processes may append at the same time. A power cut may lose the last lines, and cut one
    off. ToolError ``E_CANNOT_WRITE`` if the system rejects the write.
    """
    with write_errors(path):
        _require_file(path)
        make_directory(path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            # A line that was cut off is ended first. Readers skip empty lines, so an extra
            # newline from two writers at once does no harm.
            is_cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            write_all(descriptor, b"\n" * is_cut + line + b"\n")
        finally:
            close(descriptor)


def require_writable(directory: Path) -> None:
    """Write and remove a file: an ``E_CANNOT_WRITE`` now saves the wait for it after the run."""
    with write_errors(directory):
        place = directory
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(_PROBE)
            probe.flush()
            os.fsync(probe.fileno())


def ensure_gitignore(root: Path) -> None:
    """Keep runs and history out of git, unless the user's file says otherwise."""
    path = root / ".gitignore"
    if os.path.lexists(path):
        present = read_bounded(path, _GITIGNORE_MAX_BYTES)
        if present == _GITIGNORE or not present.startswith(_GITIGNORE_MARK):
            return
    write_atomic(path, _GITIGNORE)


def sweep(directory: Path) -> None:
    """Remove what killed writers left in ``directory``, unless a writer is active there."""
    with suppress(OSError, ToolError), lock_directory(directory, 0.0):
        _recover(directory)


def exchange_names(one: Path, other: Path) -> bool:
    """Swap two names in one step; False if the system or the file system cannot."""
    import ctypes

    # Python does not offer this function of the C library.
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    name, at = ctypes.c_char_p, ctypes.c_int
    renameat2.argtypes = (at, name, at, name, ctypes.c_uint)
    names = (os.fsencode(one), os.fsencode(other))
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _put(target: Path, make: Callable[[Path], None], *, set_aside: bool) -> Path | None:
    """Put the result of ``make`` in the place of ``target``, durably; OSError changes nothing."""
    make_directory(target.parent)
    with lock_directory(target.parent, LOCK_TIMEOUT_S):
        _recover(target.parent, target.name)
        fresh = _hidden_name(target, "new")
        aside = None
        if set_aside and os.path.lexists(target):
            # The microseconds keep two of one second apart; the lock does the rest.
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
            aside = target.with_name(f".{target.name}.corrupt-{stamp}")
        try:
            make(fresh)
            undo = _swap(fresh, target, aside)
            try:
                sync_directory(target.parent)
            except BaseException:
                with suppress(OSError):
                    undo()
                raise
        except BaseException:
            _discard(fresh)
            raise
        # The write has succeeded; the next sweep removes what cannot be removed now.
        with suppress(OSError):
            _recover(target.parent, target.name)
        return aside


def _swap(fresh: Path, target: Path, aside: Path | None) -> Callable[[], object]:
    """Put ``fresh`` in the place of ``target``, and return a function that takes that back.

    The earlier entry goes to the name ``aside``, else to a hidden one.
    """
    if not os.path.lexists(target):
        fresh.rename(target)
        return lambda: target.rename(fresh)
    if aside is None and exchange_names(fresh, target):
        return lambda: exchange_names(fresh, target)
    if aside is None and not target.is_dir():
        # One step for a file; a second name keeps the earlier content until all is synced.
        old = _hidden_name(target, "old")
        try:
            with suppress(OSError):
                old.hardlink_to(target)
            fresh.replace(target)
        except BaseException:
            _discard(old)
            raise
        return lambda: old.replace(target)
    # Two steps, if there is no single one. Between them there is no result, and after a crash
    # at that point the next writer brings the earlier one back.
    moved = aside or _hidden_name(target, "old")
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


def _hidden_name(path: Path, role: str) -> Path:
    return path.with_name(f".{path.name}.{role}-{secrets.token_hex(6)}")


def _recover(directory: Path, name: str | None = None) -> None:
    """Bring back the entry ``name`` (None: any entry) and remove other leftovers, under the lock.

    OSError if an entry cannot be brought back, or a leftover is in its way. Leftovers that only
    take up space may stay.
    """
    for leftover in sorted(directory.iterdir()):
        match = _LEFTOVER.fullmatch(leftover.name)
        if match is None or name not in (None, match["name"]):
            continue
        target = directory / match["name"]
        if match["role"] == "old" and not os.path.lexists(target):
            leftover.rename(target)
        elif match["role"] == "old":
            # Renamed first: half removed it must not come back.
            gone = _hidden_name(target, "new")
            leftover.rename(gone)
            _discard(gone)
        else:
            _discard(leftover)


def _discard(path: Path) -> None:
    """Remove a file or directory as far as the system permits."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _require_file(path: Path) -> None:
    """Raise OSError if an entry other than a regular file is there: it would be replaced."""
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _require_directory(path: Path) -> None:
    require_no_link(path)
    if path.exists() and not path.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

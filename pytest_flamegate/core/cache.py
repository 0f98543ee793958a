"""Which file system a file lies on, and whether it tells of every write."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pytest_flamegate.core.files import real_path

if TYPE_CHECKING:
    from collections.abc import Callable


_MOUNTS = Path("/proc/self/mountinfo")
_FAITHFUL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})
"""File systems of Linux on a disk of this machine, which give a mapped page back to the disk and
note the time when it is written to again. Not tmpfs, which notes only the first write through a
mapping; not overlay, which may lie on one; not the network's and FUSE's, whose times are those
of others.
"""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def tracks_all_writes(path: Path) -> bool:
    """Whether no write to ``path`` can leave its ctime as it was; False where that is unknown."""
    return file_system_of(path) in _FAITHFUL


def file_system_of(path: Path) -> str | None:
    """Return the kernel's name of the file system that ``path`` lies on, links followed.

    None where the kernel does not say (anywhere but on Linux).
    """
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    place = real_path(path.absolute())
    found: tuple[int, str] | None = None
    for line in lines:
        # … ID parent major:minor root MOUNT options [tags…] - TYPE source options
        before, separator, after = line.partition(" - ")
        fields, told = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = PurePath(_ESCAPED.sub(lambda each: chr(int(each[1], 8)), fields[4]))
        depth = len(mount.parts)
        # What is mounted later over the same place hides the earlier.
        if place.is_relative_to(mount) and (found is None or depth >= found[0]):
            found = depth, told[0]
    return found[1] if found else None


_MOST_LINES = 256
_MOST_BYTES = 1 << 20
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_RDONLY


def cache_directory() -> Path | None:
    """Return where such files are; None where the user has no such place."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification has it, a relative path counts for nothing.
    if os.path.isabs(named):  # noqa: PTH117 - a name with NUL is asked about too
        return Path(named, "pytest-flamegate")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return Path(home, ".cache", "pytest-flamegate") if os.path.isabs(home) else None  # noqa: PTH117


def read_cached(file: str, line: re.Pattern[str], key: str) -> str | None:
    """Return what ``file`` keeps for ``key``; ``line`` matches a key, a space and what is kept."""
    where = cache_directory()
    return None if where is None else _lines(where / file, line).get(key)


def write_cached(file: str, line: re.Pattern[str], key: str, kept: str) -> None:
    """Keep something, and of what was kept the latest; without a word where that is impossible."""
    where = cache_directory()
    if where is None:
        return
    with suppress(OSError, ValueError):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _own(where.lstat(), stat.S_ISDIR):
            return
        lines = _lines(where / file, line)
        lines.pop(key, None)
        lines[key] = kept
        latest = list(lines.items())[-_MOST_LINES:]
        _write(where / file, "".join(f"{name} {each}\n" for name, each in latest))


def _lines(path: Path, line: re.Pattern[str]) -> dict[str, str]:
    """Return what a file of ours holds, in its order; nothing of one that others may write to."""
    try:
        descriptor = os.open(path, _NO_LINKS)
    except (OSError, ValueError):
        return {}
    try:
        if not _own(os.fstat(descriptor), stat.S_ISREG):
            return {}
        data = os.read(descriptor, _MOST_BYTES + 1)
    except OSError:
        return {}
    finally:
        os.close(descriptor)
    if len(data) > _MOST_BYTES:
        return {}
    matches = map(line.fullmatch, data.decode("ascii", "replace").split("\n"))
    return {match[1]: match[2] for match in matches if match}


def _own(status: os.stat_result, kind: Callable[[int], bool]) -> bool:
    """Whether it is of that kind, and nobody but this user may write to it."""
    mode = status.st_mode
    owned = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return kind(mode) and owned and not mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, text: str) -> None:
    """Put a whole new file in the place of ``path``: who reads meanwhile sees either."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
            file.write(text)
        os.replace(name, path)  # noqa: PTH105 - a name
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108 - a name
        raise

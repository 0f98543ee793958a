"""Files in the user's cache directory, and file systems that record every write."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath

from pytest_flamegate.core.files import real_path

_MOUNTS = Path("/proc/self/mountinfo")
_WRITE_TRACKING = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})
"""Local file systems of Linux that change a file's ctime at each write through a mapping after a
sync. tmpfs does so only at the first one, overlay may be on a tmpfs, and times of network and
FUSE file systems come from elsewhere.
"""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def tracks_all_writes(path: Path) -> bool:
    """Whether every write to ``path`` changes its ctime; False if that is unknown."""
    return file_system_of(path) in _WRITE_TRACKING


def file_system_of(path: Path) -> str | None:
    """Return the kernel's name of the file system of ``path``, links followed; None if unknown."""
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    place = real_path(path.absolute())
    found: tuple[int, str] | None = None
    for line in lines:
        # … ID parent major:minor root MOUNT options [tags…] - TYPE source options
        before, separator, after = line.partition(" - ")
        fields, (kind, *_) = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = PurePath(_ESCAPED.sub(lambda each: chr(int(each[1], 8)), fields[4]))
        depth = len(mount.parts)
        # A later mount over the same directory hides the earlier one.
        if place.is_relative_to(mount) and (found is None or depth >= found[0]):
            found = depth, kind
    return found[1] if found else None


_MOST_LINES = 256
_MOST_BYTES = 1 << 20
_READ_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_RDONLY


def cache_directory() -> Path | None:
    """Return the directory of cached files; None if the user has none."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification ignores a relative path.
    if os.path.isabs(named):  # noqa: PTH117 - a name with NUL is asked about too
        return Path(named, "pytest-flamegate")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return Path(home, ".cache", "pytest-flamegate") if os.path.isabs(home) else None  # noqa: PTH117


def read_cached(file: str, line: re.Pattern[str], key: str) -> str | None:
    """Return the value of ``key`` in ``file``, whose lines ``line`` matches: key, space, value."""
    directory = cache_directory()
    return None if directory is None else _read_lines(directory / file, line).get(key)


def write_cached(file: str, line: re.Pattern[str], key: str, value: str) -> None:
    """Store a value, with the 255 latest others; errors are ignored, because it is only a cache."""
    directory = cache_directory()
    if directory is None:
        return
    with suppress(OSError, ValueError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(directory.lstat(), stat.S_ISDIR):
            return
        lines = _read_lines(directory / file, line)
        lines.pop(key, None)
        lines[key] = value
        latest = list(lines.items())[-_MOST_LINES:]
        _write(directory / file, "".join(f"{name} {each}\n" for name, each in latest))


def _read_lines(path: Path, line: re.Pattern[str]) -> dict[str, str]:
    """Return keys and values of the file in their order; empty if other users may write to it."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except (OSError, ValueError):
        return {}
    try:
        if not _is_private(os.fstat(descriptor), stat.S_ISREG):
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


def _is_private(status: os.stat_result, kind: Callable[[int], bool]) -> bool:
    """Whether it has that kind, and only this user may write to it."""
    mode = status.st_mode
    owned = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return kind(mode) and owned and not mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, text: str) -> None:
    """Replace ``path`` by a whole new file, so that a reader sees either of the two."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
            file.write(text)
        os.replace(name, path)  # noqa: PTH105 - a name
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108 - a name
        raise

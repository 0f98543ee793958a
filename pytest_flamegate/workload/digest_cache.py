"""Digests of large files, kept in the user's cache directory: a line for each state of files.

Nothing rests on it: what cannot be read, is broken or is another user's is as if it were not
there, and what cannot be written is not kept.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_flamegate.workload.model_files import Stamp

_FILE = "model-sha256-1"
_MOST_LINES = 256
_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_LINE = re.compile(r"([0-9:,-]{9,16384}) ([0-9a-f]{64})", re.ASCII)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_RDONLY


def directory() -> Path | None:
    """Return where digests are kept; None where the user has no such place."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification has it, a relative path counts for nothing.
    if os.path.isabs(named):  # noqa: PTH117 - a name with NUL is asked about too
        return Path(named, "pytest-flamegate")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return Path(home, ".cache", "pytest-flamegate") if os.path.isabs(home) else None  # noqa: PTH117


def find(files: Sequence[Stamp]) -> str | None:
    """Return the digest kept for files in exactly this state."""
    where = directory()
    return None if where is None else _lines(where / _FILE).get(_key(files))


def keep(files: Sequence[Stamp], sha256: str) -> None:
    """Keep a digest, and of the older ones the latest; without a word where that is impossible."""
    where = directory()
    if where is None or len(files) > _MOST_FILES:
        return
    with suppress(OSError, ValueError):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _own(where.lstat(), stat.S_ISDIR):
            return
        lines = _lines(where / _FILE)
        key = _key(files)
        lines.pop(key, None)
        lines[key] = sha256
        latest = list(lines.items())[-_MOST_LINES:]
        _write(where / _FILE, "".join(f"{name} {digest}\n" for name, digest in latest))


def _key(files: Sequence[Stamp]) -> str:
    return ",".join(
        f"{each.device}:{each.inode}:{each.size_bytes}:{each.mtime_ns}:{each.ctime_ns}"
        for each in files
    )


def _lines(path: Path) -> dict[str, str]:
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
    matches = map(_LINE.fullmatch, data.decode("ascii", "replace").split("\n"))
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

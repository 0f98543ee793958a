"""Files beneath a directory that somebody named, reached without following any link.

The directory itself may be reached through links: whoever typed its name chose it. What
stands beneath it may be anybody's, so every step below goes through the descriptor of
the one before, and a directory that is swapped meanwhile changes nothing.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.receipt.disk import cannot_read, read_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Directory:
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
def opened(path: Path) -> Iterator[Directory]:
    """Open the directory that ``path`` leads to, by whatever links; ToolError if it is none."""
    with _open(None, os.fspath(path), path) as directory:
        yield directory


def read_beneath(root: Path, *parts: str, limit: int) -> bytes:
    """Return the content of the regular file ``parts`` beneath ``root``.

    No part may be a symbolic link, ``..`` or hold a slash. ToolError ``E_CANNOT_READ`` or
    ``E_BAD_NAME``, or what ``read_bounded`` raises.
    """
    *above, name = parts
    with opened(root) as directory:
        return _descend(directory, above, name, limit)


def _descend(directory: Directory, above: list[str], name: str, limit: int) -> bytes:
    if not above:
        return directory.read(name, limit)
    first, *rest = above
    with _open(directory.descriptor, _plain(first), directory.path / first) as inner:
        return _descend(inner, rest, name, limit)


@contextmanager
def _open(above: int | None, name: str, path: Path) -> Iterator[Directory]:
    flags = _DIRECTORY if above is None else _DIRECTORY | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, dir_fd=above)
    except (OSError, ValueError) as error:
        # Linux says of a link that it is no directory; which of the two it is, is not asked
        # for: by then it may be another.
        if above is not None and isinstance(error, OSError) and error.errno == errno.ENOTDIR:
            error = OSError(errno.ENOTDIR, "it is no directory, or a symbolic link to one")
        raise cannot_read(path, error) from error
    try:
        yield Directory(path, descriptor)
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

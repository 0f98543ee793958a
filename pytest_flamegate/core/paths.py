"""Questions about paths that others typed, answered without an exception."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether a file stands at ``path``.

    ``Path.is_file`` raises where a name is too long for any file or a directory above
    may not be read, up to Python 3.13.
    """
    return os.path.isfile(path)  # noqa: PTH113


def path_text(path: Path | str) -> str:
    """Return a path as text that can be written down, whatever bytes its name holds."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def real_path(path: Path) -> Path:
    """Return ``path`` with every link followed; a loop of links stays as it is.

    ``Path.resolve`` raises on such a loop, up to Python 3.12.
    """
    return type(path)(os.path.realpath(path))

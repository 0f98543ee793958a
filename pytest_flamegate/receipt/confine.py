"""What is written below a directory stays below it: no link on the way leads elsewhere."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.disk import refuse_symlink, writing

if TYPE_CHECKING:
    from pathlib import Path


def confined(root: Path, path: Path) -> Path:
    """Return ``path``, which lies below ``root``.

    ToolError ``E_CANNOT_WRITE`` where it does not, or where ``root``, ``path`` or a directory
    between the two is a symbolic link: a repository may hold one, and what is written
    would land wherever it points to.
    """
    with writing(path):
        names = path.relative_to(root).parts if path.is_relative_to(root) else ("..",)
        if ".." in names:
            raise OSError(errno.EXDEV, f"it does not lie in {os.fspath(root)!a}")
        place = root
        refuse_symlink(place)
        for name in names:
            place /= name
            refuse_symlink(place)
    return path

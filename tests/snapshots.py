"""A directory tree as it stands, to be compared with itself later."""

import os
import stat
from pathlib import Path


def snapshot(root: Path, without: Path | None = None) -> dict[str, tuple[int, bytes]]:
    """Return mode and content (of a link its target) of all below ``root``, not ``without``."""
    found = {}
    for path in root.rglob("*"):
        if without is not None and path.is_relative_to(without):
            continue
        mode = path.lstat().st_mode
        content = b""
        if stat.S_ISLNK(mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[path.relative_to(root).as_posix()] = (mode, content)
    return found

"""A directory tree as it stands, to be compared with itself later."""

import os
import stat
from pathlib import Path


def snapshot(root: Path, without: Path | None = None) -> dict[str, tuple[int, bytes]]:
    """Return mode and content (of a link its target) of everything below ``root``.

    What lies at or below ``without`` is left out.
    """
    found = {}
    for where, directories, files in os.walk(root):
        here = Path(where)
        directories[:] = [name for name in directories if here / name != without]
        for name in [*directories, *files]:
            path = here / name
            if path == without:
                continue
            mode = path.lstat().st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(mode):
                content = path.read_bytes()
            found[path.relative_to(root).as_posix()] = (mode, content)
    return found

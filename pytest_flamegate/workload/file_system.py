"""Which file system a file lies on, and whether it tells of every write."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from pytest_flamegate.paths import real

_MOUNTS = Path("/proc/self/mountinfo")
_FAITHFUL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})
"""File systems of Linux on a disk of this machine, which give a mapped page back to the disk and
note the time when it is written to again. Not tmpfs, which notes only the first write through a
mapping; not overlay, which may lie on one; not the network's and FUSE's, whose times are those
of others.
"""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def tells_of_writes(path: Path) -> bool:
    """Whether no write to ``path`` can leave its ctime as it was; False where that is unknown."""
    return type_of(path) in _FAITHFUL


def type_of(path: Path) -> str | None:
    """Return the kernel's name of the file system that ``path`` lies on, links followed.

    None where the kernel does not say (anywhere but on Linux).
    """
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    place = real(path.absolute())
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

"""A real file system that is nearly full: every number of free blocks and of free files.

A small tmpfs is mounted, which needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.receipt.artifacts import ArtifactStore
from tests.receipt import operations
from tests.receipt.operations import Operation
from tests.receipt.points import Tally

BLOCK = 4096
BLOCKS, FILES = 400, 200
_MOST = 20
"""More than any operation takes, but for the probe with its megabyte."""


@contextmanager
def mounted(place: Path) -> Iterator[Path]:
    """Mount a tmpfs of ``BLOCKS`` blocks and ``FILES`` files; ``OSError`` where none may be."""
    place.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={BLOCKS * BLOCK},nr_inodes={FILES}", "none", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        place.rmdir()
        raise OSError(done.returncode, done.stderr.strip(), str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def why_not(place: Path) -> str | None:
    """Return why nothing can be mounted here, None where it can."""
    if shutil.which("mount") is None:
        return "mount is not installed"
    try:
        with mounted(place / "tried"):
            return None
    except OSError as error:
        return f"a tmpfs cannot be mounted here: {error.strerror}"


def every() -> Iterator[tuple[Operation, str, int]]:
    """Yield each operation on each state, with each number of free blocks, or files."""
    for operation in operations.OPERATIONS:
        for state in operation.states:
            for free in range(_MOST):
                yield operation, state, free


def fill(operation: Operation, state: str, free: int, what: str, disk: Path) -> Tally:
    """Act with ``free`` free ``what`` ("blocks" or "files"), look, make room, act again."""
    for entry in disk.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    artifacts = ArtifactStore(disk / "project" / ".flamegate")
    artifacts.root.parent.mkdir()
    operations.prepare(artifacts, operation.states[state])
    old = operation.view(artifacts)
    ballast = _blocks(disk, free) if what == "blocks" else _files(disk, free)
    faults, acknowledged = [], False
    try:
        operation.act(artifacts)
        acknowledged = True
    except FlamegateError:
        pass
    except OSError as error:
        faults.append(f"it raised {error}")
    seen = operation.view(artifacts)
    if acknowledged and seen != operations.after(operation, old):
        faults.append(f"acknowledged and lost: {seen}")
    if not acknowledged and seen not in operations.standing(operation, state, old):
        faults.append(f"refused, and the old does not stand: {seen}")
    faults += operations.foreign_faults(operation, state, artifacts)
    shutil.rmtree(ballast)
    operation.act(artifacts)
    artifacts.sweep()
    if operation.view(artifacts) != operations.after(operation, seen):
        faults.append(f"the next run leaves {operation.view(artifacts)}")
    if left := operations.litter(artifacts):
        faults.append(f"nobody swept {left}")
    where = f"{operation.name} over {state}, {free} {what} free"
    return Tally(
        points=1,
        acknowledged=int(acknowledged),
        refused=int(not acknowledged),
        faults=[f"{where}: {fault}" for fault in faults],
    )


def _blocks(disk: Path, free: int) -> Path:
    place = disk / "ballast"
    place.mkdir()
    with (place / "file").open("wb") as file, suppress(OSError):
        left = os.statvfs(disk).f_bavail - free
        file.write(bytes(max(0, left) * BLOCK))
    return place


def _files(disk: Path, free: int) -> Path:
    place = disk / "ballast"
    place.mkdir()
    for number in range(os.statvfs(disk).f_ffree - free):
        (place / str(number)).touch()
    return place

"""The temporary homes of worktrees: whose they are, and how nothing of them stays.

A home is a directory whose name tells its owner, so that what a killed run left can be
told from what a living one uses, even where only git's note of it is left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pytest_flamegate.errors import ToolError
from pytest_flamegate.paths import real
from pytest_flamegate.workload import clocks

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME = re.compile(r"flamegate-([0-9a-f]{8})-(\d+)-(\d+)-[a-z0-9_]+")


def make_home() -> Path:
    """Make an empty home for a worktree of this process, under the temporary directory."""
    pid = os.getpid()
    prefix = f"flamegate-{_machine()}-{pid}-{clocks.started_ticks(pid) or 0}-"
    return real(Path(tempfile.mkdtemp(prefix=prefix)))


def remove_home(home: Path, git_directory: Path) -> None:
    """Remove a home, the worktree in it and what the repository's ``git_directory`` notes of it.

    What is already gone is no failure. ``ToolError`` ``E_WORKTREE_STAYS`` where a file
    cannot be removed.
    """
    for note, worktree in _notes(git_directory):
        if worktree.parent == home:
            _remove_tree(note)
    with contextlib.suppress(OSError):
        # As git does: the directory of notes goes with the last of them.
        (git_directory / "worktrees").rmdir()
    _remove_tree(home)
    if home.exists():
        raise ToolError(
            "E_WORKTREE_STAYS",
            f"The temporary worktree {home} cannot be removed.",
            "Something in it belongs to another user or is mounted; remove it by hand.",
        )


def sweep(git_directory: Path) -> tuple[Path, ...]:
    """Remove the homes of owners that are dead; return those that cannot be removed.

    They are found in the temporary directory and in the repository's own notes, which
    also know of a home that a restart of the machine has emptied out.
    """
    homes = {worktree.parent for _, worktree in _notes(git_directory)} | set(_beside())
    stay = []
    for home in sorted(homes):
        if not _abandoned(home):
            continue
        try:
            remove_home(home, git_directory)
        except ToolError:
            stay.append(home)
    return tuple(stay)


def _abandoned(home: Path) -> bool:
    """Whether ``home`` is one of ours, of this machine, and its owner is no more."""
    found = _HOME.fullmatch(home.name)
    if found is None or found[1] != _machine():
        return False
    pid, ticks = int(found[2]), int(found[3])
    try:
        if home.lstat().st_uid != os.getuid():
            return False
    except FileNotFoundError:
        pass  # Only the note is left of it.
    except OSError:
        return False
    if not psutil.pid_exists(pid):
        return True
    return ticks != 0 and clocks.started_ticks(pid) not in {ticks, None}


def _machine() -> str:
    """Return what tells apart the processes of two machines, or of two containers, with one pid."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{os.uname().nodename} {namespace}".encode()).hexdigest()[:8]


def _beside() -> Iterator[Path]:
    """Yield what stands in the temporary directory under a home's name."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _HOME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield real(Path(entry.path))


def _notes(git_directory: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each linked worktree of a repository: git's directory for it, and the worktree."""
    try:
        notes = sorted((git_directory / "worktrees").iterdir())
    except OSError:
        return
    for note in notes:
        with contextlib.suppress(OSError):
            written = os.fsdecode((note / "gitdir").read_bytes()).rstrip("\n")
            # git may write it relative to its own directory; it names the file .git inside.
            yield note, real(note / written).parent


def _remove_tree(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        _open_up(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _open_up(top: Path) -> None:
    """Let the owner write in every directory below: only that decides what can be removed."""
    pending = [top]
    while pending:
        directory = pending.pop()
        with contextlib.suppress(OSError):
            directory.chmod(stat.S_IRWXU)
            with os.scandir(directory) as entries:
                pending += [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]

"""Temporary directories named after their process, so that those of dead ones can be removed."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from pytest_flamegate.core import clocks
from pytest_flamegate.core.files import MOST_COPIED, real_path

_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_HOME = re.compile(r"flamegate-([0-9a-f]{8})-(\d+)-(\d+)-[a-z0-9_]+")


def scratch_prefix() -> str:
    """Return the beginning of names of temporary directories, which identifies this process."""
    pid = os.getpid()
    return f"flamegate-{_identify_machine()}-{pid}-{clocks.read_start_ticks(pid) or 0}-"


@contextlib.contextmanager
def copy_program(program: str, top: Path) -> Iterator[str | None]:
    """Make a copy of a program of the project at ``top``, for as long as the block takes.

    The pages of a file keep their place in memory, and each place has its speed: two equal files
    differed by 0.4 % for as long as they stayed there. All other files of the project are linked
    next to the copy, but for libraries: those next to the program, or in a directory next to it or
    to one that it lies in, are copied too. None for a script, for a file that is not below ``top``,
    and if the copy cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as home:
        copied = None
        with contextlib.suppress(OSError, ValueError):
            copied = _copy_binary(program, real_path(top), Path(home))
        yield copied


def _copy_binary(program: str, top: Path, home: Path) -> str | None:
    path = real_path(top / program)
    with path.open("rb") as file:
        if os.sep not in program or file.read(4) != b"\x7fELF":
            return None
    copied = home / path.relative_to(top)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, copied)
    for parent in path.relative_to(top).parents:
        for entry in (top / parent).iterdir():
            if (made := home / parent / entry.name).exists():
                continue
            if _holds_libraries(entry):
                made.mkdir()
                for each in entry.iterdir():
                    _copy_or_link(each, made / each.name)
            else:
                _copy_or_link(entry, made)
    return str(copied)


def _copy_or_link(entry: Path, made: Path) -> None:
    """Copy a library of at most 200 MB; link all other files, and libraries by another name."""
    if entry.is_symlink() and os.sep not in (target := str(entry.readlink())):
        made.symlink_to(target)
    elif _is_library(entry) and entry.stat().st_size <= MOST_COPIED:
        shutil.copy2(entry, made)
    else:
        made.symlink_to(entry)


def _holds_libraries(entry: Path) -> bool:
    """Whether it is a directory with a library; one that cannot be read is linked as it is."""
    with contextlib.suppress(PermissionError):
        return entry.is_dir() and not entry.is_symlink() and any(map(_is_library, entry.iterdir()))
    return False


def _is_library(entry: Path) -> bool:
    return _LIBRARY.search(entry.name) is not None and entry.is_file()


def sweep_scratch() -> None:
    """Remove temporary directories of dead processes, as far as possible."""
    for home in filter(is_abandoned, list_scratch()):
        remove_tree(home)


def list_scratch() -> list[Path]:
    """Return the directories of flamegate below the temporary directory."""
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            return [
                real_path(Path(entry.path))
                for entry in entries
                if _HOME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def is_abandoned(home: Path) -> bool:
    """Return whether ``home`` was made by us on this machine and its process is dead."""
    match = _HOME.fullmatch(home.name)
    if match is None or match[1] != _identify_machine():
        return False
    pid, ticks = int(match[2]), int(match[3])
    try:
        if home.lstat().st_uid != os.getuid():
            return False
    except FileNotFoundError:
        pass  # Only the record is left of it.
    except OSError:
        return False
    if not psutil.pid_exists(pid):
        return True
    return ticks != 0 and clocks.read_start_ticks(pid) not in {ticks, None}


def _identify_machine() -> str:
    """Return a digest that differs between machines and containers, whose pids may be equal."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{os.uname().nodename} {namespace}".encode()).hexdigest()[:8]


def remove_tree(directory: Path) -> None:
    """Remove a directory and all below it, as far as possible; read-only directories too."""
    shutil.rmtree(directory, ignore_errors=True)
    # Only the permissions of directories matter for a removal; links are not followed.
    pending = [directory] if directory.exists() else []
    while pending:
        with contextlib.suppress(OSError):
            pending[-1].chmod(stat.S_IRWXU)
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            pending += [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    shutil.rmtree(directory, ignore_errors=True)

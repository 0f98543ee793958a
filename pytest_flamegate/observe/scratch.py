"""Temporary directories named after their process, so that those of dead ones can be removed."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

import psutil

from pytest_flamegate.core import clocks
from pytest_flamegate.core.files import real_path

_HOME = re.compile(r"flamegate-([0-9a-f]{8})-(\d+)-(\d+)-[a-z0-9_]+")


def scratch_prefix() -> str:
    """Return the beginning of names of temporary directories, which identifies this process."""
    pid = os.getpid()
    return f"flamegate-{_identify_machine()}-{pid}-{clocks.read_start_ticks(pid) or 0}-"


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

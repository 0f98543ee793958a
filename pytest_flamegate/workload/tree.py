"""Who belongs to a process tree, whoever its parent is by now, and how it takes a signal.

Read from ``/proc`` where there is one: a scan of a hundred processes takes less than a
millisecond so, and several with psutil, which serves elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil

MARKER = "FLAMEGATE_TREE"
_LINUX = sys.platform == "linux"
_PROC = Path("/proc")


def below(pid: int) -> set[int]:
    """Return ``pid`` and all that descends from it; its parents' deaths hide what left it."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        found = []
    return {pid, *(process.pid for process in found)}


def members(session: int, marker: str) -> set[int]:
    """Return the processes of ``session`` and those whose environment carries ``marker``."""
    me = os.getpid()
    needle = f"{MARKER}={marker}".encode("ascii")
    return {
        pid
        for pid in psutil.pids()
        if pid != me and (_session(pid) == session or needle in _environment(pid))
    }


def children() -> dict[int, int]:
    """Return the children of this process, the adopted ones too: session by pid (Linux)."""
    me, found = os.getpid(), {}
    for pid in psutil.pids() if _LINUX else ():
        fields = _stat(pid)
        if len(fields) > 3 and int(fields[1]) == me:
            found[pid] = int(fields[3])
    return found


def lives(pid: int) -> bool:
    """Say whether ``pid`` is there and no zombie."""
    if _LINUX:
        fields = _stat(pid)
        return bool(fields) and fields[0] not in ("Z", "X")
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def ignores(pid: int, number: int) -> bool:
    """Say whether ``pid`` is known to ignore the signal ``number`` (Linux; else never known).

    One that blocks it may be waiting for it, and one that handles it may still be at it.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "status").read_text("ascii", "replace").splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def kill(pid: int) -> None:
    """Send SIGKILL to ``pid``, if it is still there and ours to end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _environment(pid: int) -> list[bytes]:
    try:
        if _LINUX:
            return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        told = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return []
    return [os.fsencode(f"{name}={value}") for name, value in told.items()]


def _stat(pid: int) -> list[str]:
    """Return what stands of a process behind its name: state, parent, group, session, and more."""
    try:
        told = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return []
    # The name before them stands in parentheses and may hold anything.
    return told.rpartition(")")[2].split()

"""Who belongs to a process tree, whoever its parent is by now, and how it takes a signal.

Read from ``/proc`` where there is one: a scan of a hundred processes takes less than a
millisecond so, and several with psutil, which serves elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import psutil

MARKER = "FLAMEGATE_TREE"
_LINUX = sys.platform == "linux"
_PROC = "/proc"


def below(pid: int) -> set[int]:
    """Return ``pid`` and all that descends from it; its parents' deaths hide what left it."""
    parents = _parents()
    found, fresh = {pid}, {pid}
    while fresh:
        fresh = {each for each, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def members(session: int, marker: str) -> set[int]:
    """Return the processes of ``session`` and those whose environment carries ``marker``."""
    me = os.getpid()
    needle = f"{MARKER}={marker}".encode("ascii")
    return {
        pid
        for pid in _pids()
        if pid != me and (_session(pid) == session or needle in _environment(pid))
    }


def children() -> dict[int, int | None]:
    """Return the children of this process, the adopted ones too: session by pid."""
    me = os.getpid()
    return {pid: _session(pid) for pid, parent in _parents().items() if parent == me}


def lives(pid: int) -> bool:
    """Say whether ``pid`` is there and no zombie."""
    if _LINUX:
        fields = _stat(pid)
        return bool(fields) and fields[0] not in (b"Z", b"X")
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def ignores(pid: int, number: int) -> bool:
    """Say whether ``pid`` is known to ignore the signal ``number`` (Linux; else never known).

    One that blocks it may be waiting for it, and one that handles it may still be at it.
    """
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"SigIgn:"):
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


def _pids() -> list[int]:
    if _LINUX:
        with os.scandir(_PROC) as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]
    return psutil.pids()


def _parents() -> dict[int, int]:
    found = {}
    if not _LINUX:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                found[process.pid] = process.ppid()
        return found
    for pid in _pids():
        if fields := _stat(pid):
            found[pid] = int(fields[1])
    return found


def _environment(pid: int) -> list[bytes]:
    if _LINUX:
        return _read(pid, "environ").split(b"\0")
    try:
        told = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return []
    return [os.fsencode(f"{name}={value}") for name, value in told.items()]


def _stat(pid: int) -> list[bytes]:
    """Return what stands of a process behind its name: state, parent, group and session first."""
    # The name stands in parentheses and may hold anything.
    return _read(pid, "stat").rpartition(b")")[2].split()


def _read(pid: int, name: str) -> bytes:
    """Return a file of ``/proc``, by the system's own calls: a scan reads hundreds of them."""
    parts = []
    try:
        descriptor = os.open(f"{_PROC}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, 1 << 16):
                parts.append(part)
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return b"".join(parts)

"""Find the processes of a tree, and adopt its orphans.

On Linux this process is a subreaper while a tree that it started lives: orphans of the tree
become its children and can be reaped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading

import psutil

_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37

_lock = threading.Lock()
_users = 0
_earlier = 0


def acquire_subreaper() -> None:
    """Start being a subreaper, unless this process already is one."""
    global _users, _earlier
    with _lock:
        if _users == 0:
            _earlier = _get_subreaper()
            _set_subreaper(1)
        _users += 1


def release_subreaper() -> None:
    """Restore the earlier setting when the last user is done."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _set_subreaper(_earlier)


def _get_subreaper() -> int:
    if sys.platform != "linux":
        return 0
    value = ctypes.c_int(0)
    ctypes.CDLL(None, use_errno=True).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    return value.value


def _set_subreaper(value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, value, 0, 0, 0)


MARKER = "FLAMEGATE_TREE"
_LINUX = sys.platform == "linux"
_PROC = "/proc"


def find_descendants(pid: int) -> set[int]:
    """Return ``pid`` and its descendants, except those whose own parent has ended."""
    parents = _parents()
    found, fresh = {pid}, {pid}
    while fresh:
        fresh = {each for each, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def find_members(session: int, marker: str) -> set[int]:
    """Return the processes of ``session`` and those whose environment carries ``marker``."""
    me = os.getpid()
    needle = f"{MARKER}={marker}".encode("ascii")
    return {
        pid
        for pid in _pids()
        if pid != me and (_session(pid) == session or needle in _environment(pid))
    }


def find_children() -> dict[int, int | None]:
    """Return the session of each child of this process, by pid; adopted orphans are children."""
    me = os.getpid()
    return {pid: _session(pid) for pid, parent in _parents().items() if parent == me}


def is_alive(pid: int) -> bool:
    """Whether ``pid`` exists and is no zombie."""
    if _LINUX:
        fields = read_stat(pid)
        return bool(fields) and fields[0] not in (b"Z", b"X")
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def ignores_signal(pid: int, number: int) -> bool:
    """Whether ``pid`` is known to ignore the signal ``number``; always False if not on Linux.

    A process that blocks or handles the signal does not ignore it: it may act on it later.
    """
    for line in _read_proc(pid, "status").splitlines():
        if line.startswith(b"SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def kill(pid: int) -> None:
    """Send SIGKILL to ``pid``, if it exists and this user may end it."""
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
        if fields := read_stat(pid):
            found[pid] = int(fields[1])
    return found


def _environment(pid: int) -> list[bytes]:
    if _LINUX:
        return _read_proc(pid, "environ").split(b"\0")
    try:
        variables = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return []
    return [os.fsencode(f"{name}={value}") for name, value in variables.items()]


def read_stat(pid: int) -> list[bytes]:
    """Return the fields after a process's name: state, parent, group, session and so on."""
    # The name is in parentheses and may contain any character.
    return _read_proc(pid, "stat").rpartition(b")")[2].split()


def _read_proc(pid: int, name: str) -> bytes:
    """Return a file of ``/proc``, by plain system calls: a scan reads hundreds of them."""
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

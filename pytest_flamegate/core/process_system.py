"""Processes as the system has them: their setup, the tree below them, and the ports they serve.

This process is a subreaper while a tree that it started lives: orphans of the tree become its
children and can be reaped.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import IO

import psutil

from pytest_flamegate.core.files import is_file, real_path

# --- Setup -------------------------------------------------------------------------------------

TAIL_BYTES = 4000


class Output:
    """The captured streams of one process, without ``stdout`` if that goes elsewhere."""

    def __init__(self, *, captures_stdout: bool = True) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.stdout: IO[bytes] | None = None
        if captures_stdout:
            self.stdout = tempfile.TemporaryFile()  # noqa: SIM115
        self._streams = [each for each in (self.stdout, self.stderr) if each is not None]

    @property
    def size(self) -> int:
        """Bytes written so far to all of them."""
        return sum(os.fstat(each.fileno()).st_size for each in self._streams)

    def close(self) -> None:
        """Discard the streams and their content."""
        for stream in self._streams:
            stream.close()


def wait_readable(fd: int, timeout_s: float) -> bool:
    """Whether ``fd`` has data, or its end, within ``timeout_s``."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1e3))


@contextmanager
def wakes_at_end(pid: int) -> Iterator[Callable[[float], None]]:
    """Give a function that sleeps for some seconds, or until the child ``pid`` has ended."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it is gone, or a sandbox forbids it
        yield time.sleep
        return
    has_ended = False

    def sleep(seconds: float) -> None:
        nonlocal has_ended
        if has_ended:  # and is not reaped yet: a tracer holds it
            time.sleep(seconds)
        else:
            has_ended = wait_readable(fd, seconds)

    try:
        yield sleep
    finally:
        os.close(fd)


FILLER = "FLAMEGATE_FILLER"
_PAGE_BYTES = 4096


def choose_cpus(rng: random.Random, most: int) -> list[int]:
    """Return cores that this process may use, at most so many; empty if it may bind itself to none.

    No two are threads of one physical core, if its topology can be read.
    """
    try:
        usable = os.sched_getaffinity(0)
        os.sched_setaffinity(0, usable)
    except OSError:  # forbidden by a sandbox
        return []
    by_core = {_read_siblings(cpu): cpu for cpu in rng.sample(sorted(usable), len(usable))}
    return list(by_core.values())[:most]


def _read_siblings(cpu: int) -> str:
    """Return the threads of the physical core of ``cpu``; its own number if that is not known."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return topology.read_text().strip()
    except OSError:
        return str(cpu)


def count_cores(threads: int) -> int:
    """Return on how many cores at a time so many threads of this process may compute."""
    return min(max(threads, 1), len(os.sched_getaffinity(0)))


@contextmanager
def bound_to_cpu(cpu: int | None) -> Iterator[None]:
    """Bind this thread, and any process it starts meanwhile, to one core; None binds to none."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def accept_interrupts() -> Iterator[None]:
    """Let a child that is started within the block end on SIGINT.

    A shell makes its background jobs ignore SIGINT, and children inherit that. A profiler that is
    ended by SIGINT would then end only after its timeout.
    """
    is_main = threading.current_thread() is threading.main_thread()  # others may set no handler
    is_ignored = is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if is_ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def pad_environment(texts: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with a filler, so that it takes whole pages with the program and its argv."""
    rest = {name: value for name, value in env.items() if name != FILLER}
    strings = [*texts, *(f"{name}={value}" for name, value in rest.items()), f"{FILLER}="]
    used = sum(len(os.fsencode(text)) + 1 for text in strings)
    return {**rest, FILLER: "." * (-used % _PAGE_BYTES)}


_SHEBANG_BYTES = 256


def find_executable(name: str, env: Mapping[str, str], directory: Path) -> Path | None:
    """Return the file that a process in ``directory`` with ``env`` starts as ``name``."""
    places = [""] if os.sep in name else os.get_exec_path(env)
    for place in places:
        path = real_path(directory / place / name)
        if is_file(path) and os.access(path, os.X_OK):
            return path
    return None


def read_interpreter(path: Path) -> str | None:
    """Return the program on a script's first line; after ``env`` the one that it starts."""
    try:
        with path.open("rb") as file:
            line, _, _ = file.read(_SHEBANG_BYTES).partition(b"\n")
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words else None


# --- Trees -------------------------------------------------------------------------------------

_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37

_lock = threading.Lock()
_users = 0
_earlier = 0
_adopts = False


def acquire_subreaper() -> None:
    """Start being a subreaper, unless this process already is one."""
    global _users, _earlier, _adopts
    with _lock:
        if _users == 0:
            value = ctypes.c_int(0)
            _libc().prctl(_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
            _adopts = become_subreaper() and _lists_children()
            _earlier = value.value
        _users += 1


def become_subreaper() -> bool:
    """Adopt all orphans of processes below this one, if the system can; no fork inherits that."""
    status: int = _libc().prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return status == 0


def adopts_orphans() -> bool:
    """Whether orphans of the trees that are started become children of this process at once."""
    return _adopts


def release_subreaper() -> None:
    """Restore the earlier setting when the last user is done."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _libc().prctl(_SET_CHILD_SUBREAPER, _earlier, 0, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


MARKER = "FLAMEGATE_TREE"
_PROC = "/proc"


def find_descendants(pid: int) -> set[int]:
    """Return ``pid`` and its descendants, except those whose own parent has ended."""
    parents = _parents()
    found, fresh = {pid}, {pid}
    while fresh:
        fresh = {each for each, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def find_tree(leader: int, marker: str) -> set[int]:
    """Return ``leader``, its descendants, and orphans of its session or with its ``marker``.

    Reads a few files instead of the whole of ``/proc``, if it can: it is called at each reading.
    """
    orphans = {pid for pid in read_children(os.getpid()) if _is_member(pid, leader, marker)}
    found, fresh = {leader}, {leader, *orphans}
    while fresh:
        found |= fresh
        fresh = {child for pid in fresh for child in read_children(pid)} - found
    return found


def read_children(pid: int) -> set[int]:
    """Return the children of ``pid``; empty if it has ended."""
    if not _lists_children():
        return {each for each, parent in _parents().items() if parent == pid}
    try:
        with os.scandir(f"{_PROC}/{pid}/task") as threads:
            names = [thread.name for thread in threads]
    except OSError:
        return set()
    files = (f"task/{name}/children" for name in names)
    return {int(child) for file in files for child in read_proc(pid, file).split()}


@cache
def _lists_children() -> bool:
    """Whether the kernel lists the children of a process: some are built without."""
    me = os.getpid()
    return is_file(Path(f"{_PROC}/{me}/task/{me}/children"))


def find_members(session: int, marker: str) -> set[int]:
    """Return the processes of ``session`` and those whose environment carries ``marker``."""
    me = os.getpid()
    return {pid for pid in _pids() if pid != me and _is_member(pid, session, marker)}


def _is_member(pid: int, session: int, marker: str) -> bool:
    needle = f"{MARKER}={marker}".encode("ascii")
    return _session(pid) == session or needle in read_proc(pid, "environ").split(b"\0")


def find_children() -> dict[int, int | None]:
    """Return the session of each child of this process, by pid; adopted orphans are children."""
    me = os.getpid()
    # One reading can miss a child if another one ends meanwhile.
    return {pid: _session(pid) for _ in range(2) for pid in read_children(me)}


def is_alive(pid: int) -> bool:
    """Whether ``pid`` exists and is no zombie."""
    fields = read_stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def ignores_signal(pid: int, number: int) -> bool:
    """Whether ``pid`` is known to ignore the signal ``number``.

    A process that blocks or handles the signal does not ignore it: it may act on it later.
    """
    for line in read_proc(pid, "status").splitlines():
        if line.startswith(b"SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def kill(pid: int) -> None:
    """Send SIGKILL to ``pid``, if it exists and this user may end it."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)  # noqa: TID251 - for core/process.py


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _pids() -> list[int]:
    with os.scandir(_PROC) as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _parents() -> dict[int, int]:
    return {pid: int(fields[1]) for pid in _pids() if (fields := read_stat(pid))}


def read_stat(pid: int) -> list[bytes]:
    """Return the fields after a process's name: state, parent, group, session and so on."""
    # The name is in parentheses and may contain any character.
    return read_proc(pid, "stat").rpartition(b")")[2].split()


def read_proc(pid: int | str, name: str) -> bytes:
    """Return a file of ``/proc``, by plain system calls: a scan reads hundreds of them."""
    try:
        with open(f"{_PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - fast
            return file.read()
    except OSError:
        return b""


# --- Servers -----------------------------------------------------------------------------------

_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})


def find_listeners(port: int) -> set[int]:
    """Return the processes that listen at a TCP port; those of other users may be missing."""
    with suppress(psutil.Error, OSError, RuntimeError):
        return {
            each.pid
            for each in psutil.net_connections("tcp")
            if each.pid is not None
            and each.status == psutil.CONN_LISTEN
            and each.laddr[1:] == (port,)
        }
    return set()


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine's own loopback."""
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_server(host: str, port: int) -> int | None:
    """Return the oldest process that answers there; None if it is elsewhere or not visible."""
    if not is_loopback(host):
        return None
    # Field 19 is the time of its start; a process that has ended has no fields.
    ages = ((int(fields[19]), pid) for pid in find_listeners(port) if (fields := read_stat(pid)))
    return min(ages, default=(0, None))[1]


def find_server_program(host: str, port: int) -> str:
    """Return the name of the program that answers there; empty if it is unknown."""
    pid = find_server(host, port)
    with suppress(psutil.Error, OSError):
        return "" if pid is None else Path(psutil.Process(pid).exe()).name
    return ""

"""The one place that starts and ends processes: whole trees, with nothing left behind.

A child gets a session of its own and a marker in its environment. Ending it ends
everything that carries the marker, shares the session or descends from it at that
moment. On Linux this process is a subreaper for as long as a child lives, so that
orphans of the tree come back here and are reaped instead of staying zombies.

One thing escapes: what a forked callable forks in turn, without exec, into a session
of its own and whose parent has ended by then. Nothing tells it from a process of the
user's.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import psutil

from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from resource import struct_rusage


TAIL_BYTES = 4000
OUTPUT_LIMIT_BYTES = 64 << 20
"""What a process may write: it goes to a disk."""


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """How a command that was waited for ended, and what it wrote."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    elapsed_s: float


class Output:
    """The captured streams of one process; no ``stdout`` where that goes elsewhere."""

    def __init__(self, *, captures_stdout: bool = True) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.stdout: IO[bytes] | None = None
        if captures_stdout:
            self.stdout = tempfile.TemporaryFile()  # noqa: SIM115

    @property
    def size(self) -> int:
        """Bytes written so far to all of them."""
        return sum(_size(stream) for stream in self._streams)

    @property
    def stdout_bytes(self) -> bytes:
        """What was written to standard output; nothing where that goes elsewhere."""
        return b"" if self.stdout is None else _read(self.stdout)

    @property
    def stderr_bytes(self) -> bytes:
        """What was written to standard error."""
        return _read(self.stderr)

    @property
    def stderr_text(self) -> str:
        """The last few kilobytes of standard error, as text."""
        return self.stderr_bytes[-TAIL_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of the streams and what is in them."""
        for stream in self._streams:
            stream.close()

    @property
    def _streams(self) -> tuple[IO[bytes], ...]:
        return (self.stderr,) if self.stdout is None else (self.stdout, self.stderr)


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _read(stream: IO[bytes]) -> bytes:
    return os.pread(stream.fileno(), _size(stream), 0)


FILLER = "FLAMEGATE_FILLER"
_PAGE_BYTES = 4096


def choose_cpu(rng: random.Random) -> int | None:
    """Return one of the cores this process may use; None where it cannot be bound to one."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return rng.choice(sorted(os.sched_getaffinity(0)))


@contextlib.contextmanager
def bound_to_cpu(cpu: int | None) -> Iterator[None]:
    """Bind this thread, and what it starts meanwhile, to one core; None binds to nothing."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pad_environment(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with a filler, so that it takes whole pages together with ``argv``."""
    rest = {name: value for name, value in env.items() if name != FILLER}
    # Each string ends in a NUL, and the program's name stands there once more.
    strings = [argv[0], *argv, *(f"{name}={value}" for name, value in rest.items()), f"{FILLER}="]
    used = sum(len(os.fsencode(text)) + 1 for text in strings)
    return {**rest, FILLER: "." * (-used % _PAGE_BYTES)}


def wait_readable(fd: int, timeout_s: float) -> bool:
    """Whether ``fd`` has data, or its end, within ``timeout_s``."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1e3))


_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37

_lock = threading.Lock()
_users = 0
_before = 0


def acquire_subreaper() -> None:
    """Start being a subreaper, unless this process already is one."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = _get()
            _set(1)
        _users += 1


def release_subreaper() -> None:
    """Give the setting back when the last user is done."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _set(_before)


def _get() -> int:
    if sys.platform != "linux":
        return 0
    value = ctypes.c_int(0)
    ctypes.CDLL(None, use_errno=True).prctl(_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    return value.value


def _set(value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, value, 0, 0, 0)


MARKER = "FLAMEGATE_TREE"
_LINUX = sys.platform == "linux"
_PROC = "/proc"


def find_descendants(pid: int) -> set[int]:
    """Return ``pid`` and all that descends from it; its parents' deaths hide what left it."""
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
    """Return the children of this process, the adopted ones too: session by pid."""
    me = os.getpid()
    return {pid: _session(pid) for pid, parent in _parents().items() if parent == me}


def is_alive(pid: int) -> bool:
    """Say whether ``pid`` is there and no zombie."""
    if _LINUX:
        fields = _stat(pid)
        return bool(fields) and fields[0] not in (b"Z", b"X")
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def ignores_signal(pid: int, number: int) -> bool:
    """Say whether ``pid`` is known to ignore the signal ``number`` (Linux; else never known).

    One that blocks it may be waiting for it, and one that handles it may still be at it.
    """
    for line in _read_tree(pid, "status").splitlines():
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
        return _read_tree(pid, "environ").split(b"\0")
    try:
        told = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return []
    return [os.fsencode(f"{name}={value}") for name, value in told.items()]


def _stat(pid: int) -> list[bytes]:
    """Return what stands of a process behind its name: state, parent, group and session first."""
    # The name stands in parentheses and may hold anything.
    return _read_tree(pid, "stat").rpartition(b")")[2].split()


def _read_tree(pid: int, name: str) -> bytes:
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


_GRACE_S = 0.5
_POLL_S = 0.005
_SWEEP_S = 10.0
_LOOKS = 2
_CHECK = "Check that the program exists, may be executed, and that its directory is right."
_TODO: Mapping[int | None, str] = {
    errno.E2BIG: "Linux takes 128 KiB in one argument and a quarter of the stack in all: shorten "
    "the prompt, or have the command read it from a file that it is given the name of.",
    errno.ENOEXEC: "It is no program of this machine: build it for this architecture, or begin "
    "a script with #! and its interpreter.",
}
_ROOTS: set[int] = set()
"""The processes started here that are not yet ended."""


class Child:
    """A started process and the tree below it."""

    def __init__(
        self,
        pid: int,
        marker: str,
        output: Output,
        before: Collection[int],
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.usage: struct_rusage | None = None
        self._marker = marker
        self._output = output
        self._process = process
        self._before = before
        self._closed = False
        _ROOTS.add(pid)

    def poll(self) -> int | None:
        """Return the exit status if the process has ended (negative: the signal), else None."""
        if self.returncode is None:
            self._reap(os.WNOHANG)
        return self.returncode

    def wait(self, timeout_s: float, most_bytes: int | None = None) -> int | None:
        """Wait for the process itself and return its status.

        None after ``timeout_s``, or as soon as it has written more than ``most_bytes``.
        """
        deadline = time.monotonic() + timeout_s
        while self.poll() is None and time.monotonic() < deadline:
            if most_bytes is not None and self.output_bytes() > most_bytes:
                break
            time.sleep(_POLL_S)
        return self.returncode

    def interrupt(self) -> None:
        """Send SIGINT to the process, if it still lives."""
        self._signal(signal.SIGINT)

    def end(self) -> None:
        """End the whole tree: TERM, a short grace, KILL until nothing is left; then reap.

        The grace is for the process itself, which may want to end its children in its own
        order. One that is known to ignore TERM gets none: it would be half a second for
        nothing. One that was stopped is made to go on, or it could not answer.
        """
        if self._closed:
            return
        try:
            # Who left the session is found by its parents only as long as these live.
            below = find_descendants(self.pid) if self.poll() is None else {self.pid}
            if self.poll() is None:
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)
                if not ignores_signal(self.pid, signal.SIGTERM):
                    self.wait(_GRACE_S)
            self._sweep(below)
            self._reap_adopted()
        finally:
            self._closed = True
            _ROOTS.discard(self.pid)
            self._output.close()
            release_subreaper()

    def output_bytes(self) -> int:
        """Bytes written so far to the captured streams."""
        return self._output.size

    def stdout_bytes(self) -> bytes:
        """Return what the process wrote to standard output."""
        return self._output.stdout_bytes

    def stderr_bytes(self) -> bytes:
        """Return what the process wrote to standard error."""
        return self._output.stderr_bytes

    def stderr_text(self) -> str:
        """Return the last few kilobytes of standard error, as text."""
        return self._output.stderr_text

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _reap(self, options: int) -> None:
        try:
            pid, status, usage = os.wait4(self.pid, options)
        except ChildProcessError:
            # Somebody else reaped it (a handler of SIGCHLD): its status is lost, its end is not.
            self._ended(-signal.SIGKILL)
            return
        if pid == self.pid:
            self.usage = usage
            self._ended(os.waitstatus_to_exitcode(status))

    def _ended(self, status: int) -> None:
        self.returncode = status
        if self._process is not None:
            self._process.returncode = status

    def _sweep(self, known: set[int]) -> None:
        deadline = time.monotonic() + _SWEEP_S
        empty = 0
        # One look can miss what its parent left behind in that very moment.
        while empty < _LOOKS:
            known |= find_members(self.pid, self._marker)
            known = {pid for pid in known if self._lives(pid)}
            empty = 0 if known else empty + 1
            for pid in known:
                kill(pid)
            if time.monotonic() > deadline:
                raise ToolError(
                    "E_CANNOT_END",
                    f"Processes {sorted(known)} do not end, not even on SIGKILL.",
                    "End them by hand; they may hang in the kernel (a dead network file system?).",
                )
            time.sleep(_POLL_S)

    def _reap_adopted(self) -> None:
        """Reap what died of itself after its parent: it came here, and nothing marks a zombie.

        What this process had before, started itself by another ``Child``, or has in its own
        session is somebody else's to wait for.
        """
        mine = os.getsid(0)
        for pid, session in find_children().items():
            if session != mine and pid not in self._before and pid not in _ROOTS:
                self._lives(pid)

    def _lives(self, pid: int) -> bool:
        """Whether ``pid`` is still there; reaps it if it is a dead child of this process."""
        if pid == self.pid:
            return self.poll() is None
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return False
        return is_alive(pid)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    stdout_fd: int | None = None,
    cpu: int | None = None,
) -> Child:
    """Start ``argv`` without a shell, in a session of its own, with empty standard input.

    Output goes to unlinked temporary files, standard output to ``stdout_fd`` instead
    where one is given. ``cpu`` binds the process to one core. Raises ``ToolError``
    ``E_CANNOT_START`` when the program is missing or may not run.
    """
    marker = secrets.token_hex(8)
    environment = {**(os.environ if env is None else env), MARKER: marker}
    output = Output(captures_stdout=stdout_fd is None)
    before = find_children()
    acquire_subreaper()
    try:
        with bound_to_cpu(cpu):
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output.stdout if stdout_fd is None else stdout_fd,
                stderr=output.stderr,
                env=pad_environment(argv, environment),
                cwd=cwd,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        _give_up(output)
        raise _cannot_start(repr(argv[0]), error) from None
    return Child(process.pid, marker, output, before, process)


def fork(target: Callable[[], None], *, cpu: int | None = None) -> Child:
    """Run ``target`` in a forked copy of this process, in a session of its own.

    This is how a callable that lives in a test runs apart from it. The copy ends
    when ``target`` returns (status 0) or raises (status 1, traceback on its stderr).
    """
    if not hasattr(os, "fork"):
        raise ToolError(
            "E_NO_FORK",
            "This platform cannot fork, and a callable can only be measured in a fork.",
            'Declare a workload with engine = "python" and target = "module:function" instead.',
        )
    output = Output()
    assert output.stdout is not None
    sys.stdout.flush()
    sys.stderr.flush()
    before = find_children()
    acquire_subreaper()
    marker = secrets.token_hex(8)
    with warnings.catch_warnings():
        # CPython warns of forking with threads; the copy runs one callable and leaves by _exit.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            pid = os.fork()
        except OSError as error:
            _give_up(output)
            raise _cannot_start("a copy of this process", error) from None
    if pid == 0:
        os.environ[MARKER] = marker
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        _run_forked(target, output.stdout.fileno(), output.stderr.fileno())
    return Child(pid, marker, output, before)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> CompletedCommand:
    """Run ``argv`` to its end, or end its tree after ``timeout_s``; return what it wrote.

    ``ToolError`` ``E_OUTPUT_FLOOD`` where it writes without end: its output goes to a disk.
    """
    began = time.monotonic()
    child = start(argv, env=env, cwd=cwd)
    try:
        status = child.wait(timeout_s, OUTPUT_LIMIT_BYTES)
        if child.output_bytes() > OUTPUT_LIMIT_BYTES:
            raise ToolError(
                "E_OUTPUT_FLOOD",
                f"{argv[0]!r} wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB.",
                "Turn its logging down, and check that it ends.",
            )
        stdout, stderr = child.stdout_bytes(), child.stderr_bytes()
    finally:
        child.end()
    code = -signal.SIGKILL if status is None else status
    elapsed_s = time.monotonic() - began
    return CompletedCommand(tuple(argv), code, stdout, stderr, status is None, elapsed_s)


def _give_up(output: Output) -> None:
    output.close()
    release_subreaper()


def _cannot_start(what: str, error: Exception) -> ToolError:
    number = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error)
    code = "E_ARGUMENTS_TOO_LONG" if number == errno.E2BIG else "E_CANNOT_START"
    return ToolError(code, f"Cannot start {what}: {reason}.", _TODO.get(number, _CHECK))


def _run_forked(target: Callable[[], None], stdout_fd: int, stderr_fd: int) -> None:
    """Never returns: whatever happens, the copy must not go on as a second pytest."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, fd in ((null, 0), (stdout_fd, 1), (stderr_fd, 2)):
            os.dup2(source, fd)
        target()
        status = 0
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(status)

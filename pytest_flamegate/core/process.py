"""The one place that starts and ends processes: whole trees, with nothing left behind.

A child gets a session of its own and a marker in its environment. Ending it ends every process
that carries the marker, is in the session or descends from the child at that moment.

One kind of process escapes: a forked callable forks it without exec into a session of its own,
and both its parent and the callable's process have ended by then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import secrets
import signal
import subprocess  # noqa: TID251 - the one place that starts processes
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from pytest_flamegate.core import process_system
from pytest_flamegate.core.errors import ToolError, reason_of

OUTPUT_LIMIT_BYTES = 64 << 20
"""The most that a process may write, because it goes to a disk."""


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """How a command ended, and its output."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    elapsed_s: float


_GRACE_S = 0.5
_FIRST_POLL_S, _POLL_S = 0.0005, 0.005
_SWEEP_S = 10.0
_EMPTY_SCANS = 2
_ROOTS: dict[int, str] = {}
"""The markers of processes that were started here and are not ended yet, by their ids."""
_REGISTERING = threading.Lock()
"""Held from the start of a process until it is in ``_ROOTS``, and while orphans are reaped: another
thread would take a process that is not there yet for an orphan, and its status would be lost."""


def running() -> Mapping[int, str]:
    """Return the marker of each process that was started here and is not ended yet, by its id."""
    return dict(_ROOTS)


_LIMIT_OF_LOCKS = 10
"""``RLIMIT_LOCKS``, which Python does not name, and Linux has not used since version 2.4."""


class Child:
    """A started process and the tree below it."""

    def __init__(
        self,
        pid: int,
        marker: str,
        output: process_system.Output,
        before: Collection[int],
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.usage: resource.struct_rusage | None = None
        self.left_cpu_ns = 0
        """The CPU time of processes that it left behind, as far as ``end`` knows and reaps them."""
        self.marker = marker
        self._output = output
        self._process = process
        self._before = before
        self._own = set[int]()
        self._closed = False
        _ROOTS[pid] = marker

    def poll(self) -> int | None:
        """Return the exit status if the process has ended (negative: the signal), else None."""
        if self.returncode is not None:
            return self.returncode
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            # A handler of SIGCHLD reaped it: its status is lost.
            self.returncode = -signal.SIGKILL
        else:
            if pid != self.pid:
                return None
            self.usage = usage
            self.returncode = os.waitstatus_to_exitcode(status)
        if self._process is not None:
            self._process.returncode = self.returncode
        return self.returncode

    def wait(self, timeout_s: float, most_bytes: int | None = None) -> int | None:
        """Return the status of the process; None after ``timeout_s`` or past ``most_bytes``."""
        deadline = time.monotonic() + timeout_s
        pause_s = _FIRST_POLL_S
        with process_system.wakes_at_end(self.pid) as sleep:
            while self.poll() is None and time.monotonic() < deadline:
                if most_bytes is not None and self.output_bytes() > most_bytes:
                    break
                sleep(pause_s)
                pause_s = min(2.0 * pause_s, _POLL_S)
        return self.returncode

    def interrupt(self) -> None:
        """Send SIGINT to the process, if it is still alive."""
        self._signal(signal.SIGINT)

    def end(self) -> None:
        """End the whole tree: TERM, a short grace, KILL until no process is left; then reap.

        The grace lets the process end its children in its own order. A process that ignores TERM
        gets none, which saves half a second. A stopped process is continued, so that it can
        react.
        """
        if self._closed:
            return
        try:
            if self.poll() is not None and self._left_nothing():
                return
            # A process that left the session is found by its parents only while these live.
            below = process_system.find_descendants(self.pid) if self.poll() is None else {self.pid}
            if self.poll() is None:
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)
                if not process_system.ignores_signal(self.pid, signal.SIGTERM):
                    self.wait(_GRACE_S)
            self._sweep(below)
            self._reap_adopted()
        finally:
            self._closed = True
            _ROOTS.pop(self.pid, None)
            self._output.close()
            process_system.release_subreaper()

    def output_bytes(self) -> int:
        """Bytes written so far to the captured streams."""
        return self._output.size

    def stdout_bytes(self) -> bytes:
        """Return the standard output of the process so far; empty if that goes elsewhere."""
        return b"" if self._output.stdout is None else _read(self._output.stdout)

    def stderr_bytes(self) -> bytes:
        """Return the standard error of the process so far."""
        return _read(self._output.stderr)

    def stderr_text(self) -> str:
        """Return the last few kilobytes of standard error, as text."""
        return self.stderr_bytes()[-process_system.TAIL_BYTES :].decode("utf-8", "replace").strip()

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)  # noqa: TID251

    def _left_nothing(self) -> bool:
        """Whether the ended process left no orphan, as far as these are adopted by this one."""
        return process_system.adopts_orphans() and not any(
            pid not in self._before and pid not in _ROOTS for pid in process_system.find_children()
        )

    def _sweep(self, known: set[int]) -> None:
        deadline = time.monotonic() + _SWEEP_S
        empty = 0
        # One scan can miss an orphan of that very moment.
        while empty < _EMPTY_SCANS:
            known |= process_system.find_members(self.pid, self.marker)
            self._own |= known
            known = {pid for pid in known if self._is_alive(pid)}
            if not known:
                empty += 1
                continue
            empty = 0
            for pid in known:
                process_system.kill(pid)
            if time.monotonic() > deadline:
                raise ToolError(
                    "E_CANNOT_END", f"Processes {sorted(known)} do not end after SIGKILL."
                )
            time.sleep(_POLL_S)

    def _reap_adopted(self) -> None:
        """Reap adopted zombies, which have no marker any more.

        Other code waits for children that this process had before, that another ``Child`` started
        or left behind in its session, or that are in the session of this process.
        """
        with _REGISTERING:
            sessions = {os.getsid(0), *_ROOTS} - {self.pid}
            others = [marker for pid, marker in _ROOTS.items() if pid != self.pid]
            for pid, session in process_system.find_children().items():
                is_known = pid in self._before or pid in _ROOTS or session in sessions
                if not is_known and not _has_tag(pid, others):
                    self._own |= {pid} if session == self.pid else set()
                    self._is_alive(pid)

    def _is_alive(self, pid: int) -> bool:
        """Whether ``pid`` is alive; reaps it if it is a dead child of this process."""
        if pid == self.pid:
            return self.poll() is None
        is_own = pid in self._own or _has_tag(pid, [self.marker])
        with contextlib.suppress(ChildProcessError):
            found, _, usage = os.wait4(pid, os.WNOHANG)
            if found == pid:
                self.left_cpu_ns += is_own * int((usage.ru_utime + usage.ru_stime) * 1e9)
                return False
        return process_system.is_alive(pid)


def _tag(pid: int, marker: str) -> None:
    """Tag a process that was just started, and so all below it, even if they have ended.

    The tag is an unused limit. Unlike the environment and the session it is known of a zombie, and
    of a daemon with a session of its own. Some sandboxes allow none.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, _LIMIT_OF_LOCKS, (_make_tag(marker), _make_tag(marker)))


def _has_tag(pid: int, markers: Iterable[str]) -> bool:
    """Return whether ``pid`` was started with the tag of one of these markers, or below it."""
    try:
        return resource.prlimit(pid, _LIMIT_OF_LOCKS)[0] in map(_make_tag, markers)
    except OSError:
        return False


def _make_tag(marker: str) -> int:
    return int(marker, 16) >> 4


def _read(stream: IO[bytes]) -> bytes:
    return os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    stdout_fd: int | None = None,
    cpu: int | None = None,
    executable: str | None = None,
) -> Child:
    """Start ``argv`` without a shell, in a session of its own, with empty standard input.

    Output goes to unlinked temporary files, or standard output to ``stdout_fd`` if that is given.
    ``cpu`` binds the process to one core; ``executable`` is run instead of ``argv[0]``.

    Raises ``ToolError`` ``E_CANNOT_START`` if the program is missing or may not be executed, or
    ``cwd`` is no directory, and ``E_ARGUMENTS_TOO_LONG``.
    """
    marker = secrets.token_hex(8)
    environment = {**(os.environ if env is None else env), process_system.MARKER: marker}
    output = process_system.Output(captures_stdout=stdout_fd is None)
    before = process_system.find_children()
    process_system.acquire_subreaper()
    try:
        with (
            _REGISTERING,
            process_system.bound_to_cpu(cpu),
            process_system.accept_interrupts(),
        ):
            process = subprocess.Popen(
                list(argv),
                executable=executable,
                stdin=subprocess.DEVNULL,
                stdout=output.stdout if stdout_fd is None else stdout_fd,
                stderr=output.stderr,
                env=process_system.pad_environment([executable or argv[0], *argv], environment),
                cwd=cwd,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
            _tag(process.pid, marker)
            return Child(process.pid, marker, output, before, process)
    except (OSError, ValueError) as error:
        place = f" in {str(cwd)!a}" if cwd and getattr(error, "filename", None) == cwd else ""
        _give_up(output, f"{argv[0]!r}{place}", error)


def fork(target: Callable[[], None], *, cpu: int | None = None) -> Child:
    """Run ``target`` in a forked copy of this process, in a session of its own.

    The copy ends when ``target`` returns (status 0) or raises (status 1, traceback on its
    standard error). Raises ``ToolError`` ``E_CANNOT_START``.
    """
    output = process_system.Output()
    assert output.stdout is not None
    sys.stdout.flush()
    sys.stderr.flush()
    before = process_system.find_children()
    process_system.acquire_subreaper()
    marker = secrets.token_hex(8)
    with warnings.catch_warnings():
        # CPython warns of forking with threads; the copy runs one callable and ends by _exit.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            with _REGISTERING:  # left by the copy too
                pid = os.fork()  # noqa: TID251
                child = Child(pid, marker, output, before) if pid else None
        except OSError as error:
            _give_up(output, "a copy of this process", error)
    if child is None:
        os.environ[process_system.MARKER] = marker
        _run_forked(target, cpu, output.stdout.fileno(), output.stderr.fileno())
    return child


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    memory_bytes: int | None = None,
) -> CompletedCommand:
    """Run ``argv`` to its end or for ``timeout_s``; over 64 MiB of output is ``E_OUTPUT_FLOOD``.

    ``memory_bytes`` limits its address space.
    """
    began = time.monotonic()
    child = start(argv, env=env, cwd=cwd)
    try:
        if memory_bytes is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(child.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        status = child.wait(timeout_s, OUTPUT_LIMIT_BYTES)
        if child.output_bytes() > OUTPUT_LIMIT_BYTES:
            raise ToolError(
                "E_OUTPUT_FLOOD", f"{argv[0]!r} wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB."
            )
        stdout, stderr = child.stdout_bytes(), child.stderr_bytes()
    finally:
        child.end()
    code = -signal.SIGKILL if status is None else status
    elapsed_s = time.monotonic() - began
    return CompletedCommand(code, stdout, stderr, status is None, elapsed_s)


def _give_up(output: process_system.Output, program: str, error: Exception) -> NoReturn:
    output.close()
    process_system.release_subreaper()
    number = getattr(error, "errno", None)
    code = "E_ARGUMENTS_TOO_LONG" if number == errno.E2BIG else "E_CANNOT_START"
    remedy = ""
    if number == errno.ENOEXEC:
        remedy = "Build the program for this architecture, or begin a script with #! and a program."
    raise ToolError(code, f"Cannot start {program}: {reason_of(error)}.", remedy) from None


def _run_forked(
    target: Callable[[], None], cpu: int | None, stdout_fd: int, stderr_fd: int
) -> NoReturn:
    """Run ``target`` and exit: the copy must never continue as a second pytest."""
    status = 1
    try:
        os.setsid()
        process_system.become_subreaper()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, fd in ((null, 0), (stdout_fd, 1), (stderr_fd, 2)):
            os.dup2(source, fd)
        with process_system.bound_to_cpu(cpu):
            target()
        status = 0
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(status)

"""perf: native and kernel frames of any program, Python's too where CPython tells it.

CPython tells it from 3.13 on, started with ``-X perf_jit``. The older ``-X perf`` needs a
Python built with frame pointers, which stock ones are not.

Stacks are walked by ``dwarf``, and by frame pointers only where the user asks. Choosing
them by trial would let a rebuild that drops them change how stacks are walked, and
profiles walked in two ways cannot be compared. Nor would it gain much: at 99 Hz dwarf
costs 1 % more CPU time. And it would lose: of a program built with frame pointers, all
stacks reached its start, and still ``softmax`` was in 0.4 % of them and not in 7.6 %,
because the C library's ``exp``, which it calls, is built without.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass, field, replace
from io import FileIO
from typing import TYPE_CHECKING

from pytest_flamegate.config.workload import CALL_GRAPHS, is_call_graph
from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.core.process import wait_readable
from pytest_flamegate.profile.frames import path_prefixes
from pytest_flamegate.profile.hotspots import no_samples_error
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import base, jitdump, trial
from pytest_flamegate.profile.profilers.base import (
    Probe,
    Profiler,
    RunningProfiler,
    Setup,
    WrappedCommand,
)
from pytest_flamegate.profile.profilers.errors import (
    DENIED,
    DISK_FULL,
    GONE,
    OUTPUT,
    RATE,
    SECCOMP,
    VERSION,
    KnownMessage,
    ProfilerError,
    explain_error,
    failure_error,
    output_error,
    timeout_error,
)
from pytest_flamegate.profile.profilers.perf_script import (
    CHUNK_BYTES,
    FIELDS,
    NAME,
    ParsedScript,
    parse_script,
)
from pytest_flamegate.profile.profilers.trial import install_hint, try_profiler

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_flamegate.core.process import Child, CompletedCommand


_POLL_S = 0.02


class Control:
    """The pipes of ``--control``: ``fd:`` and not ``fifo:``, whose paths may hold no comma."""

    def __init__(self) -> None:
        self._theirs_in, self._ours_out = os.pipe()
        self._ours_in, self._theirs_out = os.pipe()
        self._open = [self._ours_out, self._ours_in]

    @property
    def argv(self) -> tuple[str, ...]:
        """Options of ``perf record``: begin with sampling off, and obey the pipes."""
        return ("-D", "-1", "--control", f"fd:{self._theirs_in},{self._theirs_out}")

    @property
    def pass_fds(self) -> tuple[int, int]:
        """The ends that perf inherits."""
        return self._theirs_in, self._theirs_out

    def handed_over(self) -> None:
        """Close perf's ends here, so that its end is seen when it goes."""
        os.close(self._theirs_in)
        os.close(self._theirs_out)

    def tell(self, word: str, child: Child, timeout_s: float) -> bool:
        """Send a command and wait for the acknowledgement; False if perf ends or is silent."""
        try:
            os.write(self._ours_out, word.encode() + b"\n")
        except BrokenPipeError:
            return False
        answer = b""
        deadline = time.monotonic() + timeout_s
        while b"ack\n" not in answer and time.monotonic() < deadline:
            if wait_readable(self._ours_in, _POLL_S):
                read = os.read(self._ours_in, 64)
                if not read:
                    return False
                answer += read
            elif child.poll() is not None:
                return False
        return b"ack\n" in answer

    def close(self) -> None:
        """Close this end."""
        while self._open:
            os.close(self._open.pop())


INSTALL = install_hint("perf")
_CONTAINER = (
    "Start the container with --cap-add=PERFMON and a seccomp profile that allows "
    "perf_event_open (docker: --security-opt seccomp=unconfined)."
)
KNOWN = (
    KnownMessage("No permission to enable", SECCOMP, _CONTAINER),
    KnownMessage("Function not implemented", SECCOMP, _CONTAINER),
    KnownMessage(
        "Access to performance monitoring",
        DENIED,
        "Type: sudo sysctl kernel.perf_event_paranoid=1 (in a container: --cap-add=PERFMON); "
        "py-spy needs no such setting.",
    ),
    KnownMessage(
        "Permission denied",
        DENIED,
        "Sample a process of your own user, and write to a directory of your own.",
    ),
    KnownMessage("not found for kernel", VERSION, INSTALL),
    KnownMessage("nknown option", VERSION, f"perf 5.10 or newer is needed. {INSTALL}"),
    KnownMessage("unknown switch", VERSION, f"perf 5.10 or newer is needed. {INSTALL}"),
    KnownMessage(
        "Maximum frequency rate",
        RATE,
        "Ask for fewer samples a second, or raise kernel.perf_event_max_sample_rate.",
    ),
    KnownMessage("No such process", GONE, "The process ended before it could be sampled."),
    KnownMessage(
        "No such file or directory",
        "E_CANNOT_START",
        "Check that the program exists and may be executed.",
    ),
    DISK_FULL,
    KnownMessage(
        "incompatible file format",
        OUTPUT,
        "Measure again; the recording is damaged or of another perf.",
    ),
)

READ_TIMEOUT_S = 300.0
_LAST_WORDS_S_PERF_TOOL = 1.0
_NOT_CLOSED = b"data size field is 0"
_EVENT = re.compile(r"^(\S+): .*?\bsample_freq \}: (\d{1,9}), sample_type: ([A-Z_|]+)")
_STACK_BYTES = re.compile(r"sample_stack_user: (\d{1,9})")
_THROTTLE = re.compile(rb"(?<!UN)THROTTLE events:\s+(\d{1,18})")


def perf_environment() -> dict[str, str]:
    """Return an environment in which perf reads no user's settings and asks no server."""
    return {**os.environ, "PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "LC_ALL": "C"}


def run_reader(argv: Sequence[str]) -> CompletedCommand:
    """Run one of perf's reading commands; raise ``ProfilerError`` where it fails."""
    result = process.run(argv, timeout_s=READ_TIMEOUT_S, env=perf_environment())
    if result.timed_out:
        raise timeout_error(NAME, READ_TIMEOUT_S, f"running perf {argv[1]}")
    if result.returncode != 0:
        raise failure_error(NAME, result.stderr or result.stdout, result.returncode, KNOWN)
    if _NOT_CLOSED in result.stderr:
        raise output_error(NAME, "perf record did not finish writing it")
    return result


def read_event(program: str, raw: Path) -> tuple[str, int, str]:
    """Return the event that was really sampled, its rate in Hz, and the call graph mode."""
    return parse_evlist(run_reader([program, "evlist", "-f", "-v", "-i", str(raw)]).stdout)


def parse_evlist(listed: bytes) -> tuple[str, int, str]:
    """Read what ``perf evlist -v`` prints: the event, its rate in Hz, the call graph mode.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` where it names no sampled event.
    """
    for line in listed.decode("utf-8", "replace").splitlines():
        found = _EVENT.match(line)
        if found is None or found[1].startswith("dummy"):
            continue
        kept = _STACK_BYTES.search(line)
        graph = f"dwarf,{kept[1]}" if kept else "fp" if "CALLCHAIN" in found[3] else "none"
        return found[1], int(found[2]), graph
    raise output_error(NAME, "perf evlist names no sampled event")


def count_throttles(program: str, raw: Path) -> int:
    """Return how often the kernel throttled the sampling."""
    return parse_stats(run_reader([program, "report", "-f", "--stats", "-i", str(raw)]).stdout)


def parse_stats(stats: bytes) -> int:
    """Read what ``perf report --stats`` prints: how often the kernel throttled the sampling."""
    found = _THROTTLE.search(stats)
    return int(found[1]) if found else 0


def read_script(
    program: str, raw: Path, roots: Sequence[str], window_ns: tuple[int, int] | None = None
) -> ParsedScript:
    """Read every sample of ``raw``, or those within ``window_ns``. Raises ``ProfilerError``.

    What perf prints is read as it comes: of deep stacks it is gigabytes.
    """
    argv = [program, "script", "-f", "--no-inline", "--show-lost-events", "--max-stack", "1024"]
    deadline = time.monotonic() + READ_TIMEOUT_S
    with _pipe() as (ours, theirs):
        child = process.start(
            [*argv, "-F", FIELDS, "-i", str(raw)], env=perf_environment(), stdout_fd=theirs.fileno()
        )
        try:
            theirs.close()
            refusal = None
            try:
                found = parse_script(_printed(ours, deadline), roots, window_ns)
            except ProfilerError as error:
                refusal = error
            status = child.wait(_LAST_WORDS_S_PERF_TOOL if refusal else deadline - time.monotonic())
            stderr = child.stderr_bytes()
        finally:
            child.end()
    if refusal is None and status is None:
        raise _script_hangs()
    if status:  # it explains what is missing in what was read
        raise failure_error(NAME, stderr, status, KNOWN)
    if refusal is not None:
        raise refusal
    return found


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    ours, theirs = (FileIO(fd, mode) for fd, mode in zip(os.pipe(), "rw", strict=True))
    with ours, theirs:
        yield ours, theirs


def _printed(ours: FileIO, deadline: float) -> Iterator[bytes]:
    """Yield what perf prints until it closes its end."""
    while wait_readable(ours.fileno(), deadline - time.monotonic()):
        if not (chunk := ours.read(CHUNK_BYTES)):
            return
        yield chunk
    raise _script_hangs()


def _script_hangs() -> ProfilerError:
    return timeout_error(NAME, READ_TIMEOUT_S, "running perf script")


def inject_jit(program: str, raw: Path) -> Path:
    """Return a copy of ``raw`` in which Python's functions have names."""
    injected = raw.with_name(raw.name + ".jit")
    run_reader([program, "inject", "-f", "--jit", "-i", str(raw), "-o", str(injected)])
    return injected


EVENT = "cpu-clock"
RATE_HZ = 99
"""More copies so much of the stack that it costs more than 2 % of CPU time."""
CALL_GRAPH_PYTHON = "dwarf,32768"
CALL_GRAPH_NATIVE = "dwarf,65528"
OLD_PYTHON = "Python frames need CPython >= 3.13"
NO_PYTHON = "no Python frame was resolved"
NO_KERNEL = "no kernel frames"
_FIRST_WITH_JITDUMP = (3, 13)
_ANSWER_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 60.0
_LAST_WORDS_S = 1.0
_MONOTONIC = "1"
"""The clock of the observer and of CPython's jitdump, by its number."""


def perf_python_flags(version: tuple[int, int, int]) -> tuple[str, ...]:
    """Return the flags with which that CPython tells perf the names of its functions."""
    return ("-X", "perf_jit") if version >= _FIRST_WITH_JITDUMP else ()


@dataclass(frozen=True, slots=True)
class Perf:
    """Samples on CPU time, ``rate_hz`` times a second, with stacks by ``call_graph``."""

    rate_hz: int = RATE_HZ
    call_graph: str = CALL_GRAPH_PYTHON
    python: str = ""
    python_flags: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    name: str = field(default=NAME, init=False)

    def probe(self) -> Probe:
        """Try it on a small process."""
        return try_profiler(self, _program)

    def attach(self, pid: int, directory: Path) -> RunningProfiler:
        """Sample ``pid`` and its threads; perf has acknowledged when this returns."""
        program = _program()
        raw = base.unused_path(directory, f"perf-{pid}", ".data")
        control = Control()
        child = None
        try:
            argv = [*self._record(program, raw), *control.argv, "-p", str(pid)]
            child = process.start(argv, env=perf_environment(), pass_fds=control.pass_fds)
            control.handed_over()
            if not control.tell("enable", child, _ANSWER_TIMEOUT_S):
                raise _unanswered(child, _ANSWER_TIMEOUT_S, "told to begin")
        except BaseException:
            control.close()
            if child is not None:
                child.end()
            raise
        return _PerfRecording(child, control, raw, pid, clocks.read_start_ticks(pid))

    def wrap(self, argv: Sequence[str], directory: Path) -> WrappedCommand:
        """Run ``argv`` under perf; the exit status is that of ``argv``, 255 where perf failed."""
        raw = base.unused_path(directory, NAME, ".data")
        return WrappedCommand((*self._record(_program(), raw), "--", *argv), raw)

    def parse(
        self, raw: Path, said: bytes = b"", window_ns: tuple[int, int] | None = None
    ) -> Profile:
        """Read a recording; the rate, event and call graph are those really used."""
        try:
            profile = self._parse(raw, window_ns)
            return profile if window_ns is None else replace(profile, covers="decode")
        except FlamegateError as error:
            raise explain_error(NAME, said, KNOWN, error) from None

    def _parse(self, raw: Path, window_ns: tuple[int, int] | None) -> Profile:
        program = _program()
        notes = base.read_sidecar(raw, NAME)
        if not raw.is_file():
            raise output_error(NAME, "perf record wrote no file")
        number = trial.tool_version(program)
        event, rate_hz, call_graph = read_event(program, raw)
        times_throttled = count_throttles(program, raw)
        script = self._script(program, raw, notes.pid, window_ns)
        pids = (notes.pid,) if notes.pid is not None else tuple(sorted(script.pids))
        if not pids and window_ns is None:
            raise no_samples_error(NAME, 0, script.lost)
        degraded = [*notes.degraded]
        if event.endswith(":u"):
            degraded.append(f"{NO_KERNEL}: {event}")
        if times_throttled:
            degraded.append(f"throttled {times_throttled} times")
        if self.python and not any(f.kind == "python" for stack in script.stacks for f in stack):
            degraded.append(NO_PYTHON if self.python_flags else OLD_PYTHON)
        return Profile(
            profiler=NAME,
            profiler_version=number,
            event=event,
            rate_hz=rate_hz,
            call_graph=call_graph,
            python=self.python,
            stacks=script.stacks,
            errors=0,
            lost=script.lost,
            complete=sum(script.stacks.values()),
            duration_ns=script.span_ns,
            pids=pids,
            started_ticks=(notes.started_ticks,) if notes.pid is not None else (None,) * len(pids),
            degraded=tuple(degraded),
        )

    def _script(
        self, program: str, raw: Path, pid: int | None, window_ns: tuple[int, int] | None
    ) -> ParsedScript:
        if not self.python_flags or pid is None or not jitdump.jitdump_path(pid).exists():
            return read_script(program, raw, self.roots, window_ns)
        injected = None
        try:
            jitdump.scrub_names(jitdump.jitdump_path(pid))
            injected = inject_jit(program, raw)
            return read_script(program, injected, self.roots, window_ns)
        except OSError as error:
            raise output_error(NAME, f"the jitdump of process {pid}: {error}") from None
        finally:
            if injected is not None:
                injected.unlink(missing_ok=True)

    def _record(self, program: str, raw: Path) -> tuple[str, ...]:
        argv = [program, "record", "-e", EVENT, "-F", str(self.rate_hz), "--strict-freq", "-N"]
        argv += ["-k", _MONOTONIC, "-o", str(raw)]
        if self.call_graph != "none":
            argv += ["--call-graph", self.call_graph]
        # No -z, though dwarf copies the stack at every sample (6 MB a second at the default
        # rate): perf 6.1 was seen to write compressed files that it cannot read, on a busy
        # machine, and its inject command, which puts Python's names in, reads none.
        return tuple(argv)


@dataclass(slots=True)
class _PerfRecording:
    child: Child
    control: Control
    raw: Path
    pid: int
    started_ticks: int | None
    stopped: bool = False

    def stop(self) -> Path:
        """Disable the event first, so that nothing of the stopping itself is sampled."""
        if self.stopped:
            return self.raw
        try:
            if not all(
                self.control.tell(word, self.child, _ANSWER_TIMEOUT_S)
                for word in ("disable", "stop")
            ):
                self.child.interrupt()
            # perf writes its file on an interrupt too, and then dies of the signal.
            if self.child.wait(_STOP_TIMEOUT_S) not in (0, -signal.SIGINT):
                raise _unanswered(self.child, _STOP_TIMEOUT_S, "told to stop")
        finally:
            self._end()
        base.write_sidecar(self.raw, base.Sidecar(self.pid, self.started_ticks))
        self.stopped = True
        return self.raw

    def close(self) -> None:
        """End perf."""
        self._end()

    def _end(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.control.close)
            self.child.end()


def make_perf(setup: Setup) -> Profiler:
    """Return perf as ``setup`` wants it; ``UsageError`` for a call graph it does not know."""
    call_graph = setup.call_graph or (
        CALL_GRAPH_PYTHON if setup.python_engine else CALL_GRAPH_NATIVE
    )
    if not is_call_graph(call_graph):
        raise UsageError(
            "E_CALL_GRAPH", f"perf cannot unwind by {call_graph!r}.", f"Use {CALL_GRAPHS}."
        )
    return Perf(
        rate_hz=setup.rate_hz or RATE_HZ,
        call_graph=call_graph,
        python=setup.python_text,
        python_flags=perf_python_flags(setup.python) if setup.python_engine else (),
        roots=path_prefixes(setup.project),
    )


def _program() -> str:
    return trial.find_program(NAME, INSTALL)


def _unanswered(child: Child, timeout_s: float, doing: str) -> ProfilerError:
    status = child.wait(_LAST_WORDS_S)  # its pipes close a moment before it ends
    if status is None:
        return timeout_error(NAME, timeout_s, doing)
    return failure_error(NAME, child.stderr_bytes(), status, KNOWN)

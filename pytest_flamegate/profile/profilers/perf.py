"""perf: native and kernel frames of any program, and Python's from CPython 3.13 on.

CPython 3.13 names its functions for perf if it is started with ``-X perf_jit``. The older
``-X perf`` needs a Python built with frame pointers, which stock ones are not.

Stacks are walked by ``dwarf``; frame pointers are used only if the user asks for them. Choosing
them by trial would let a rebuild that drops them change how stacks are walked, and profiles
walked in two ways cannot be compared. They lose functions, too: in a program built with them
``softmax`` was in 0.4 % of the stacks instead of 7.6 %, because the C library's ``exp``, which it
calls, is built without.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import socket, socketpair  # noqa: TID251 - a connected pair, no address

from pytest_flamegate.config.workload import CALL_GRAPHS, is_call_graph
from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import read_system_text
from pytest_flamegate.core.process import Child
from pytest_flamegate.profile.frames import path_prefixes
from pytest_flamegate.profile.hotspots import no_samples_error
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import base, perf_data, tools

EVENT = "cpu-clock"
RATE_HZ = 99
"""A higher rate copies so much of the stack that it costs more than 2 % of CPU time."""
COMPARING_HZ, COMPARING_CALL_GRAPH = 3999, "dwarf,8192"
"""For programs: both sides pay alike, and the bytes a second are those at ``DEEP_HZ``."""
DEEP_HZ = 499
"""For programs whose stacks do not fit into that."""
CALL_GRAPH_PYTHON = "dwarf,32768"
CALL_GRAPH_NATIVE = "dwarf,65528"
OLD_PYTHON = "Python frames need CPython >= 3.13"
NO_PYTHON = "no Python frame was resolved"
NO_KERNEL = "no kernel frames"
_FIRST_WITH_JITDUMP = (3, 13)
_MONOTONIC = "1"
"""The number of the clock that the observer and CPython's jitdump use."""


@dataclass(frozen=True, slots=True)
class Perf:
    """Samples ``rate_hz`` times a second of CPU time, with stacks by ``call_graph``.

    ``deeper`` is to be used instead if many of them are cut.
    """

    rate_hz: int = RATE_HZ
    call_graph: str = CALL_GRAPH_PYTHON
    python: str = ""
    python_flags: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    deeper: Perf | None = None
    name: str = field(default=perf_data.NAME, init=False)

    def attach(self, pid: int, directory: Path) -> base.RunningProfiler:
        """Sample ``pid`` and its threads; perf has acknowledged when this returns."""
        program = tools.find_program(perf_data.NAME)
        raw = base.unused_path(directory, f"perf-{pid}", ".data")
        # Sampling begins off, and perf obeys the socket: a path of ``fifo:`` may hold no comma.
        control, theirs = socketpair()
        child = None
        try:
            with theirs:
                fd = theirs.fileno()
                argv = [*self._record(program, raw), "-D", "-1", "--control", f"fd:{fd},{fd}"]
                argv += ["-p", str(pid)]
                child = process.start(argv, env=perf_data.perf_environment(), pass_fds=(fd,))
            if not _send(control, "enable"):
                raise _silence_error(child, tools.ANSWER_TIMEOUT_S, "starting to sample")
        except BaseException:
            control.close()
            if child is not None:
                child.end()
            raise
        recording = base.Recording(raw, pid, clocks.read_start_ticks(pid))
        return _RunningPerf(child, control, recording)

    def wrap(self, argv: Sequence[str], directory: Path) -> base.WrappedCommand:
        """Run ``argv`` under perf; the exit status is that of ``argv``, 255 if perf failed."""
        raw = base.unused_path(directory, perf_data.NAME, ".data")
        return base.WrappedCommand(
            (*self._record(tools.find_program(perf_data.NAME), raw), "--", *argv),
            base.Recording(raw),
        )

    def parse(self, recording: base.Recording, window_ns: tuple[int, int] | None = None) -> Profile:
        """Parse a recording; rate, event and call graph are those that perf really used."""
        program, raw, pid = tools.find_program(perf_data.NAME), recording.raw, recording.pid
        if not raw.is_file():
            raise tools.output_error(perf_data.NAME, "perf record wrote no file")
        version = tools.tool_version(program)
        listed = perf_data.run_perf(program, "evlist", "-f", "-v", "-i", raw)
        event, rate_hz, call_graph = perf_data.parse_evlist(listed)
        throttles = perf_data.parse_stats(
            perf_data.run_perf(program, "report", "-f", "--stats", "-i", raw)
        )
        named: AbstractContextManager[Path] = nullcontext(raw)
        if self.python_flags and pid is not None:
            named = perf_data.named_recording(program, raw, pid)
        with named as path:
            returns = call_graph == "fp"
            script = perf_data.read_script(program, path, self.roots, window_ns, returns=returns)
        pids = (pid,) if pid is not None else script.pids
        if not pids and window_ns is None:
            raise no_samples_error(perf_data.NAME, 0, script.lost)
        degraded = []
        if event.endswith(":u"):
            degraded.append(f"{NO_KERNEL}: {event}")
        if throttles:
            degraded.append(f"throttled {throttles} times")
        if self.python and not any(f.kind == "python" for stack in script.stacks for f in stack):
            degraded.append(NO_PYTHON if self.python_flags else OLD_PYTHON)
        return Profile(
            profiler=perf_data.NAME,
            profiler_version=version,
            event=event,
            rate_hz=rate_hz,
            call_graph=call_graph,
            python=self.python,
            stacks=script.stacks,
            lines=script.lines,
            lost=script.lost,
            complete=sum(script.stacks.values()),
            duration_ns=script.duration_ns,
            pids=pids,
            started_ticks=(recording.started_ticks,) * len(pids),
            degraded=tuple(degraded),
            covers="sequence" if window_ns is None else "decode",
        )

    def clean_up(self, pid: int) -> None:
        """Remove what CPython wrote for perf."""
        if self.python_flags:
            perf_data.remove_jit_files(pid)

    def _record(self, program: str, raw: Path) -> tuple[str, ...]:
        argv = [program, "record", "-e", EVENT, "-F", str(self.rate_hz), "--strict-freq", "-N"]
        argv += ["-k", _MONOTONIC, "-o", str(raw)]
        # Its thread for BPF programs, of which no stack needs a name, ends a second late.
        argv.append("--no-bpf-event")
        if self.call_graph != "none":
            argv += ["--call-graph", self.call_graph]
        # No -z, though dwarf copies the stack at every sample (6 MB a second at the default
        # rate): perf 6.1 was seen to write compressed files that it cannot read, on a busy
        # machine, and its inject command, which adds Python's names, reads none.
        return tuple(argv)


def make_profiler(setup: base.Setup) -> base.Profiler:
    """Return perf set up for ``setup``. Raises ``UsageError`` for an unknown call graph."""
    call_graph = setup.call_graph or (
        CALL_GRAPH_PYTHON if setup.python_engine else CALL_GRAPH_NATIVE
    )
    if not is_call_graph(call_graph):
        raise UsageError(
            "E_PROFILER_OPTION", f"perf cannot unwind by {call_graph!r}.", f"Use {CALL_GRAPHS}."
        )
    compares_program = setup.comparing and not setup.python_engine
    has_jitdump = setup.python_engine and setup.python >= _FIRST_WITH_JITDUMP
    profiler = Perf(
        rate_hz=setup.rate_hz or (DEEP_HZ if compares_program else RATE_HZ),
        call_graph=call_graph,
        python=setup.python_text,
        python_flags=("-X", "perf_jit") if has_jitdump else (),
        roots=path_prefixes(setup.project),
    )
    # The kernel lowers the highest rate when sampling takes it too long.
    is_set = setup.rate_hz or setup.call_graph
    if not compares_program or is_set or _read_safe_rate() < COMPARING_HZ:
        return profiler
    return replace(profiler, rate_hz=COMPARING_HZ, call_graph=COMPARING_CALL_GRAPH, deeper=profiler)


def _read_safe_rate() -> int:
    """Return the rate that the kernel allows now, halved, because it may lower it again."""
    text = read_system_text(Path("/proc/sys/kernel/perf_event_max_sample_rate"))
    return int(text) // 2 if text.isdecimal() else 0


def _silence_error(child: Child, timeout_s: float, activity: str) -> tools.ProfilerError:
    status = child.wait(tools.LAST_WORDS_S)  # its pipes close a moment before it ends
    if status is None:
        return tools.timeout_error(perf_data.NAME, timeout_s, activity)
    return tools.failure_error(perf_data.NAME, child.stderr_bytes(), status)


@dataclass(slots=True)
class _RunningPerf:
    child: Child
    control: socket
    recording: base.Recording

    def stop(self) -> base.Recording:
        """Disable the event first, so that the stopping itself is not sampled."""
        try:
            if not all(_send(self.control, word) for word in ("disable", "stop")):
                self.child.interrupt()
            # perf writes its file on an interrupt too, and then dies of the signal.
            if self.child.wait(tools.STOP_TIMEOUT_S) not in (0, -signal.SIGINT):
                raise _silence_error(self.child, tools.STOP_TIMEOUT_S, "writing its file")
        finally:
            self.close()
        return self.recording

    def close(self) -> None:
        """End perf in any state."""
        with self.control:
            self.child.end()


def _send(control: socket, command: str) -> bool:
    """Send a command to perf and wait for its acknowledgement; False if perf ends or is silent."""
    control.settimeout(tools.ANSWER_TIMEOUT_S)
    answer = b""
    try:
        control.sendall(command.encode() + b"\n")
        while b"ack\n" not in answer:
            if not (read := control.recv(64)):
                return False
            answer += read
    except OSError:  # a timeout too
        return False
    return True

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
import signal
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, UsageError
from pytest_flamegate.profile import jitdump, perf_tool, programs, sidecar
from pytest_flamegate.profile.base import Probe, Profiler, Recording, Setup, Wrapped
from pytest_flamegate.profile.hotspots import no_samples
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.normalise import prefixes
from pytest_flamegate.profile.perf_control import Control
from pytest_flamegate.profile.perf_script import NAME, Script
from pytest_flamegate.profile.perf_words import INSTALL, KNOWN
from pytest_flamegate.profile.trial import trial
from pytest_flamegate.profile.words import ProfilerError, explained, failed, hangs, unreadable
from pytest_flamegate.workload import clocks, process
from pytest_flamegate.workload.sampling import CALL_GRAPHS, is_call_graph

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flamegate.workload.process import Child

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


def python_flags(version: tuple[int, int, int]) -> tuple[str, ...]:
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
        return trial(self, _program)

    def attach(self, pid: int, directory: Path) -> Recording:
        """Sample ``pid`` and its threads; perf has acknowledged when this returns."""
        program = _program()
        raw = sidecar.fresh(directory, f"perf-{pid}", ".data")
        control = Control()
        child = None
        try:
            argv = [*self._record(program, raw), *control.argv, "-p", str(pid)]
            child = process.start(argv, env=perf_tool.environment(), pass_fds=control.pass_fds)
            control.handed_over()
            if not control.tell("enable", child, _ANSWER_TIMEOUT_S):
                raise _unanswered(child, _ANSWER_TIMEOUT_S, "told to begin")
        except BaseException:
            control.close()
            if child is not None:
                child.end()
            raise
        return _PerfRecording(child, control, raw, pid, clocks.started_ticks(pid))

    def wrap(self, argv: Sequence[str], directory: Path) -> Wrapped:
        """Run ``argv`` under perf; the exit status is that of ``argv``, 255 where perf failed."""
        raw = sidecar.fresh(directory, NAME, ".data")
        return Wrapped((*self._record(_program(), raw), "--", *argv), raw)

    def parse(
        self, raw: Path, said: bytes = b"", window_ns: tuple[int, int] | None = None
    ) -> Profile:
        """Read a recording; the rate, event and call graph are those really used."""
        try:
            profile = self._parse(raw, window_ns)
            return profile if window_ns is None else replace(profile, covers="decode")
        except FlamegateError as error:
            raise explained(NAME, said, KNOWN, error) from None

    def _parse(self, raw: Path, window_ns: tuple[int, int] | None) -> Profile:
        program = _program()
        notes = sidecar.read(raw, NAME)
        if not raw.is_file():
            raise unreadable(NAME, "perf record wrote no file")
        number = programs.version(program)
        event, rate_hz, call_graph = perf_tool.event_of(program, raw)
        times_throttled = perf_tool.throttled(program, raw)
        script = self._script(program, raw, notes.pid, window_ns)
        pids = (notes.pid,) if notes.pid is not None else tuple(sorted(script.pids))
        if not pids and window_ns is None:
            raise no_samples(NAME, 0, script.lost)
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
    ) -> Script:
        if not self.python_flags or pid is None or not jitdump.dump_of(pid).exists():
            return perf_tool.script(program, raw, self.roots, window_ns)
        injected = None
        try:
            jitdump.scrub(jitdump.dump_of(pid))
            injected = perf_tool.inject_jit(program, raw)
            return perf_tool.script(program, injected, self.roots, window_ns)
        except OSError as error:
            raise unreadable(NAME, f"the jitdump of process {pid}: {error}") from None
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
        sidecar.write(self.raw, sidecar.Sidecar(self.pid, self.started_ticks))
        self.stopped = True
        return self.raw

    def close(self) -> None:
        """End perf."""
        self._end()

    def _end(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.control.close)
            self.child.end()


def make(setup: Setup) -> Profiler:
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
        python_flags=python_flags(setup.python) if setup.python_engine else (),
        roots=prefixes(setup.project),
    )


def _program() -> str:
    return programs.find(NAME, INSTALL)


def _unanswered(child: Child, timeout_s: float, doing: str) -> ProfilerError:
    status = child.wait(_LAST_WORDS_S)  # its pipes close a moment before it ends
    if status is None:
        return hangs(NAME, timeout_s, doing)
    return failed(NAME, child.stderr_bytes(), status, KNOWN)

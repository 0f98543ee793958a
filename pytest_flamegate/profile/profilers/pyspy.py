"""py-spy: Python frames, by reading the memory of the process; up to 250 Hz nearly free.

It samples by wall clock and leaves idle threads out. Threads without Python frames (OpenBLAS,
OpenMP, an engine's own) are invisible to it. It pauses the process for each sample, longer if
native frames are asked for. Without pausing, 3 to 5 % of the samples fail and some show a stack
that never existed.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.process import Child
from pytest_flamegate.profile.formats import speedscope
from pytest_flamegate.profile.frames import path_prefixes
from pytest_flamegate.profile.hotspots import no_samples_error
from pytest_flamegate.profile.model import Profile, SampledStacks
from pytest_flamegate.profile.profilers import base, tools

NAME = "py-spy"
RATE_HZ = 100
"""A higher rate costs more than 3 % of CPU time."""
COMPARING_HZ = 200
MAX_RATE_HZ = 1000
"""Beyond it py-spy falls behind; at 0 it waits for ever."""
NATIVE_RATE_HZ = 250
"""Native stacks read faster than this slow the program down by more than a tenth."""
EVENT = "wall-clock"
CALL_GRAPH = "python"
NATIVE, NONBLOCKING = "+native", "+nonblocking"
"""Appended to the call graph, so that profiles taken differently are not compared."""
UNPAUSED = "sampled without pausing"
_POLL_S = 0.005
_STARTED = b"py-spy> Sampling process"
_CLOSING = re.compile(
    rb"^py-spy> Wrote .*Samples: \d{1,18} Errors: (\d{1,18})[ \r]*$", re.MULTILINE
)
_OWN_LINES = re.compile(
    rb"py-spy> Sampling process [^\n]{0,100}\n\n"
    rb"|\npy-spy> Stopped sampling [^\n]*\npy-spy> Wrote [^\n]*\n(?:py-spy> [^\n]*\n)?"
)


@dataclass(frozen=True, slots=True)
class PySpy:
    """Samples ``rate_hz`` times a second of wall time."""

    rate_hz: int = RATE_HZ
    native: bool = False
    nonblocking: bool = False
    python: str = ""
    roots: tuple[str, ...] = ()
    python_flags: tuple[str, ...] = ()
    name: str = field(default=NAME, init=False)
    deeper: None = field(default=None, init=False)

    def attach(self, pid: int, directory: Path) -> base.RunningProfiler:
        """Sample ``pid``. If pausing it is forbidden, sample without, and say so."""
        raw = base.unused_path(directory, f"{NAME}-{pid}", ".json")
        argv = (*self._record(tools.find_program(NAME), raw), "--pid", str(pid))
        recording = base.Recording(raw, pid, clocks.read_start_ticks(pid), self.nonblocking)
        try:
            return _RunningPySpy(_start(argv), recording)
        except tools.ProfilerError as error:
            if error.code != "E_PROFILER_DENIED" or self.native or self.nonblocking:
                raise
            try:
                child = _start((*argv, "--nonblocking"))
            except tools.ProfilerError:
                raise error from None
            degraded = (f"{UNPAUSED}: {error.reason}",)
            return _RunningPySpy(child, replace(recording, nonblocking=True, degraded=degraded))

    def wrap(self, argv: Sequence[str], directory: Path) -> base.WrappedCommand:
        """Run ``argv`` under py-spy, whose exit status does not depend on that of ``argv``."""
        raw = base.unused_path(directory, NAME, ".json")
        recorded = (*self._record(tools.find_program(NAME), raw), "--", *argv)
        return base.WrappedCommand(recorded, base.Recording(raw), remove_own_lines)

    def parse(
        self,
        recording: base.Recording,
        window_ns: tuple[int, int] | None = None,  # noqa: ARG002 - py-spy writes no times
    ) -> Profile:
        """Parse a recording."""
        try:
            content = recording.raw.read_bytes()
        except OSError as error:
            raise tools.output_error(NAME, error.strerror or str(error)) from None
        sampled = parse_recording(content, self.roots, native=self.native)
        pids = (recording.pid,) if recording.pid is not None else sampled.pids[:1]
        if not pids:
            raise no_samples_error(NAME, recording.errors, 0)
        nonblocking = self.nonblocking or recording.nonblocking
        degraded = list(recording.degraded)
        if self.nonblocking:
            degraded.append(f"{UNPAUSED}: asked for")
        if self.native and self.rate_hz > NATIVE_RATE_HZ:
            degraded.append(f"native stacks at {self.rate_hz} Hz slow the program down")
        return Profile(
            profiler=NAME,
            profiler_version=tools.tool_version(tools.find_program(NAME)),
            event=EVENT,
            rate_hz=self.rate_hz,
            call_graph=CALL_GRAPH + NATIVE * self.native + NONBLOCKING * nonblocking,
            python=self.python,
            stacks=sampled.stacks,
            lines=sampled.lines,
            errors=recording.errors,
            complete=sum(sampled.stacks.values()),
            duration_ns=sampled.duration_ns,
            pids=pids,
            started_ticks=(recording.started_ticks,),
            degraded=tuple(degraded),
        )

    def clean_up(self, pid: int) -> None:
        """Nothing is left behind."""

    def _record(self, program: str, raw: Path) -> tuple[str, ...]:
        options = ["--format", "speedscope", "--full-filenames"]
        options += ["--native"] * self.native + ["--nonblocking"] * self.nonblocking
        return (program, "record", "--rate", str(self.rate_hz), *options, "--output", str(raw))


def make_profiler(setup: base.Setup) -> base.Profiler:
    """Return py-spy set up for ``setup``. Raises ``UsageError`` for what it cannot fulfil."""
    if setup.call_graph is not None:
        raise UsageError(
            "E_PROFILER_OPTION",
            f"{NAME} reads Python's own stacks and has no call graph {setup.call_graph!r}.",
            "Drop call_graph, or choose perf: --flamegate-profiler=perf.",
        )
    # Native stacks take too long to be read faster.
    default_hz = COMPARING_HZ if setup.comparing and not setup.native else RATE_HZ
    rate_hz = default_hz if setup.rate_hz is None else setup.rate_hz
    if not 0 < rate_hz <= MAX_RATE_HZ:
        raise UsageError(
            "E_PROFILER_OPTION",
            f"{NAME} cannot sample {rate_hz} times a second.",
            f"Set rate_hz to 1 to {MAX_RATE_HZ}.",
        )
    return PySpy(
        rate_hz=rate_hz,
        native=setup.native,
        nonblocking=setup.nonblocking,
        python=setup.python_text,
        roots=path_prefixes(setup.project),
    )


def remove_own_lines(stdout: bytes) -> bytes:
    """Return the output of a wrapped command without the lines that py-spy prints among it."""
    return _OWN_LINES.sub(b"", stdout)


def count_failures(stdout: bytes) -> int | None:
    """Return the number of failed samples in py-spy's closing line, None without such a line."""
    found = _CLOSING.search(stdout)
    return int(found[1]) if found else None


def _start(argv: Sequence[str]) -> Child:
    """Start py-spy; return once it samples. Raises ``ProfilerError``."""
    child = process.start(argv)
    try:
        deadline = time.monotonic() + tools.ANSWER_TIMEOUT_S
        while _STARTED not in child.stdout_bytes():
            status = child.poll()
            if status is not None:
                raise tools.failure_error(NAME, child.stderr_bytes(), status)
            if time.monotonic() > deadline:
                raise tools.timeout_error(NAME, tools.ANSWER_TIMEOUT_S, "starting to sample")
            time.sleep(_POLL_S)
    except BaseException:
        child.end()
        raise
    return child


@dataclass(slots=True)
class _RunningPySpy:
    child: Child
    recording: base.Recording

    def stop(self) -> base.Recording:
        """Interrupt py-spy: only then does it write its file. Its exit status says nothing."""
        try:
            self.child.interrupt()
            if self.child.wait(tools.STOP_TIMEOUT_S) is None:
                raise tools.timeout_error(NAME, tools.STOP_TIMEOUT_S, "writing its file")
            failures = count_failures(self.child.stdout_bytes())
            if failures is None or not self.recording.raw.is_file():
                raise tools.failure_error(NAME, self.child.stderr_bytes(), self.child.poll())
        finally:
            self.child.end()
        return replace(self.recording, errors=failures)

    def close(self) -> None:
        """End py-spy in any state."""
        self.child.end()


def parse_recording(
    raw: bytes, roots: Sequence[str] = (), *, native: bool = False
) -> SampledStacks:
    """Parse the bytes of py-spy's file. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``."""
    try:
        return speedscope.count_pyspy_samples(
            speedscope.parse_speedscope(raw), roots, native=native
        )
    except ReceiptError as error:
        raise tools.output_error(NAME, error.problem) from None

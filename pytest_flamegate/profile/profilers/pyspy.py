"""py-spy: Python frames by reading the process's memory, at next to no cost up to 250 Hz.

It samples by wall clock and leaves idle threads out; threads without Python frames
(OpenBLAS, OpenMP, an engine's own) it cannot see. It pauses the process for each sample,
for longer where native frames are wanted; without pausing, 3 to 5 % of the samples fail
and some show a stack that never was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.profile.formats.speedscope import SpeedscopeError, parse_speedscope_file
from pytest_flamegate.profile.frames import (
    UNKNOWN,
    make_native_frame,
    make_python_frame,
    path_prefixes,
)
from pytest_flamegate.profile.hotspots import no_samples_error
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import base, trial
from pytest_flamegate.profile.profilers.base import (
    Interruptible,
    Probe,
    Profiler,
    RunningProfiler,
    Setup,
    Tool,
    WrappedCommand,
    check_rate,
)
from pytest_flamegate.profile.profilers.errors import (
    DENIED,
    DISK_FULL,
    GONE,
    NOT_PYTHON,
    SECCOMP,
    VERSION,
    KnownMessage,
    ProfilerError,
    explain_error,
    output_error,
)
from pytest_flamegate.profile.profilers.trial import try_profiler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.profile.formats.speedscope import FrameText, SpeedscopeFile
    from pytest_flamegate.profile.model import Frame, Stack


NAME = "py-spy"
_THREAD = re.compile(r'Thread (\d{1,10}) "(.*)"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Stacks and their samples, the thread ids seen, and the length of the recording."""

    stacks: Mapping[Stack, int]
    threads: tuple[int, ...]
    duration_ns: int


def parse_pyspy_file(raw: bytes, roots: Sequence[str] = (), *, native: bool = False) -> Sampled:
    """Parse the bytes of py-spy's file. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``.

    ``native`` says that native frames stand among Python's: they have no line.
    """
    try:
        return count_pyspy_samples(parse_speedscope_file(raw), roots, native=native)
    except SpeedscopeError as error:
        raise output_error(NAME, error.why) from None


def count_pyspy_samples(file: SpeedscopeFile, roots: Sequence[str], *, native: bool) -> Sampled:
    """Return what py-spy sampled; ``native`` is as for ``parse_speedscope``."""
    frames = [_frame(text, roots, native=native) for text in file.frames]
    stacks: dict[Stack, int] = {}
    threads = []
    for track in file.tracks:
        for path, count in track.samples.items():
            stack = _stack([frames[index] for index in path])
            stacks[stack] = stacks.get(stack, 0) + count
        if found := _THREAD.fullmatch(track.name):
            threads.append(int(found.group(1)))
    longest_s = max((track.length for track in file.tracks), default=0)
    return Sampled(stacks, tuple(sorted(threads)), round(longest_s * 1e9))


def _frame(text: FrameText, roots: Sequence[str], *, native: bool) -> Frame | None:
    name, file, line = text
    if native and not line and not file.endswith(".py") and not file.startswith("<"):
        return make_native_frame(name, "" if file == "?" else file, roots)
    return make_python_frame(name, file, roots)


def _stack(root_first: Sequence[Frame | None]) -> Stack:
    stack: list[Frame] = []
    for frame in root_first:
        # Frames that lost their address tell nothing apart: one stands for a run of them.
        nameless = frame is not None and frame.kind == "native" and frame.name.startswith("[")
        if frame is not None and not (nameless and stack and frame == stack[-1]):
            stack.append(frame)
    # A thread that has no Python frame at this moment is sampled all the same.
    return tuple(stack) or (UNKNOWN,)


RATE_HZ = 100
"""More costs more than 3 % of CPU time."""
MAX_RATE_HZ = 1000
"""Beyond it py-spy falls behind; at 0 it waits for ever."""
NATIVE_RATE_HZ = 250
"""Native stacks read faster than this slow the program down by more than a tenth."""
CALL_GRAPH = "python"
NATIVE, NONBLOCKING = "+native", "+nonblocking"
"""What is added to the call graph, so that profiles taken otherwise are not compared."""
EVENT = "wall-clock"
UNPAUSED = "sampled without pausing"
_NATIVE, _NONBLOCKING = "--native", "--nonblocking"
_INSTALL = "Type: pip install py-spy"
_BEGUN = b"py-spy> Sampling process"
_ERRORS = re.compile(rb"^py-spy> Wrote .*Samples: \d{1,18} Errors: (\d{1,18})[ \r]*$", re.MULTILINE)
_CHATTER = re.compile(
    rb"py-spy> Sampling process [^\n]{0,100}\n\n"
    rb"|\npy-spy> Stopped sampling [^\n]*\npy-spy> Wrote [^\n]*\n(?:py-spy> [^\n]*\n)?"
)
_KNOWN = (
    KnownMessage(
        "Permission Denied",
        DENIED,
        "Type: sudo sysctl kernel.yama.ptrace_scope=0 (in a container: --cap-add=SYS_PTRACE), "
        "and sample a process of your own user.",
    ),
    KnownMessage(
        "Operation not permitted",
        SECCOMP,
        "Start the container with --cap-add=SYS_PTRACE (a seccomp filter forbids ptrace).",
    ),
    KnownMessage(
        "requires root",
        DENIED,
        "Run it as root: this system lets no one else read another process.",
    ),
    KnownMessage(
        "Failed to find python version",
        NOT_PYTHON,
        "py-spy sees Python processes only: choose perf for a native program.",
    ),
    KnownMessage("Unsupported version of Python", VERSION, "Type: pip install --upgrade py-spy"),
    KnownMessage("unexpected argument", VERSION, "Type: pip install --upgrade py-spy"),
    KnownMessage("wasn't expected", VERSION, "Type: pip install --upgrade py-spy"),
    KnownMessage(
        "Failed to create process",
        "E_CANNOT_START",
        "Check that the program exists and may be executed.",
    ),
    DISK_FULL,
    KnownMessage("No such process", GONE, "The process ended before it could be sampled."),
    KnownMessage(
        "Check that the process is running", GONE, "The process ended before it was sampled."
    ),
)


@dataclass(frozen=True, slots=True)
class PySpy:
    """Samples ``rate_hz`` times a second of wall time, function by function.

    ``native`` shows native frames among Python's; ``nonblocking`` pauses nothing.
    """

    rate_hz: int = RATE_HZ
    native: bool = False
    nonblocking: bool = False
    python: str = ""
    roots: tuple[str, ...] = ()
    python_flags: tuple[str, ...] = ()
    name: str = field(default=NAME, init=False)

    def probe(self) -> Probe:
        """Try it on a small process."""
        return try_profiler(self, _program)

    def attach(self, pid: int, directory: Path) -> RunningProfiler:
        """Sample ``pid``; where pausing it is forbidden, sample without and say so."""
        raw = base.unused_path(directory, f"{NAME}-{pid}", ".json")
        argv = (*self._record(_program(), raw), "--pid", str(pid))
        seen = base.Sidecar(pid, clocks.read_start_ticks(pid), self.nonblocking)
        try:
            return Interruptible(_TOOL, _TOOL.begin(argv), raw, seen)
        except ProfilerError as error:
            if error.code not in (DENIED, SECCOMP) or self.native or self.nonblocking:
                raise
            try:
                child = _TOOL.begin((*argv, _NONBLOCKING))
            except ProfilerError:
                raise error from None
            degraded = (f"{UNPAUSED}: {error.reason}",)
            seen = replace(seen, nonblocking=True, degraded=degraded)
            return Interruptible(_TOOL, child, raw, seen)

    def wrap(self, argv: Sequence[str], directory: Path) -> WrappedCommand:
        """Run ``argv`` under py-spy, whose exit status tells nothing of that of ``argv``.

        py-spy writes lines of its own to standard output: see ``without_chatter``.
        """
        raw = base.unused_path(directory, NAME, ".json")
        return WrappedCommand((*self._record(_program(), raw), "--", *argv), raw, remove_chatter)

    def parse(
        self,
        raw: Path,
        said: bytes = b"",
        window_ns: tuple[int, int] | None = None,  # noqa: ARG002 - py-spy writes no times
    ) -> Profile:
        """Read a recording. Raises ``ProfilerError`` where it is malformed or absent."""
        try:
            return self._parse(raw)
        except FlamegateError as error:
            raise explain_error(NAME, said, _KNOWN, error) from None

    def _parse(self, raw: Path) -> Profile:
        notes = base.read_sidecar(raw, NAME)
        sampled = parse_pyspy_file(_TOOL.content(raw), self.roots, native=self.native)
        # The main thread's number is the process's.
        pids = (notes.pid,) if notes.pid is not None else sampled.threads[:1]
        if not pids:
            raise no_samples_error(NAME, notes.errors, 0)
        nonblocking = self.nonblocking or notes.nonblocking
        degraded = list(notes.degraded)
        if self.nonblocking:
            degraded.append(f"{UNPAUSED}: asked for")
        if self.native and self.rate_hz > NATIVE_RATE_HZ:
            degraded.append(f"native stacks at {self.rate_hz} Hz slow the program down")
        return Profile(
            profiler=NAME,
            profiler_version=trial.tool_version(_program()),
            event=EVENT,
            rate_hz=self.rate_hz,
            call_graph=CALL_GRAPH + NATIVE * self.native + NONBLOCKING * nonblocking,
            python=self.python,
            stacks=sampled.stacks,
            errors=notes.errors,
            lost=0,
            complete=sum(sampled.stacks.values()),
            duration_ns=sampled.duration_ns,
            pids=pids,
            started_ticks=(notes.started_ticks,),
            degraded=tuple(degraded),
        )

    def _record(self, program: str, raw: Path) -> tuple[str, ...]:
        options = ["--format", "speedscope", "--function", "--full-filenames"]
        options += [_NATIVE] * self.native + [_NONBLOCKING] * self.nonblocking
        return (program, "record", "--rate", str(self.rate_hz), *options, "--output", str(raw))


def make_pyspy(setup: Setup) -> Profiler:
    """Return py-spy as ``setup`` wants it.

    Raises ``UsageError``: ``E_CALL_GRAPH`` where one is asked for, which only perf has;
    ``E_PROFILER_RATE`` for a rate that py-spy cannot keep.
    """
    return PySpy(
        rate_hz=check_rate(NAME, setup, RATE_HZ, MAX_RATE_HZ),
        native=setup.native,
        nonblocking=setup.nonblocking,
        python=setup.python_text,
        roots=path_prefixes(setup.project),
    )


def count_failures(stdout: bytes) -> int | None:
    """Return how many samples failed by py-spy's closing words; None where it said none."""
    found = _ERRORS.search(stdout)
    return int(found[1]) if found else None


def remove_chatter(stdout: bytes) -> bytes:
    """Return what a wrapped command wrote, without the lines py-spy put among it."""
    return _CHATTER.sub(b"", stdout)


def _program() -> str:
    return trial.find_program(NAME, _INSTALL)


_TOOL = Tool(NAME, _BEGUN, _KNOWN, count_failures)

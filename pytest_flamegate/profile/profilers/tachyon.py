"""Tachyon, ``profiling.sampling``: CPython's own sampling profiler, from 3.15 on.

It reads a process's memory without pausing it, and does not say when it begins: only its
statistics, a second later, show that it does. It looks at the CPU time of threads: one
that waits is left out. What it pauses would always seem to wait, so it is not asked to.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.profile.frames import python_frame
from pytest_flamegate.profile.hotspots import no_samples
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers import base
from pytest_flamegate.profile.profilers import trial as profilers_trial
from pytest_flamegate.profile.profilers.base import Interruptible, Tool, rate_of
from pytest_flamegate.profile.profilers.errors import (
    ABSENT,
    DENIED,
    GONE,
    NOT_PYTHON,
    VERSION,
    Known,
    ProfilerError,
    unreadable,
)
from pytest_flamegate.profile.profilers.trial import trial

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_flamegate.profile.model import Frame, Stack
    from pytest_flamegate.profile.profilers.base import Probe, Profiler, Recording, Setup


NAME = "tachyon"
_LINE = re.compile(r"tid:\d{1,20};(.+) ([1-9]\d{0,14})")
_FUNCTION = re.compile(r"(.*?):(.+):-?\d{1,9}")


def parse_collapsed(content: bytes) -> dict[Stack, int]:
    """Return the samples of each stack, threads taken together.

    Raises ``ProfilerError`` ``E_PROFILER_OUTPUT`` where a line is none that Tachyon writes.
    """
    stacks: dict[Stack, int] = {}
    for number, line in enumerate(content.decode("utf-8", "surrogateescape").split("\n"), 1):
        if not line:
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise unreadable(NAME, f"line {number} is no collapsed stack")
        stack = tuple(map(_frame, found[1].split(";")))
        stacks[stack] = stacks.get(stack, 0) + int(found[2])
    return stacks


@lru_cache(maxsize=65536)
def _frame(text: str) -> Frame:
    # A frozen module's name and a lambda's hold no colon, and a line number is always last.
    found = _FUNCTION.fullmatch(text)
    return python_frame(found[2], found[1]) if found is not None else python_frame(text, "")


SINCE = (3, 15)
RATE_HZ = 100
MAX_RATE_HZ = 1000
"""Its own default. Beyond it, it may miss samples on a machine that the engine keeps busy."""
CALL_GRAPH = "python"
EVENT = "cpu"
UNPAUSED = "sampled without pausing"
CANNOT_WRAP = "E_PROFILER_ATTACHES"
_NEWER = "Run the engine on CPython 3.15 or newer, or choose another profiler."
_SAMPLING = b"Min: "
_CAPTURED = re.compile(rb"Captured ([\d,]{1,20}) samples? in ")
_ERROR_RATE = re.compile(rb"Error rate: (\d{1,3}(?:\.\d{1,9})?)")
_NOTHING = b"No stack data to export"
_KNOWN = (
    Known("No module named", ABSENT, _NEWER),
    Known(
        "unable to access",
        DENIED,
        "Type: sudo sysctl kernel.yama.ptrace_scope=0 (in a container: --cap-add=SYS_PTRACE), "
        "and sample a process of your own user.",
    ),
    Known("does not exist", GONE, "The process ended before it could be sampled."),
    Known(
        "PyRuntime",
        NOT_PYTHON,
        "Tachyon sees Python processes only: choose perf for a native program.",
    ),
    Known("Python version", VERSION, "Run pytest on the very Python that runs the engine."),
    Known("unrecognized arguments", VERSION, "Update CPython, or choose another profiler."),
    Known("invalid choice", VERSION, "Update CPython, or choose another profiler."),
)


@dataclass(frozen=True, slots=True)
class Tachyon:
    """Samples ``rate_hz`` times a second what ``interpreter``, a Python ``version``, runs."""

    rate_hz: int = RATE_HZ
    python: str = ""
    version: tuple[int, ...] = sys.version_info[:3]
    interpreter: str = sys.executable
    python_flags: tuple[str, ...] = ()
    name: str = field(default=NAME, init=False)

    def probe(self) -> Probe:
        """Try it on a small process, where the interpreter is one that has it."""
        return trial(self, self._program)

    def attach(self, pid: int, directory: Path) -> Recording:
        """Sample every thread of ``pid``; return when the first second of it is over."""
        raw = base.fresh(directory, f"{NAME}-{pid}", ".txt")
        options = ("--collapsed", "--all-threads", "--mode", "cpu", "--realtime-stats")
        argv = (
            *(self._program(), "-I", "-X", "utf8", "-m", "profiling.sampling", "attach"),
            *(*options, "--sampling-rate", str(self.rate_hz), "--output", str(raw), str(pid)),
        )
        seen = base.Sidecar(pid, clocks.started_ticks(pid), degraded=(UNPAUSED,))
        # Its figures are written as the locale has them.
        child = _TOOL.begin(argv, {**os.environ, "LC_ALL": "C"})
        return Interruptible(_TOOL, child, raw, seen, _NOTHING)

    def wrap(self, argv: Sequence[str], directory: Path) -> NoReturn:  # noqa: ARG002
        """Refuse: it runs scripts and modules of its own interpreter, and no other command."""
        raise ToolError(
            CANNOT_WRAP,
            f"{NAME} samples engines that are served by a process of their own, and {argv[0]!r} "
            "is a command.",
            "Choose perf or py-spy for it, or leave it to auto.",
        )

    def parse(
        self,
        raw: Path,
        said: bytes = b"",  # noqa: ARG002 - it never wraps a command
        window_ns: tuple[int, int] | None = None,  # noqa: ARG002 - it writes no times
    ) -> Profile:
        """Read a recording. Raises ``ProfilerError`` where it is malformed or absent."""
        notes = base.read(raw, NAME)
        content = _TOOL.content(raw)
        if notes.pid is None:
            raise no_samples(NAME, notes.errors, 0)
        stacks = parse_collapsed(content)
        samples = sum(stacks.values())
        return Profile(
            profiler=NAME,
            profiler_version=profilers_trial.tool_version(self.interpreter),
            event=EVENT,
            rate_hz=self.rate_hz,
            call_graph=CALL_GRAPH,
            python=self.python,
            stacks=stacks,
            errors=notes.errors,
            lost=0,
            complete=samples,
            duration_ns=samples * 1_000_000_000 // self.rate_hz,
            pids=(notes.pid,),
            started_ticks=(notes.started_ticks,),
            degraded=notes.degraded,
        )

    def _program(self) -> str:
        """Return the interpreter. Nothing is started to find out that it is too old."""
        if self.version < SINCE:
            reason = f"CPython 3.15 or newer brings it, and this is {_dotted(self.version)}"
            raise ProfilerError(ABSENT, f"{NAME} is not installed: {reason}.", _NEWER, reason)
        return self.interpreter


def make(setup: Setup) -> Profiler:
    """Return Tachyon as ``setup`` wants it: run by this interpreter, which is the engine's.

    Raises ``UsageError``: ``E_CALL_GRAPH`` or ``E_NATIVE_FRAMES`` where what is asked for
    is what it does not see; ``E_PROFILER_RATE`` for a rate that it cannot keep.
    """
    if setup.native:
        raise UsageError(
            "E_NATIVE_FRAMES",
            f"{NAME} tells no native function by its name.",
            "Drop native, or choose py-spy: --flamegate-profiler=py-spy.",
        )
    rate_hz = rate_of(NAME, setup, RATE_HZ, MAX_RATE_HZ)
    return Tachyon(rate_hz=rate_hz, python=setup.python_text, version=setup.python)


def failures(stdout: bytes) -> int | None:
    """Return how many samples failed by its closing words; None where it said none."""
    captured, rate = _CAPTURED.search(stdout), _ERROR_RATE.search(stdout)
    if captured is None:
        return None
    return round(int(captured[1].replace(b",", b"")) * float(rate[1]) / 100) if rate else 0


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


_TOOL = Tool(NAME, _SAMPLING, _KNOWN, failures)

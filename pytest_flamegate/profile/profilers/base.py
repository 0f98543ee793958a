"""The protocol of a profiler. One file each implements it, one line in a registry names it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_flamegate.observe.engine_process import Window
from pytest_flamegate.profile.model import Profile


@dataclass(frozen=True, slots=True)
class Setup:
    """How to sample an engine.

    A profiler raises ``UsageError`` ``E_PROFILER_OPTION`` for an option that it does not have, and
    ignores one that it fulfils in any case.

    Attributes:
        python_engine: The frames of interest are Python's.
        python: Version of the interpreter that runs the engine.
        project: Paths below it become relative.
        rate_hz: Samples a second; None for the profiler's default.
        call_graph: ``fp``, ``dwarf,BYTES`` or ``none`` (perf only); None for the default.
        native: Show native frames among Python's.
        nonblocking: Do not pause the sampled process.
        comparing: Both sides of a comparison are sampled. A faster default rate is used then: its
            cost is the same on both sides, and samples are scarce.
    """

    python_engine: bool = True
    python: tuple[int, int, int] = sys.version_info[:3]
    project: Path | None = None
    rate_hz: int | None = None
    call_graph: str | None = None
    native: bool = False
    nonblocking: bool = False
    comparing: bool = False

    @property
    def python_text(self) -> str:
        """The interpreter's version, empty if the engine is no Python program."""
        return ".".join(map(str, self.python)) if self.python_engine else ""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a short real trial of a profiler.

    ``code``, ``reason`` (the tool's own message) and ``remedy`` are empty if the profiler is
    usable. ``event`` is the event that was really sampled.
    """

    profiler: str
    version: str
    usable: bool = False
    sees_python: bool = False
    sees_native: bool = False
    event: str = ""
    code: str = ""
    reason: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """The file that a profiler wrote, and facts that the file does not hold.

    ``pid`` is the sampled process (None for a wrapped command) and ``started_ticks`` the kernel's
    start time of it. With ``nonblocking`` it was not paused although pausing was asked for.
    ``errors`` counts failed samples; ``degraded`` are sentences.
    """

    raw: Path
    pid: int | None = None
    started_ticks: int | None = None
    nonblocking: bool = False
    errors: int = 0
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """A command that profiles another from its start to its end.

    ``clean`` removes the profiler's own lines from the standard output of both; None if it
    prints none there.
    """

    argv: tuple[str, ...]
    recording: Recording
    clean: Callable[[bytes], bytes] | None = None


RunningProfiler = Window[Recording]
"""A profiler that is sampling a process."""


class Profiler(Protocol):
    """One way to sample a process. Implementations hold settings and no state."""

    @property
    def name(self) -> str:
        """The name that users type."""

    @property
    def rate_hz(self) -> int:
        """Samples a second."""

    @property
    def deeper(self) -> Profiler | None:
        """The profiler to use instead if many stacks are cut; None if there is none."""

    @property
    def python_flags(self) -> tuple[str, ...]:
        """Flags that a Python child must be started with, so that ``attach`` sees its frames."""

    def attach(self, pid: int, directory: Path) -> RunningProfiler:
        """Sample ``pid``; return once sampling is on. Raises ``ToolError``."""

    def wrap(self, argv: Sequence[str], directory: Path) -> WrappedCommand:
        """Return the command that runs ``argv`` under the profiler. Raises ``ToolError``."""

    def parse(self, recording: Recording, window_ns: tuple[int, int] | None = None) -> Profile:
        """Parse the recording of ``RunningProfiler.stop`` or of a wrapped command.

        Call it after the sampled process has ended by itself: only then has CPython written the
        names of its functions for perf. ``window_ns`` is the monotonic time of a wrapped program's
        first and last token: a profiler that knows the time of each sample keeps those between,
        and says so in ``covers``.

        Raises ``ToolError`` if the file is malformed or absent.
        """

    def clean_up(self, pid: int) -> None:
        """Remove files that sampling ``pid`` left outside of the directory; never raises."""


def unused_path(directory: Path, stem: str, suffix: str) -> Path:
    """Return a path in ``directory`` (made if absent) that does not exist yet."""
    directory.mkdir(parents=True, exist_ok=True)
    number = 0
    while (path := directory / f"{stem}-{number}{suffix}").exists():
        number += 1
    return path

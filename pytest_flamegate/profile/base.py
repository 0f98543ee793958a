"""What a profiler has to do; one file each implements it, one line in a registry names it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_flamegate.profile.model import Profile


@dataclass(frozen=True, slots=True)
class Setup:
    """What the profilers are wanted for.

    ``python_engine``: the frames worth seeing are Python's. ``python``: the version of
    the interpreter that runs the engine. ``project``: paths below it are shown relative
    to it. ``rate_hz`` and ``call_graph`` (``fp``, ``dwarf,BYTES`` or ``none``, perf
    only): None takes the profiler's own. ``native``: native frames among Python's.
    ``nonblocking``: what is sampled is not paused. A profiler refuses what it cannot do
    with ``UsageError``, and passes over what it does in any case.
    """

    python_engine: bool = True
    python: tuple[int, int, int] = sys.version_info[:3]
    project: Path | None = None
    rate_hz: int | None = None
    call_graph: str | None = None
    native: bool = False
    nonblocking: bool = False

    @property
    def python_text(self) -> str:
        """The interpreter's version, empty where the engine is no Python program."""
        return ".".join(map(str, self.python)) if self.python_engine else ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a short real trial of a profiler showed.

    ``code``, ``reason`` (the tool's own words) and ``todo`` (what to type) are empty
    where the profiler is usable. ``event`` is the event that was really sampled.
    """

    profiler: str
    version: str
    usable: bool
    sees_python: bool
    sees_native: bool
    event: str = ""
    code: str = ""
    reason: str = ""
    todo: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A command that profiles another from its start to its end, and the file it writes.

    ``clean`` takes the profiler's own words out of the standard output of both (None
    where it writes none there).
    """

    argv: tuple[str, ...]
    raw: Path
    clean: Callable[[bytes], bytes] | None = None


class Recording(Protocol):
    """A profiler that is sampling a process. Every method may be called again."""

    def stop(self) -> Path:
        """End the sampling; return what was written. Raises ``ToolError``."""

    def close(self) -> None:
        """End the profiler, whatever state it is in; what it wrote is abandoned."""


class Profiler(Protocol):
    """One way to sample a process. Implementations hold settings and no state."""

    @property
    def name(self) -> str:
        """The name users type."""

    @property
    def rate_hz(self) -> int:
        """Samples a second."""

    @property
    def python_flags(self) -> tuple[str, ...]:
        """Flags a Python child must be started with before ``attach`` can see its frames."""

    def probe(self) -> Probe:
        """Try it for real on a small process; never raises."""

    def attach(self, pid: int, directory: Path) -> Recording:
        """Sample ``pid``; return once sampling is on. Raises ``ToolError``."""

    def wrap(self, argv: Sequence[str], directory: Path) -> Wrapped:
        """Return the command that runs ``argv`` under the profiler. Raises ``ToolError``."""

    def parse(
        self, raw: Path, said: bytes = b"", window_ns: tuple[int, int] | None = None
    ) -> Profile:
        """Read what ``stop`` or a wrapped command wrote. Raises ``ToolError``.

        To be called after the sampled process has ended by itself: CPython writes the
        names of its functions out for perf only then. ``said`` is the standard error of
        a wrapped command: it tells why there is nothing to read. ``window_ns`` is the
        monotonic time of a wrapped program's first and last token: a profiler that knows
        the time of each sample keeps those between, and says so in ``covers``.
        """

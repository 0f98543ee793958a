"""What a profiler has to do; one file each implements it, one line in a registry names it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.profile.profilers.errors import (
    RATE,
    ProfilerError,
    failure_error,
    output_error,
    timeout_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.core.process import Child
    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.profile.profilers.errors import KnownMessage


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

    ``code``, ``reason`` (the tool's own words) and ``remedy`` (what to type) are empty
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
    remedy: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """A command that profiles another from its start to its end, and the file it writes.

    ``clean`` takes the profiler's own words out of the standard output of both (None
    where it writes none there).
    """

    argv: tuple[str, ...]
    raw: Path
    clean: Callable[[bytes], bytes] | None = None


class RunningProfiler(Protocol):
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

    def attach(self, pid: int, directory: Path) -> RunningProfiler:
        """Sample ``pid``; return once sampling is on. Raises ``ToolError``."""

    def wrap(self, argv: Sequence[str], directory: Path) -> WrappedCommand:
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


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Which process was sampled, samples that failed, and what was not as it should be.

    ``started_ticks`` is the kernel's start time of ``pid``; ``nonblocking`` says that it
    was not paused where pausing was wanted.
    """

    pid: int | None = None
    started_ticks: int | None = None
    nonblocking: bool = False
    errors: int = 0
    degraded: tuple[str, ...] = ()


def sidecar_path(raw: Path) -> Path:
    """Return where the sidecar of ``raw`` stands."""
    return raw.with_name(raw.name + ".meta.json")


def write_sidecar(raw: Path, sidecar: Sidecar) -> None:
    """Put the sidecar beside ``raw``."""
    sidecar_path(raw).write_text(json.dumps(asdict(sidecar)), encoding="utf-8")


def read_sidecar(raw: Path, profiler: str) -> Sidecar:
    """Read the sidecar of ``raw``; an empty one where there is none (a wrapped command)."""
    try:
        content = sidecar_path(raw).read_bytes()
    except FileNotFoundError:
        return Sidecar()
    except OSError as error:
        raise output_error(profiler, f"{sidecar_path(raw).name}: {error}") from None
    return parse_sidecar(content, profiler)


def parse_sidecar(content: bytes, profiler: str) -> Sidecar:
    """Read what ``write`` wrote. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``."""
    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise output_error(profiler, f"the notes beside it are no JSON ({error})") from None
    match data:
        case {
            "pid": int() | None as pid,
            "started_ticks": int() | None as started_ticks,
            "nonblocking": bool(nonblocking),
            "errors": int(errors),
            "degraded": list(degraded),
        } if all(isinstance(entry, str) for entry in degraded):
            return Sidecar(pid, started_ticks, nonblocking, errors, tuple(degraded))
    raise output_error(profiler, "the notes beside it hold something else")


def unused_path(directory: Path, stem: str, suffix: str) -> Path:
    """Return a path in ``directory`` (made if absent) at which nothing stands yet."""
    directory.mkdir(parents=True, exist_ok=True)
    number = 0
    while (path := directory / f"{stem}-{number}{suffix}").exists():
        number += 1
    return path


_ANSWER_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Tool:
    """What a profiler says: ``begun`` once it samples, ``known`` where it fails.

    ``failures`` reads its closing words: the samples that failed, None where it did not close.
    """

    name: str
    begun: bytes
    known: Sequence[KnownMessage]
    failures: Callable[[bytes], int | None]

    def begin(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """Start it; return once it samples. Raises ``ProfilerError``."""
        child = process.start(argv, env=env)
        try:
            deadline = time.monotonic() + _ANSWER_TIMEOUT_S
            while self.begun not in child.stdout_bytes():
                status = child.poll()
                if status is not None:
                    raise failure_error(self.name, child.stderr_bytes(), status, self.known)
                if time.monotonic() > deadline:
                    raise timeout_error(self.name, _ANSWER_TIMEOUT_S, "told to begin")
                time.sleep(_POLL_S)
        except BaseException:
            child.end()
            raise
        return child

    def content(self, raw: Path) -> bytes:
        """Return what it wrote. Raises ``ProfilerError`` where that cannot be read."""
        try:
            return raw.read_bytes()
        except OSError as error:
            raise output_error(self.name, error.strerror or str(error)) from None


@dataclass(slots=True)
class Interruptible:
    """A recording that ends with an interrupt; ``nothing`` is said where no file is due."""

    tool: Tool
    child: Child
    raw: Path
    seen: Sidecar
    nothing: bytes | None = None
    stopped: bool = False

    def stop(self) -> Path:
        """Interrupt it: only so does it write its file. Its exit status tells nothing."""
        if self.stopped:
            return self.raw
        try:
            self.child.interrupt()
            if self.child.wait(_STOP_TIMEOUT_S) is None:
                raise timeout_error(self.tool.name, _STOP_TIMEOUT_S, "told to stop")
            said = self.child.stdout_bytes()
            failures = self.tool.failures(said)
            if failures is not None and self.nothing is not None and self.nothing in said:
                self.raw.touch()
            if failures is None or not self.raw.is_file():
                raise self._failed()
        finally:
            self.child.end()
        write_sidecar(self.raw, replace(self.seen, errors=failures))
        self.stopped = True
        return self.raw

    def close(self) -> None:
        """End it, whatever it is doing."""
        self.child.end()

    def _failed(self) -> ProfilerError:
        return failure_error(
            self.tool.name, self.child.stderr_bytes(), self.child.poll(), self.tool.known
        )


def check_rate(name: str, setup: Setup, default_hz: int, most_hz: int) -> int:
    """Return the rate that is asked for, else the default, in Hz.

    Raises ``UsageError``: ``E_CALL_GRAPH`` where a call graph is asked for, which only perf
    has; ``E_PROFILER_RATE`` for a rate that the profiler cannot keep.
    """
    if setup.call_graph is not None:
        raise UsageError(
            "E_CALL_GRAPH",
            f"{name} reads Python's own stacks and has no call graph {setup.call_graph!r}.",
            "Drop call_graph, or choose perf: --flamegate-profiler=perf.",
        )
    rate_hz = default_hz if setup.rate_hz is None else setup.rate_hz
    if not 0 < rate_hz <= most_hz:
        raise UsageError(
            RATE, f"{name} cannot sample {rate_hz} times a second.", f"Ask for 1 to {most_hz} Hz."
        )
    return rate_hz

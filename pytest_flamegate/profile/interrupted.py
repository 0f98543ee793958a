"""A profiler that says when it samples, and writes its file once it is interrupted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.errors import UsageError
from pytest_flamegate.profile import sidecar
from pytest_flamegate.profile.words import RATE, ProfilerError, failed, hangs, unreadable
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.profile.base import Setup
    from pytest_flamegate.profile.words import Known
    from pytest_flamegate.workload.process import Child

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
    known: Sequence[Known]
    failures: Callable[[bytes], int | None]

    def begin(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """Start it; return once it samples. Raises ``ProfilerError``."""
        child = process.start(argv, env=env)
        try:
            deadline = time.monotonic() + _ANSWER_TIMEOUT_S
            while self.begun not in child.stdout_bytes():
                status = child.poll()
                if status is not None:
                    raise failed(self.name, child.stderr_bytes(), status, self.known)
                if time.monotonic() > deadline:
                    raise hangs(self.name, _ANSWER_TIMEOUT_S, "told to begin")
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
            raise unreadable(self.name, error.strerror or str(error)) from None


@dataclass(slots=True)
class Interruptible:
    """A recording that ends with an interrupt; ``nothing`` is said where no file is due."""

    tool: Tool
    child: Child
    raw: Path
    seen: sidecar.Sidecar
    nothing: bytes | None = None
    stopped: bool = False

    def stop(self) -> Path:
        """Interrupt it: only so does it write its file. Its exit status tells nothing."""
        if self.stopped:
            return self.raw
        try:
            self.child.interrupt()
            if self.child.wait(_STOP_TIMEOUT_S) is None:
                raise hangs(self.tool.name, _STOP_TIMEOUT_S, "told to stop")
            said = self.child.stdout_bytes()
            failures = self.tool.failures(said)
            if failures is not None and self.nothing is not None and self.nothing in said:
                self.raw.touch()
            if failures is None or not self.raw.is_file():
                raise self._failed()
        finally:
            self.child.end()
        sidecar.write(self.raw, replace(self.seen, errors=failures))
        self.stopped = True
        return self.raw

    def close(self) -> None:
        """End it, whatever it is doing."""
        self.child.end()

    def _failed(self) -> ProfilerError:
        return failed(self.tool.name, self.child.stderr_bytes(), self.child.poll(), self.tool.known)


def rate_of(name: str, setup: Setup, default_hz: int, most_hz: int) -> int:
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

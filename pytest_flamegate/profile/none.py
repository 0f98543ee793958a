"""No profiler: the workload is timed and not sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pytest_flamegate.errors import ToolError
from pytest_flamegate.profile.base import Probe, Profiler, Setup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REASON = "profiling was turned off"
TODO = "Choose a profiler with --flamegate-profiler, or leave it to auto."


@dataclass(frozen=True, slots=True)
class NoProfiler:
    """Stands where a profiler would; whoever asks it to sample is told why it does not."""

    name: str = "none"
    python_flags: tuple[str, ...] = ()
    rate_hz: int = 0

    def probe(self) -> Probe:
        """Say that profiling was turned off."""
        return Probe(
            profiler=self.name,
            version="",
            usable=False,
            sees_python=False,
            sees_native=False,
            code="E_NO_PROFILER",
            reason=REASON,
            todo=TODO,
        )

    def attach(self, pid: int, directory: Path) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise _refusal()

    def wrap(self, argv: Sequence[str], directory: Path) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise _refusal()

    def parse(
        self,
        raw: Path,  # noqa: ARG002
        said: bytes = b"",  # noqa: ARG002
        window_ns: tuple[int, int] | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Refuse."""
        raise _refusal()


def make(setup: Setup) -> Profiler:  # noqa: ARG001
    """Return the profiler that samples nothing."""
    return NoProfiler()


def _refusal() -> ToolError:
    return ToolError("E_NO_PROFILER", "There is no profile: profiling was turned off.", TODO)

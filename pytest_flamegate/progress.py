"""One line that says how far a measurement is, where somebody is looking."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pytest

_WIDTH = 14


class NoProgress:
    """Logs are read afterwards: nothing moves in them."""

    def step(self, workload: str, timed: int, samples: int, spent: float) -> None:
        """Say nothing."""


class LineProgress:
    """Rewrites one line of pytest's terminal, past its capturing of output."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def step(self, workload: str, timed: int, samples: int, spent: float) -> None:
        """Show the line; it vanishes once the budget is spent."""
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        writer = self._config.get_terminal_writer()
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            writer.write(f"\r\x1b[K{progress_line(workload, timed, samples, spent)}")
            if spent >= 1.0:
                writer.write("\r\x1b[K")
            writer.flush()


class StreamProgress:
    """Rewrites one line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def step(self, workload: str, timed: int, samples: int, spent: float) -> None:
        """Show the line; it vanishes once the budget is spent."""
        self._stream.write(f"\r\x1b[K{progress_line(workload, timed, samples, spent)}")
        if spent >= 1.0:
            self._stream.write("\r\x1b[K")
        self._stream.flush()


def progress_line(workload: str, timed: int, samples: int, spent: float) -> str:
    """Return the line: name, a bar, processes timed, samples taken."""
    full = round(_WIDTH * spent)
    bar = "━" * full + "╌" * (_WIDTH - full)
    return f"{workload:<18} {bar} {timed} processes, {samples:,} samples"

"""One line that says how far a measurement is, where somebody is looking."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


_WIDTH = 14


class NoProgress:
    """Logs are read afterwards: nothing moves in them."""

    def step(self, workload: str, told: str, spent: float) -> None:
        """Say nothing."""


class LineProgress:
    """Rewrites one line of pytest's terminal, past its capturing of output.

    ``reporter`` is pytest's terminal reporter. The last state of the line stays.
    """

    def __init__(self, config: pytest.Config, reporter: Any) -> None:
        self._config = config
        self._reporter = reporter
        self._told: set[str] = set()

    def step(self, workload: str, told: str, spent: float) -> None:
        """Show the line, on a line of its own."""
        self._write(f"\r\x1b[K{progress_line(workload, told, spent)} ")

    def tell(self, text: str) -> None:
        """Say ``text`` on a line of its own, once."""
        if text not in self._told:
            self._told.add(text)
            self._write(f"flamegate: {text}\n")

    def _write(self, text: str) -> None:
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            # Does something only where pytest has begun a line, and so once a workload.
            self._reporter.ensure_newline()
            self._reporter.write(text)
            self._reporter.flush()


class StreamProgress:
    """Rewrites one line of a terminal for each workload."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._workload = ""
        self._told: set[str] = set()

    def step(self, workload: str, told: str, spent: float) -> None:
        """Show the line; that of an earlier workload stays above it."""
        if self._workload not in ("", workload):
            self.end()
        self._workload = workload
        self._stream.write(f"\r\x1b[K{progress_line(workload, told, spent)}")
        self._stream.flush()

    def tell(self, text: str) -> None:
        """Say ``text`` on a line of its own, once."""
        if text not in self._told:
            self._told.add(text)
            self.end()
            self._stream.write(f"flamegate: {text}\n")
            self._stream.flush()

    def end(self) -> None:
        """Leave the line as it is and go to the next one."""
        if self._workload:
            self._stream.write("\n")
            self._stream.flush()
        self._workload = ""


def progress_line(workload: str, told: str, spent: float) -> str:
    """Return the line: name, a bar for the part ``spent`` (0 to 1), and what is ``told``."""
    full = round(_WIDTH * spent)
    bar = "━" * full + "╌" * (_WIDTH - full)
    return f"{workload:<18} {bar} {told}"


class Terminated(KeyboardInterrupt):
    """SIGTERM came. Whoever cleans up on Ctrl-C cleans up."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise ``Terminated`` where SIGTERM comes inside, unless somebody else handles it.

    Only the main thread can ask for signals; elsewhere nothing changes.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(*_: object) -> NoReturn:
    # Once: a second one, sent in impatience, ends this process at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated

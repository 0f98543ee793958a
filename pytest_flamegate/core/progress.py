"""How far the measurement of one workload is: a moving line, or plain lines in a log."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

LOG_EVERY_S = 10.0
CLEAN_UP_S = 2.0
"""For how long a second signal is ignored while the first one is cleaned up after."""
INTERRUPTED = "flamegate: interrupted; other results are untouched"
_BAR_WIDTH = 14


class Progress:
    """Shows nothing but announcements, and without ``write`` nothing at all.

    One workload at a time: ``begin``, any number of ``update``, ``end``. ``announce`` may be
    called at any time. When the reader of ``write`` has gone, the rest is shown to no one.
    """

    def __init__(self, write: Callable[[str], object] = len) -> None:
        self._write_text = write
        self._announced: set[str] = set()
        self._workload = ""
        self._began_s = time.monotonic()

    def begin(self, workload: str) -> None:
        """Start the clock of one workload."""
        self._workload = workload
        self._began_s = time.monotonic()

    def update(self, phase: str, detail: str = "", remaining_s: float | None = None) -> None:
        """Show the phase and ``detail`` (``5 processes``); ``remaining_s`` is None if not known."""

    def end(self) -> None:
        """Stop the clock; the bar is full."""

    def stop(self) -> None:
        """Leave the bar as it is: the measurement failed. Does nothing after ``end``."""

    def announce(self, text: str) -> None:
        """Write ``flamegate: TEXT`` on a line of its own. The same text is shown once."""
        if text not in self._announced:
            self._announced.add(text)
            self._write(f"flamegate: {text}\n")

    def _write(self, text: str) -> None:
        try:
            self._write_text(text)
        except BrokenPipeError:
            # `flamegate run | head`: a measurement is worth more than its progress.
            self._write_text = len

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


class TerminalProgress(Progress):
    """Rewrites one line for each workload; its last state stays.

    Example: ``decode  ━━━━━━╌╌╌╌╌╌╌╌ timing  5 processes  0:07 of about 0:12``
    """

    _part = 0.0
    _shown = ""

    def begin(self, workload: str) -> None:
        """Start the clock and an empty bar, below the one of a measurement that failed."""
        self.stop()
        super().begin(workload)
        self._part = 0.0

    def update(self, phase: str, detail: str = "", remaining_s: float | None = None) -> None:
        """Rewrite the line."""
        elapsed_s = self._elapsed_s
        words = clock_time(elapsed_s)
        if remaining_s is not None:
            whole_s = elapsed_s + max(remaining_s, 0.0)
            # An estimate that grows must not move the bar backwards.
            self._part = max(self._part, elapsed_s / whole_s if whole_s else 0.0)
            words += f" of about {clock_time(whole_s)}" if remaining_s >= 0.5 else ""
        self._shown = detail or phase
        self._rewrite(self._part, "  ".join(filter(None, [phase, detail, words])))

    def end(self) -> None:
        """Fill the bar and go to the next line."""
        if self._shown:
            self._rewrite(1.0, f"{self._shown}  {clock_time(self._elapsed_s)}")
        self.stop()

    def stop(self) -> None:
        """Go to the next line."""
        if self._shown:
            self._write("\n")
        self._shown = ""

    def announce(self, text: str) -> None:
        """Write the text on a line of its own, below the bar if one is shown."""
        if self._shown and text not in self._announced:
            self._write("\n")
        super().announce(text)

    def _rewrite(self, part: float, words: str) -> None:
        full = int(_BAR_WIDTH * part)
        bar = "━" * full + "╌" * (_BAR_WIDTH - full)
        self._write(f"\r\x1b[K{self._workload:<18} {bar} {words} ")


class LogProgress(Progress):
    """Writes a plain line every 10 s: for logs, and for workers of pytest-xdist.

    Example: ``flamegate: decode: timing, 5 processes, 0:10 elapsed, about 0:05 left``
    """

    _wrote_s = 0.0

    def update(self, phase: str, detail: str = "", remaining_s: float | None = None) -> None:
        """Write a line if one is due, or if a phase begins that may take any time."""
        since_s = max(self._wrote_s, self._began_s)
        if remaining_s is not None and time.monotonic() - since_s < LOG_EVERY_S:
            return
        self._wrote_s = time.monotonic()
        parts = [phase, detail]
        if self._elapsed_s >= 1.0:
            parts.append(f"{clock_time(self._elapsed_s)} elapsed")
        if remaining_s is not None and remaining_s >= 0.5:
            parts.append(f"about {clock_time(remaining_s)} left")
        self._write(f"flamegate: {self._workload}: {', '.join(filter(None, parts))}\n")


@contextmanager
def ignore_closed_pipe(stream: TextIO) -> Iterator[None]:
    """Drop what is written to ``stream``, now and later, if its reader (head, less) has gone."""
    try:
        yield
    except BrokenPipeError:
        # Not just ignored: what is buffered is written once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def stream_progress(stream: TextIO) -> Progress:
    """Return the progress of a command that writes to ``stream``, a terminal or a log."""

    def write(text: str) -> None:
        with ignore_closed_pipe(stream):
            stream.write(text)
            stream.flush()

    return TerminalProgress(write) if stream.isatty() else LogProgress(write)


def clock_time(seconds: float) -> str:
    """Return ``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, seconds_left = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds_left:02}"
    return f"{minutes}:{seconds_left:02}"


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP came: the code that cleans up after Ctrl-C cleans up after it too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def terminable() -> Iterator[None]:
    """Raise ``Terminated`` on SIGTERM and SIGHUP within the block, unless they are handled already.

    SIGHUP is ignored already under nohup. Only the main thread can handle signals; in another
    thread nothing changes. After the first signal more of them are ignored for ``CLEAN_UP_S``,
    because GNU timeout and terminals signal a process and then its group; the next one ends the
    process at once.
    """
    main = threading.current_thread() is threading.main_thread()
    ends = [each for each in _END_SIGNALS if main and signal.getsignal(each) is signal.SIG_DFL]
    first_s: list[float] = []

    def terminate(number: int, _: object) -> None:
        if not first_s:
            first_s.append(time.monotonic())
            raise Terminated(number)
        if time.monotonic() - first_s[0] >= CLEAN_UP_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for each in ends:
        signal.signal(each, terminate)
    try:
        yield
    finally:
        for each in ends:
            signal.signal(each, signal.SIG_DFL)


_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

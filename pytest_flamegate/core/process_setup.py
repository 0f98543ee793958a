"""The setup of a process that is started: its output, CPU, signals and environment."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

TAIL_BYTES = 4000


class Output:
    """The captured streams of one process, without ``stdout`` if that goes elsewhere."""

    def __init__(self, *, captures_stdout: bool = True) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.stdout: IO[bytes] | None = None
        if captures_stdout:
            self.stdout = tempfile.TemporaryFile()  # noqa: SIM115

    @property
    def size(self) -> int:
        """Bytes written so far to all of them."""
        return sum(_size(stream) for stream in self._streams)

    @property
    def stdout_bytes(self) -> bytes:
        """The bytes of standard output; empty if that goes elsewhere."""
        return b"" if self.stdout is None else _read(self.stdout)

    @property
    def stderr_bytes(self) -> bytes:
        """The bytes of standard error."""
        return _read(self.stderr)

    @property
    def stderr_text(self) -> str:
        """The last few kilobytes of standard error, as text."""
        return self.stderr_bytes[-TAIL_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Discard the streams and their content."""
        for stream in self._streams:
            stream.close()

    @property
    def _streams(self) -> tuple[IO[bytes], ...]:
        return (self.stderr,) if self.stdout is None else (self.stdout, self.stderr)


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _read(stream: IO[bytes]) -> bytes:
    return os.pread(stream.fileno(), _size(stream), 0)


def wait_readable(fd: int, timeout_s: float) -> bool:
    """Whether ``fd`` has data, or its end, within ``timeout_s``."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1e3))


FILLER = "FLAMEGATE_FILLER"
_PAGE_BYTES = 4096


def choose_cpu(rng: random.Random) -> int | None:
    """Return one of the cores this process may use; None if the platform cannot bind to one."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return rng.choice(sorted(os.sched_getaffinity(0)))


@contextlib.contextmanager
def bound_to_cpu(cpu: int | None) -> Iterator[None]:
    """Bind this thread, and any process it starts meanwhile, to one core; None binds to none."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def accept_interrupts() -> Iterator[None]:
    """Let a child that is started within the block end on SIGINT.

    A shell makes its background jobs ignore SIGINT, and children inherit that. A profiler that is
    ended by SIGINT would then end only after its timeout.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    except ValueError:  # only the main thread may set it
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def pad_environment(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with a filler, so that it takes whole pages together with ``argv``."""
    rest = {name: value for name, value in env.items() if name != FILLER}
    # Each string ends in a NUL, and the program's name is there once more.
    strings = [argv[0], *argv, *(f"{name}={value}" for name, value in rest.items()), f"{FILLER}="]
    used = sum(len(os.fsencode(text)) + 1 for text in strings)
    return {**rest, FILLER: "." * (-used % _PAGE_BYTES)}

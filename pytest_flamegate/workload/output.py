"""What a process writes, kept in files that have no name and go when they are closed."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import IO

TAIL_BYTES = 4000
OUTPUT_LIMIT_BYTES = 64 << 20
"""What a process may write: it goes to a disk."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command that was waited for ended, and what it wrote."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    elapsed_s: float


class Output:
    """The captured streams of one process; no ``stdout`` where that goes elsewhere."""

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
        """What was written to standard output; nothing where that goes elsewhere."""
        return b"" if self.stdout is None else _read(self.stdout)

    @property
    def stderr_bytes(self) -> bytes:
        """What was written to standard error."""
        return _read(self.stderr)

    @property
    def stderr_text(self) -> str:
        """The last few kilobytes of standard error, as text."""
        return self.stderr_bytes[-TAIL_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of the streams and what is in them."""
        for stream in self._streams:
            stream.close()

    @property
    def _streams(self) -> tuple[IO[bytes], ...]:
        return (self.stderr,) if self.stdout is None else (self.stdout, self.stderr)


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _read(stream: IO[bytes]) -> bytes:
    return os.pread(stream.fileno(), _size(stream), 0)

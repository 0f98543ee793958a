"""The output of a process that this package started."""

from __future__ import annotations

import os
import select
import tempfile
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

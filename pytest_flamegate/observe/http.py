"""One HTTP request with a deadline, each piece of the answer with the time it was read.

Libraries for HTTP buffer; here the time of the socket read is the measurement.
"""

from __future__ import annotations

import http.client  # noqa: TID251 - the one place that asks a server
import io
import socket  # noqa: TID251
import ssl  # noqa: TID251
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from pytest_flamegate.core import clocks
from pytest_flamegate.core.process_system import wait_readable
from pytest_flamegate.engines.openai import Origin

READ_BYTES = 65536
BODY_LIMIT_BYTES = 1 << 20
LINE_LIMIT_BYTES = 1 << 20
EVENT_LIMIT_BYTES = 4 << 20
_SLICE_S = 0.5

BrokenError = (http.client.HTTPException, ConnectionError, ssl.SSLError, EOFError)
"""Raised for an answer that is malformed or incomplete. A missed deadline is ``TimeoutError``."""
Response = http.client.HTTPResponse
TLSError = ssl.SSLError


@dataclass(slots=True)
class Deadline:
    """The end of a request on the monotonic clock; ``idle`` is called while nothing arrives."""

    at_s: float
    idle: Callable[[], None]

    def left_s(self) -> float:
        """Return the seconds left; raises ``TimeoutError`` if there are none."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class Connection:
    """One connection for one request.

    Opening it raises ``OSError``: ``ssl.SSLCertVerificationError`` for an invalid certificate,
    ``TimeoutError`` past the deadline.
    """

    def __init__(self, origin: Origin, deadline: Deadline) -> None:
        tls = origin.scheme == "https"
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        self._connection = kind(origin.host, origin.port, timeout=deadline.left_s())
        self._connection.connect()
        self._reader = _SocketReader(self._connection.sock, deadline)
        self._path, self._sent_ns = origin.path, 0
        self._response: Response | None = None

    def close(self) -> None:
        """Close it; it may be broken."""
        with suppress(OSError):
            if self._response is not None:
                self._response.close()  # the garbage collector may close its file first
            self._connection.close()

    def send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        """Send a request; return the response once its head is there, its body unread.

        Raises one of ``BrokenError`` or ``TimeoutError``.
        """
        self._connection.request(method, self._path + path, body, dict(headers))
        self._sent_ns = time.monotonic_ns()
        reader = cast("socket.socket", self._reader)
        self._response = http.client.HTTPResponse(reader, method=method)
        self._response.begin()
        return self._response

    @property
    def read_ns(self) -> int:
        """The monotonic time in ns at which the latest piece of the answer was read."""
        return self._reader.read_ns

    @property
    def answer_ns(self) -> int:
        """The time from the sent request to the last piece, which may have been read later."""
        return self._reader.ready_ns - self._sent_ns


class _SocketReader(io.RawIOBase):
    """Reads a socket up to a deadline and records the time of the last read.

    ``ready_ns`` is that time less the time that this thread waited for a CPU in that read.
    """

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket = connected
        self._deadline = deadline
        self.read_ns = self.ready_ns = 0

    def makefile(self, _: str) -> io.BufferedReader:
        """Return the file that ``HTTPResponse`` reads from."""
        return io.BufferedReader(self, READ_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Wait for data and read it; 0 is the end."""
        delay_ns = clocks.read_own_delay_ns()
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        while not pending and not wait_readable(
            self._socket.fileno(), min(self._deadline.left_s(), _SLICE_S)
        ):
            self._deadline.idle()
        self._socket.settimeout(self._deadline.left_s())
        count = self._socket.recv_into(buffer)
        self.read_ns = time.monotonic_ns()
        self.ready_ns = self.read_ns - (clocks.read_own_delay_ns() - delay_ns)
        return count


def find_free_port(host: str) -> int:
    """Return a free TCP port of ``host``; another process may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


class TooLongError(ValueError):
    """A line or an event is longer than any that a token could make."""


def read_events(stream: io.BufferedIOBase) -> Iterator[str]:
    """Yield the data of each complete event of a server-sent event stream.

    Lines end in LF or CR LF. Comments, all fields but ``data`` and events without data are
    skipped. A last event without an empty line after it is dropped: its end was not received.
    Raises ``TooLongError`` past the limits in bytes.
    """
    data: list[bytes] = []
    while line := stream.readline(LINE_LIMIT_BYTES + 1):
        if len(line) > LINE_LIMIT_BYTES:
            raise TooLongError(f"a line of more than {LINE_LIMIT_BYTES >> 20} MiB")
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
            if sum(map(len, data)) > EVENT_LIMIT_BYTES:
                raise TooLongError(f"an event of more than {EVENT_LIMIT_BYTES >> 20} MiB")
        elif line in (b"\n", b"\r\n"):
            if data:
                yield b"\n".join(data).decode("utf-8", "replace")
            data = []

"""A thin HTTP/1.1 client that says when each piece of an answer was read from its socket.

Every answer has one deadline for all of it, so that no server keeps us by a byte now and then.
No proxy of the environment is asked, no redirect followed, and no certificate let pass that
does not hold.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from pytest_flamegate.workload.readable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

READ_BYTES = 65536
BODY_LIMIT_BYTES = 1 << 20
_SLICE_S = 0.5

BrokenError = (http.client.HTTPException, ConnectionError, ssl.SSLError, EOFError)
"""What an answer ends with that is none, or not whole; a deadline ends in ``TimeoutError``."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server is: scheme, host and port, and the path that all of its own begin with."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, url: str) -> Origin:
        """Read ``http://host:port/path``; ``ValueError`` says what is wrong with another."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it begins with neither http:// nor https://")
        if not parts.hostname:
            raise ValueError("it names no host")
        if parts.port == 0:
            raise ValueError("it names port 0, which no server has")
        if parts.username is not None or parts.password is not None:
            raise ValueError("it holds a user or a password")
        if parts.query or parts.fragment:
            raise ValueError("it holds a query or a fragment")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("it holds a character that no URL has")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        # Every path asked for begins with /v1 by itself.
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, parts.hostname, port, path)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


@dataclass(slots=True)
class Deadline:
    """When all has to be done, on the monotonic clock; ``idle`` is called while nothing comes."""

    at_s: float
    idle: Callable[[], None] = field(default=lambda: None)

    def left_s(self) -> float:
        """Seconds that are left; ``TimeoutError`` where none are."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class Connection:
    """One connection for one request. Use it as a context manager.

    Opening it raises ``OSError``: ``ssl.SSLCertVerificationError`` for a certificate that does
    not hold, ``TimeoutError`` past the deadline.
    """

    def __init__(self, origin: Origin, deadline: Deadline) -> None:
        self._origin = origin
        self._deadline = deadline
        plain = socket.create_connection((origin.host, origin.port), deadline.left_s())
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = _wrapped(plain, origin, deadline)
        except BaseException:
            plain.close()
            raise
        self._reader = _Reader(self._socket, deadline)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.close()

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request; return the answer once its head is there, its body unread.

        Raises one of ``BrokenError`` or ``TimeoutError``.
        """
        asked = http.client.HTTPConnection(self._origin.host, self._origin.port)
        asked.sock = self._socket
        self._socket.settimeout(self._deadline.left_s())
        asked.request(method, self._origin.path + path, body, dict(headers))
        response = http.client.HTTPResponse(cast("socket.socket", self._reader), method=method)
        response.begin()
        return response

    def pieces(self, response: http.client.HTTPResponse) -> Iterator[tuple[int, bytes]]:
        """Yield each piece of the body with the monotonic time in ns at which it was read."""
        while piece := response.read1(READ_BYTES):
            yield self._reader.read_ns, piece

    def body(self, response: http.client.HTTPResponse) -> bytes:
        """Return the body, or the first MiB of it."""
        held = bytearray()
        for _, piece in self.pieces(response):
            held += piece
            if len(held) > BODY_LIMIT_BYTES:
                break
        return bytes(held[:BODY_LIMIT_BYTES])


class _Reader(io.RawIOBase):
    """Reads a socket up to a deadline, and knows when it last did."""

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket = connected
        self._deadline = deadline
        self.read_ns = 0

    def makefile(self, _: str) -> io.BufferedReader:
        """Return the file that ``HTTPResponse`` wants to read from."""
        return io.BufferedReader(self, READ_BYTES)

    def readable(self) -> bool:
        """Say that it is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Wait for something and read it; nothing is the end."""
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        while not pending and not readable(
            self._socket.fileno(), min(self._deadline.left_s(), _SLICE_S)
        ):
            self._deadline.idle()
        self._socket.settimeout(self._deadline.left_s())
        count = self._socket.recv_into(buffer)
        self.read_ns = time.monotonic_ns()
        return count


def _wrapped(plain: socket.socket, origin: Origin, deadline: Deadline) -> socket.socket:
    if origin.scheme == "http":
        return plain
    plain.settimeout(deadline.left_s())
    return ssl.create_default_context().wrap_socket(plain, server_hostname=origin.host)


def free_port(host: str) -> int:
    """Return a TCP port of ``host`` that was free a moment ago; another may take it meanwhile."""
    with socket.socket() as held:
        held.bind((host, 0))
        port: int = held.getsockname()[1]
    return port

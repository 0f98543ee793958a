"""Ask a server over HTTP, and name everything that can go wrong with its answers."""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.workload import completions, sse
from pytest_flamegate.workload.http_client import BrokenError, Connection, Deadline, Origin
from pytest_flamegate.workload.refusals import timed_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse

    from pytest_flamegate.workload.spec import Workload

_REDIRECTS = range(300, 400)
_DENIED = frozenset({401, 403})
_ABSENT = frozenset({404, 405})
_REFUSED = frozenset({400, 422})


class FieldsRefusedError(Exception):
    """The server refuses fields of a request that it can be asked without: ``names``."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names


@dataclass(frozen=True, slots=True)
class Api:
    """One server, asked for one workload. ``idle`` is called while nothing comes."""

    workload: Workload
    origin: Origin
    key: str | None
    idle: Callable[[], None]

    def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """Return status and body of what stands at ``path``.

        Raises ``OSError`` or one of ``BrokenError`` where there is no answer.
        """
        deadline = Deadline(time.monotonic() + timeout_s, self.idle)
        with Connection(self.origin, deadline) as connection:
            response = connection.ask("GET", path, None, self._headers())
            return response.status, connection.body(response)

    def answer(self, path: str, body: bytes) -> completions.Answer:
        """Post ``body``; return the whole answer, each piece of it with its time.

        ``ToolError`` for whatever is no such answer, ``FieldsRefusedError`` where it might be one
        without some field. ``OSError`` or one of ``BrokenError`` where the server went away.
        """
        deadline = Deadline(time.monotonic() + self.workload.timeout_s, self.idle)
        try:
            with Connection(self.origin, deadline) as connection:
                taken = completions.Answer(self.workload, time.monotonic_ns())
                response = connection.ask("POST", path, body, self._headers())
                self._check(path, response, connection)
                self._read(response, connection, taken)
        except TimeoutError:
            raise timed_out(self.workload) from None
        return taken

    def unreachable(self, error: Exception) -> FlamegateError:
        """Return the refusal of a server that cannot be spoken to."""
        if isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or error.reason or "it is no TLS"
            return ToolError(
                "E_BAD_CERTIFICATE",
                f"The server of {self.workload.name!r} at {self.origin} cannot be trusted: "
                f"{reason}.",
                "Give it a certificate that this machine trusts (SSL_CERT_FILE), or use http on "
                "loopback.",
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ToolError(
            "E_UNREACHABLE",
            f"Nothing answers for {self.workload.name!r} at {self.origin}: {reason}.",
            "Start the server, or let flamegate start it (serve); check the url.",
        )

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "text/event-stream, application/json",
            "Connection": "close",
            "Content-Type": "application/json",
            "User-Agent": "pytest-flamegate",
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers

    def _check(self, path: str, response: HTTPResponse, connection: Connection) -> None:
        status = response.status
        if status == 200:
            kind = response.headers.get_content_type()
            if kind != "text/event-stream":
                raise ToolError(
                    "E_NOT_STREAMED",
                    f"The server of {self.workload.name!r} answered with {kind[:60]!r} and not "
                    "with a stream of events.",
                    "Use a server that streams; without a stream no token is clocked.",
                )
            return
        if status in _REDIRECTS:
            raise ToolError(
                "E_REDIRECTED",
                f"The server of {self.workload.name!r} sends {path} elsewhere (status {status}).",
                "Name the place itself in url; no redirect is followed.",
            )
        body = connection.body(response)
        said = self.said(body)
        if status in _DENIED:
            raise denied(self.workload, status)
        if status in _ABSENT:
            raise ToolError(
                "E_NO_ENDPOINT",
                f"The server of {self.workload.name!r} has no {path} (status {status}).",
                'Check the path in url, and api = "completions" or "chat".',
            )
        if status in _REFUSED and (names := _named(body)):
            raise FieldsRefusedError(names)
        raise completions.failed(self.workload, status, said)

    def _read(
        self, response: HTTPResponse, connection: Connection, taken: completions.Answer
    ) -> None:
        parser = sse.Parser()
        try:
            for now_ns, piece in connection.pieces(response):
                for event in parser.feed(piece):
                    taken.take(now_ns, event)
                if len(taken.pieces) > self.workload.max_tokens or taken.done:
                    return
        except sse.EndlessError as error:
            raise ToolError(
                "E_BAD_STREAM",
                f"The server of {self.workload.name!r} streamed {error}.",
                "Check that url or serve names a server that speaks OpenAI's protocol.",
            ) from None
        raise EOFError

    def said(self, body: bytes) -> str:
        """Return what an error's body says, without the key."""
        found = completions.mapping(body)
        text = completions.message(found) if found is not None else ""
        return text.replace(self.key, "redacted") if self.key else text


def denied(workload: Workload, status: int) -> UsageError:
    """Return the refusal of a server that wants a key, or another one."""
    return UsageError(
        "E_KEY_REFUSED",
        f"The server of {workload.name!r} refuses the request for want of a right (status "
        f"{status}).",
        'Put its key in a variable and name that: api_key_env = "NAME".',
    )


def key_of(workload: Workload, variable: str | None) -> str | None:
    """Return the key that ``variable`` holds, the workload's own environment first."""
    if variable is None:
        return None
    key = workload.env.get(variable) or os.environ.get(variable)
    if not key or not key.isascii() or not key.isprintable():
        raise UsageError(
            "E_NO_KEY",
            f"Workload {workload.name!r} takes its key from {variable}, which holds none.",
            f"Set {variable} in the environment of this run.",
        )
    return key


def _named(body: bytes) -> tuple[str, ...]:
    text = body.decode("utf-8", "replace")
    return tuple(name for name in completions.DROPPABLE if name in text)


__all__ = ["Api", "BrokenError", "FieldsRefusedError", "denied", "key_of"]

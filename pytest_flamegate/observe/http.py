"""What a server is asked for, and what its streamed answer says: OpenAI's two protocols."""

from __future__ import annotations

import http.client
import io
import json
import math
import os
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.core.process_output import wait_readable
from pytest_flamegate.engines.figures import make_report
from pytest_flamegate.observe.engine_process import timeout_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from http.client import HTTPResponse

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Endpoint
    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.engines.openai import Origin


DROPPABLE = ("cache_prompt", "stream_options", "seed")
"""Fields that a strict server may refuse: it is asked again without those that it names."""
_TIMINGS = {
    "predicted_n": "tokens",
    "prompt_n": "prompt_tokens",
    "prompt_ms": "prefill_ms",
    "predicted_ms": "decode_ms",
    "predicted_per_second": "tokens_per_second",
    "prompt_per_second": "prefill_tokens_per_second",
}
"""What llama.cpp's server calls a figure, and what it is called here."""
_SHOWN = 200


def choose_path(plan: Endpoint) -> str:
    """Return the path that answers such requests."""
    return "/v1/chat/completions" if plan.chat else "/v1/completions"


def make_request(
    plan: Endpoint,
    workload: Workload,
    model: str | None,
    max_tokens: int,
    without: Collection[str] = (),
) -> bytes:
    """Return the body of one request; the workload's own ``request`` wins over what stands here."""
    asked: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": workload.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }
    if plan.chat:
        asked["messages"] = [{"role": "user", "content": workload.prompt}]
    else:
        asked["prompt"] = workload.prompt
    if model is not None:
        asked["model"] = model
    kept = {name: value for name, value in asked.items() if name not in without}
    return json.dumps(kept | _plain(plan.request)).encode()


@dataclass(slots=True)
class Completion:
    """One answer as its events come in. ``token`` is one piece of text, seen at ``now_ns``.

    ``gaps_ns`` holds the time from ``last_ns``, when the request was sent, to the first piece,
    and from each piece to the next.
    """

    workload: Workload
    last_ns: int
    pieces: list[str] = field(default_factory=list)
    gaps_ns: list[int] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    finish: str | None = None
    done: bool = False

    def take(self, now_ns: int, data: str) -> None:
        """Take one event. ``ToolError``: ``E_BAD_STREAM``, ``E_SERVER_ERROR``."""
        if data.strip() == "[DONE]":
            self.done = True
            return
        event = parse_object(data)
        if event is None:
            raise ToolError(
                "E_BAD_STREAM",
                f"The server of {self.workload.name!r} streamed what is no JSON object: "
                f"{data[:_SHOWN]!r}.",
                "Check that url or serve names a server that speaks OpenAI's protocol.",
            )
        if event.get("error"):
            raise server_error(self.workload, 200, read_error_message(event))
        self.usage = _table(event, "usage") or self.usage
        self.timings = _table(event, "timings") or self.timings
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(now_ns, choices[0])

    def _choice(self, now_ns: int, choice: Mapping[str, Any]) -> None:
        finish = choice.get("finish_reason")
        self.finish = finish if isinstance(finish, str) else self.finish
        delta = _table(choice, "delta")
        for text in (choice.get("text"), delta.get("reasoning_content"), delta.get("content")):
            if isinstance(text, str) and text:
                self.pieces.append(text)
                self.gaps_ns.append(now_ns - self.last_ns)
                self.last_ns = now_ns

    @property
    def counted(self) -> int | None:
        """How many tokens the server says it made; None where it does not say.

        ``ToolError`` ``E_SOURCES_DISAGREE`` where it says two things.
        """
        told = {
            source: count
            for source, count in (
                ("usage.completion_tokens", read_number(self.usage, "completion_tokens")),
                ("timings.predicted_n", read_number(self.timings, "predicted_n")),
            )
            if count is not None
        }
        if len(set(told.values())) > 1:
            raise disagreement_error(
                self.workload, " and ".join(f"{n} {c:g}" for n, c in told.items())
            )
        return int(next(iter(told.values()))) if told else None

    @property
    def merged(self) -> bool:
        """Whether more tokens were made than came one by one.

        The token that ends an answer has no text. ``ToolError`` ``E_SOURCES_DISAGREE`` where
        the server counts fewer tokens than it sent pieces of text.
        """
        counted, came = self.counted, len(self.pieces)
        if counted is None or counted == came:
            return False
        if counted < came:
            told = f"{counted} tokens by its own count and {came} pieces of text"
            raise disagreement_error(self.workload, told)
        return not (counted == came + 1 and self.finish == "stop")

    @property
    def cached(self) -> int:
        """How many tokens of the prompt the server says it took from a cache."""
        details = _table(self.usage, "prompt_tokens_details")
        found = (read_number(details, "cached_tokens"), read_number(self.timings, "cache_n"))
        return int(max(each or 0 for each in found))

    def reports(self) -> tuple[Report, ...]:
        """Return what the server said of this answer, by who said it."""
        timings = {
            ours: value
            for theirs, ours in _TIMINGS.items()
            if (value := read_number(self.timings, theirs)) is not None
        }
        if timings.get("tokens", 0) > 0:
            timings["decode_tokens"] = timings["tokens"] - 1  # the first one comes of the prompt
        usage = {
            ours: value
            for theirs, ours in (("completion_tokens", "tokens"), ("prompt_tokens",) * 2)
            if (value := read_number(self.usage, theirs)) is not None
        }
        told = (("llama.cpp:timings", timings), ("openai:usage", usage))
        return tuple(make_report(source, figures) for source, figures in told if figures)


def parse_object(data: str | bytes) -> Mapping[str, Any] | None:
    """Return the JSON object that ``data`` is; None where it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_error_message(answer: Mapping[str, Any]) -> str:
    """Return what an answer that is an error says, on one line and cut."""
    error = answer.get("error", answer)
    said = error.get("message", error) if isinstance(error, dict) else error
    said = answer.get("detail", said) if "error" not in answer else said
    text = " ".join(str(said).split())
    shown = "".join(each for each in text if each.isprintable())
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"


def read_number(table: Mapping[str, Any], name: str) -> float | None:
    """Return a figure that is finite and not negative; None for anything else."""
    value = table.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) and value >= 0 else None
    except OverflowError:
        return None


def server_error(workload: Workload, status: int, said: str) -> ToolError:
    """Return the refusal of an answer that is an error."""
    told = f" It says: {said}." if said else ""
    return ToolError(
        "E_SERVER_ERROR",
        f"The server of {workload.name!r} answered with an error (status {status}).{told}",
        "See the server's own log; ask it the same by hand.",
    )


def disagreement_error(workload: Workload, told: str) -> ToolError:
    """Return the refusal of two counts of the same tokens."""
    return ToolError(
        "E_SOURCES_DISAGREE",
        f"The server of {workload.name!r} tells of one answer {told}.",
        "Nobody can say which is true; have the server's usage or timings mended, or turned off.",
    )


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    """Return what was frozen as JSON can write it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


READ_BYTES = 65536
BODY_LIMIT_BYTES = 1 << 20
_SLICE_S = 0.5

BrokenError = (http.client.HTTPException, ConnectionError, ssl.SSLError, EOFError)
"""What an answer ends with that is none, or not whole; a deadline ends in ``TimeoutError``."""


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
        while not pending and not wait_readable(
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


def find_free_port(host: str) -> int:
    """Return a TCP port of ``host`` that was free a moment ago; another may take it meanwhile."""
    with socket.socket() as held:
        held.bind((host, 0))
        port: int = held.getsockname()[1]
    return port


LINE_LIMIT_BYTES = 1 << 20
EVENT_LIMIT_BYTES = 4 << 20


class TooLongError(ValueError):
    """A line or an event is longer than any that a token could make."""


class EventParser:
    """Collects lines into events; ``feed`` returns the data of those that are whole.

    Lines end in LF, CR LF or CR, as the standard has it. Comments and all fields but ``data``
    are left out, and an event without data is none. A last event that no empty line ends is
    not one either: its end was not seen. ``EndlessError`` past the limits in bytes.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._held_bytes = 0
        self._after_cr = False

    def feed(self, data: bytes) -> list[str]:
        """Take what came; return the data of each event that it ended, in order."""
        if self._after_cr and data:
            # The LF of a CR LF that was cut in two.
            data = data.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = data.endswith(b"\r")
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[str] = []
        for line in lines[:-1]:
            self._line += line
            self._ended(bytes(self._line), events)
            self._line.clear()
        self._line += lines[-1]
        if len(self._line) > LINE_LIMIT_BYTES:
            raise TooLongError(f"a line of more than {LINE_LIMIT_BYTES >> 20} MiB")
        return events

    def _ended(self, line: bytes, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
            self._data, self._held_bytes = [], 0
            return
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data.append(value.removeprefix(b" "))
        self._held_bytes += len(value)
        if self._held_bytes > EVENT_LIMIT_BYTES:
            raise TooLongError(f"an event of more than {EVENT_LIMIT_BYTES >> 20} MiB")


_REDIRECTS = range(300, 400)
_DENIED = frozenset({401, 403})
_ABSENT = frozenset({404, 405})
_REFUSED = frozenset({400, 422})


class RejectedFieldsError(Exception):
    """The server refuses fields of a request that it can be asked without: ``names``."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names


@dataclass(frozen=True, slots=True)
class CompletionClient:
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

    def answer(self, path: str, body: bytes) -> Completion:
        """Post ``body``; return the whole answer, each piece of it with its time.

        ``ToolError`` for whatever is no such answer, ``FieldsRefusedError`` where it might be one
        without some field. ``OSError`` or one of ``BrokenError`` where the server went away.
        """
        deadline = Deadline(time.monotonic() + self.workload.timeout_s, self.idle)
        try:
            with Connection(self.origin, deadline) as connection:
                taken = Completion(self.workload, time.monotonic_ns())
                response = connection.ask("POST", path, body, self._headers())
                self._check(path, response, connection)
                self._read(response, connection, taken)
        except TimeoutError:
            raise timeout_error(self.workload) from None
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
            raise key_rejected_error(self.workload, status)
        if status in _ABSENT:
            raise ToolError(
                "E_NO_ENDPOINT",
                f"The server of {self.workload.name!r} has no {path} (status {status}).",
                'Check the path in url, and api = "completions" or "chat".',
            )
        if status in _REFUSED and (names := _named(body)):
            raise RejectedFieldsError(names)
        raise server_error(self.workload, status, said)

    def _read(self, response: HTTPResponse, connection: Connection, taken: Completion) -> None:
        parser = EventParser()
        try:
            for now_ns, piece in connection.pieces(response):
                for event in parser.feed(piece):
                    taken.take(now_ns, event)
                if len(taken.pieces) > self.workload.max_tokens or taken.done:
                    return
        except TooLongError as error:
            raise ToolError(
                "E_BAD_STREAM",
                f"The server of {self.workload.name!r} streamed {error}.",
                "Check that url or serve names a server that speaks OpenAI's protocol.",
            ) from None
        raise EOFError

    def said(self, body: bytes) -> str:
        """Return what an error's body says, without the key."""
        found = parse_object(body)
        text = read_error_message(found) if found is not None else ""
        return text.replace(self.key, "redacted") if self.key else text


def key_rejected_error(workload: Workload, status: int) -> UsageError:
    """Return the refusal of a server that wants a key, or another one."""
    return UsageError(
        "E_KEY_REFUSED",
        f"The server of {workload.name!r} refuses the request for want of a right (status "
        f"{status}).",
        'Put its key in a variable and name that: api_key_env = "NAME".',
    )


def read_key(workload: Workload, variable: str | None) -> str | None:
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
    return tuple(name for name in DROPPABLE if name in text)

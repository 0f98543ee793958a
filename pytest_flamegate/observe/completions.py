"""OpenAI's two completion protocols: the request, the streamed answer, and a server's errors."""

import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError, reason_of
from pytest_flamegate.core.json_parser import find_number, find_table
from pytest_flamegate.core.text import shorten
from pytest_flamegate.engines.base import Endpoint
from pytest_flamegate.engines.figures import Report, make_report
from pytest_flamegate.engines.openai import Origin
from pytest_flamegate.observe.engine_process import timeout_error
from pytest_flamegate.observe.http import (
    BODY_LIMIT_BYTES,
    BrokenError,
    Connection,
    Deadline,
    Response,
    TLSError,
    TooLongError,
    read_events,
)

DROPPABLE = ("cache_prompt", "stream_options", "seed")
"""Fields that a strict server may reject; the request is repeated without those it names."""
_TIMINGS = {
    "predicted_n": "tokens",
    "prompt_n": "prompt_tokens",
    "prompt_ms": "prefill_ms",
    "predicted_ms": "decode_ms",
    "predicted_per_second": "tokens_per_second",
    "prompt_per_second": "prefill_tokens_per_second",
}
"""Figures of llama.cpp's server, and their names here."""
_USAGE = {"completion_tokens": "tokens", "prompt_tokens": "prompt_tokens"}
_QUOTE_CHARACTERS = 200
GET_TIMEOUT_S = 5.0


def make_request(
    plan: Endpoint,
    workload: Workload,
    model: str | None,
    prompt: str,
    max_tokens: int,
    without: Collection[str] = (),
) -> bytes:
    """Return the body of one request; the workload's own ``request`` overrides these fields."""
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": workload.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }
    if plan.chat:
        fields["messages"] = [{"role": "user", "content": prompt}]
    else:
        fields["prompt"] = prompt
    if model is not None:
        fields["model"] = model
    sent = {name: value for name, value in fields.items() if name not in without}
    return json.dumps(sent | dict(plan.request), default=dict).encode()


@dataclass(slots=True)
class Completion:
    """One answer as its events arrive.

    ``pieces`` are its texts. ``gaps_ns`` holds the time from ``last_ns``, when the request was
    sent, to the first piece, and from each piece to the next. ``answer_ns`` is the time from the
    request to the end of the answer, whenever that was read.
    """

    workload: Workload
    last_ns: int
    pieces: list[str] = field(default_factory=list)
    gaps_ns: list[int] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    finish: str | None = None
    done: bool = False
    answer_ns: int = 0

    def add_event(self, now_ns: int, data: str) -> None:
        """Add one event, read at ``now_ns``. Raises ``E_NO_ENDPOINT`` or ``E_SERVER_ERROR``."""
        if data.strip() == "[DONE]":
            self.done = True
            return
        event = parse_object(data)
        if event is None:
            quote = data[:_QUOTE_CHARACTERS]
            raise server_error(
                self.workload, "E_NO_ENDPOINT", f"sent an event that is no JSON object: {quote!r}"
            )
        if event.get("error"):
            raise _status_error(self.workload, 200, read_error_message(event))
        self.usage = find_table(event, "usage") or self.usage
        self.timings = find_table(event, "timings") or self.timings
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._add_choice(now_ns, choices[0])

    def _add_choice(self, now_ns: int, choice: Mapping[str, Any]) -> None:
        finish = choice.get("finish_reason")
        self.finish = finish if isinstance(finish, str) else self.finish
        delta = find_table(choice, "delta")
        # Servers have either name for it, and some send both.
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        for text in (choice.get("text"), reasoning, delta.get("content")):
            if isinstance(text, str) and text:
                self.pieces.append(text)
                self.gaps_ns.append(now_ns - self.last_ns)
                self.last_ns = now_ns

    @property
    def counted(self) -> int | None:
        """The tokens that the server counts, if it does; ``ToolError`` if it reports two counts."""
        usage = _find_figure(self.usage, "completion_tokens")
        timings = _find_figure(self.timings, "predicted_n")
        if usage is not None and timings is not None and usage != timings:
            both = f"usage.completion_tokens {usage:g} and timings.predicted_n {timings:g}"
            raise self.disagreement_error(both)
        found = timings if usage is None else usage
        return None if found is None else int(found)

    @property
    def is_merged(self) -> bool:
        """Whether some pieces hold several tokens.

        The token that ends an answer has no text. Raises ``ToolError`` ``E_SOURCES_DISAGREE`` if
        the server counts fewer tokens than it sent pieces of text.
        """
        counted, received = self.counted, len(self.pieces)
        if counted is None or counted == received:
            return False
        if counted < received:
            both = f"{counted} tokens by its own count and {received} pieces of text"
            raise self.disagreement_error(both)
        return not (counted == received + 1 and self.finish == "stop")

    def disagreement_error(self, counts: str) -> ToolError:
        """Build the error for two different counts of the same tokens."""
        problem = f"reports for one answer {counts}"
        return server_error(self.workload, "E_SOURCES_DISAGREE", problem)

    @property
    def cached(self) -> int:
        """The tokens of the prompt that the server took from a cache."""
        details = find_table(self.usage, "prompt_tokens_details")
        found = (_find_figure(details, "cached_tokens"), _find_figure(self.timings, "cache_n"))
        return int(max(each or 0 for each in found))

    def reports(self) -> tuple[Report, ...]:
        """Return the server's own figures for this answer, one report for each source."""
        reports = []
        for source, table, names in (
            ("llama.cpp:timings", self.timings, _TIMINGS),
            ("openai:usage", self.usage, _USAGE),
        ):
            found = ((ours, _find_figure(table, theirs)) for theirs, ours in names.items())
            figures = {name: value for name, value in found if value is not None}
            if table is self.timings and figures.get("tokens", 0) > 0:
                figures["decode_tokens"] = figures["tokens"] - 1  # the prefill makes the first one
            if figures:
                reports.append(make_report(source, figures))
        return tuple(reports)


def parse_object(data: str | bytes) -> Mapping[str, Any] | None:
    """Return the JSON object in ``data``; None if it is anything else."""
    try:
        found = json.loads(data)  # noqa: TID251 - each figure is validated
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_error_message(answer: Mapping[str, Any]) -> str:
    """Return the message of an error answer on one line, shortened."""
    error = answer.get("error", answer)
    text = error.get("message", error) if isinstance(error, dict) else error
    text = answer.get("detail", text) if "error" not in answer else text
    line = "".join(each for each in " ".join(str(text).split()) if each.isprintable())
    return shorten(line, _QUOTE_CHARACTERS)


def _find_figure(table: Mapping[str, Any], name: str) -> float | None:
    """Return a figure that is finite and not negative; None for anything else."""
    value = find_number(table, name)
    return None if value is None or value < 0 else value


def server_error(workload: Workload, code: str, problem: str) -> ToolError:
    """Build an error; ``problem`` continues its sentence, "The server of 'w' …"."""
    return ToolError(code, f"The server of {workload.name!r} {problem}.")


def _status_error(workload: Workload, status: int, message: str) -> ToolError:
    reported = f". It reports: {message}" if message else ""
    problem = f"answered with an error (status {status}){reported}"
    return server_error(workload, "E_SERVER_ERROR", problem)


class RejectedFieldsError(Exception):
    """The server rejects fields that a request can do without; ``args`` are their names."""


@dataclass(frozen=True, slots=True)
class CompletionClient:
    """A client of one server for one workload. ``idle`` is called while nothing arrives."""

    workload: Workload
    origin: Origin
    key: str | None
    idle: Callable[[], None]

    def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """Return status and body of ``path``; raises ``OSError`` or one of ``BrokenError``."""
        deadline = Deadline(time.monotonic() + timeout_s, self.idle)
        with closing(Connection(self.origin, deadline)) as connection:
            response = connection.send("GET", path, None, self._headers())
            return response.status, response.read(BODY_LIMIT_BYTES)

    def complete(self, path: str, body: bytes, droppable: Collection[str] = ()) -> Completion:
        """Post ``body``; return the whole answer, each piece of it with its time.

        Raises ``ToolError`` for any other answer, ``RejectedFieldsError`` if the server rejects
        some of the ``droppable`` fields, ``OSError`` or one of ``BrokenError`` if it is gone.
        """
        deadline = Deadline(time.monotonic() + self.workload.timeout_s, self.idle)
        try:
            with closing(Connection(self.origin, deadline)) as connection:
                completion = Completion(self.workload, time.monotonic_ns())
                response = connection.send("POST", path, body, self._headers())
                self._check(path, response, droppable)
                self._read(response, connection, completion)
                completion.answer_ns = connection.answer_ns
        except TimeoutError:
            raise timeout_error(self.workload) from None
        return completion

    def find_model(self) -> str | None:
        """Return the first model that the server lists; None if it lists none."""
        try:
            status, body = self.get("/v1/models", GET_TIMEOUT_S)
        except (OSError, *BrokenError):
            return None
        listed = (parse_object(body) or {}).get("data") if status == 200 else None
        first = listed[0] if isinstance(listed, list) and listed else None
        name = first.get("id") if isinstance(first, dict) else None
        return name if isinstance(name, str) else None

    def unreachable_error(self, error: Exception) -> FlamegateError:
        """Build the error for a server that cannot be connected to."""
        if isinstance(error, TLSError):
            reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
            return ToolError(
                "E_BAD_CERTIFICATE",
                f"The server of {self.workload.name!r} at {self.origin} cannot be trusted: "
                f"{reason}.",
            )
        return ToolError(
            "E_UNREACHABLE",
            f"No server answers for {self.workload.name!r} at {self.origin}: {reason_of(error)}.",
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

    def _check(self, path: str, response: Response, droppable: Collection[str]) -> None:
        """Raise the error that the head of the response, or else its body, amounts to."""
        status = response.status
        if status == 200:
            kind = response.headers.get_content_type()
            if kind != "text/event-stream":
                raise server_error(
                    self.workload, "E_NO_ENDPOINT", f"sent {kind[:60]!r} and no stream of events"
                )
            return
        if 300 <= status < 400:
            raise server_error(
                self.workload, "E_NO_ENDPOINT", f"redirects {path} (status {status})"
            )
        body = response.read(BODY_LIMIT_BYTES)
        if status in (401, 403):
            raise key_rejected_error(self.workload, status)
        if status in (404, 405):
            raise server_error(self.workload, "E_NO_ENDPOINT", f"has no {path} (status {status})")
        if status in (400, 422):
            text = body.decode("utf-8", "replace")
            if names := tuple(name for name in droppable if name in text):
                raise RejectedFieldsError(*names)
        answer = parse_object(body)
        message = read_error_message(answer) if answer is not None else ""
        message = message.replace(self.key, "redacted") if self.key else message
        raise _status_error(self.workload, status, message)

    def _read(self, response: Response, connection: Connection, completion: Completion) -> None:
        try:
            for event in read_events(response):
                completion.add_event(connection.read_ns, event)
                if len(completion.pieces) > self.workload.max_tokens or completion.done:
                    return
        except TooLongError as error:
            raise server_error(self.workload, "E_NO_ENDPOINT", f"sent {error}") from None
        raise EOFError


def key_rejected_error(workload: Workload, status: int) -> UsageError:
    """Build the error for a server that wants a key, or another one."""
    return UsageError(
        "E_API_KEY",
        f"The server of {workload.name!r} rejects the request as unauthorized (status {status}).",
    )


def read_key(workload: Workload, variable: str | None) -> str | None:
    """Return the key in ``variable``; the workload's own environment comes first."""
    if variable is None:
        return None
    key = workload.env.get(variable) or os.environ.get(variable)
    if not key or not key.isascii() or not key.isprintable():
        raise UsageError(
            "E_API_KEY",
            f"Workload {workload.name!r} takes its key from {variable}, which holds none.",
            f"Set {variable} in the environment of this run.",
        )
    return key

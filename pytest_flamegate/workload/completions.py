"""What a server is asked for, and what its streamed answer says: OpenAI's two protocols."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.reported import report

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_flamegate.workload.engines.base import Endpoint
    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.spec import Workload

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


def path_of(plan: Endpoint) -> str:
    """Return the path that answers such requests."""
    return "/v1/chat/completions" if plan.chat else "/v1/completions"


def request(
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
class Answer:
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
        event = mapping(data)
        if event is None:
            raise ToolError(
                "E_BAD_STREAM",
                f"The server of {self.workload.name!r} streamed what is no JSON object: "
                f"{data[:_SHOWN]!r}.",
                "Check that url or serve names a server that speaks OpenAI's protocol.",
            )
        if event.get("error"):
            raise failed(self.workload, 200, message(event))
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
                ("usage.completion_tokens", number(self.usage, "completion_tokens")),
                ("timings.predicted_n", number(self.timings, "predicted_n")),
            )
            if count is not None
        }
        if len(set(told.values())) > 1:
            raise disagree(self.workload, " and ".join(f"{n} {c:g}" for n, c in told.items()))
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
            raise disagree(self.workload, told)
        return not (counted == came + 1 and self.finish == "stop")

    @property
    def cached(self) -> int:
        """How many tokens of the prompt the server says it took from a cache."""
        details = _table(self.usage, "prompt_tokens_details")
        found = (number(details, "cached_tokens"), number(self.timings, "cache_n"))
        return int(max(each or 0 for each in found))

    def reports(self) -> tuple[Report, ...]:
        """Return what the server said of this answer, by who said it."""
        timings = {
            ours: value
            for theirs, ours in _TIMINGS.items()
            if (value := number(self.timings, theirs)) is not None
        }
        if timings.get("tokens", 0) > 0:
            timings["decode_tokens"] = timings["tokens"] - 1  # the first one comes of the prompt
        usage = {
            ours: value
            for theirs, ours in (("completion_tokens", "tokens"), ("prompt_tokens",) * 2)
            if (value := number(self.usage, theirs)) is not None
        }
        told = (("llama.cpp:timings", timings), ("openai:usage", usage))
        return tuple(report(source, figures) for source, figures in told if figures)


def mapping(data: str | bytes) -> Mapping[str, Any] | None:
    """Return the JSON object that ``data`` is; None where it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def message(answer: Mapping[str, Any]) -> str:
    """Return what an answer that is an error says, on one line and cut."""
    error = answer.get("error", answer)
    said = error.get("message", error) if isinstance(error, dict) else error
    said = answer.get("detail", said) if "error" not in answer else said
    text = " ".join(str(said).split())
    shown = "".join(each for each in text if each.isprintable())
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"


def number(table: Mapping[str, Any], name: str) -> float | None:
    """Return a figure that is finite and not negative; None for anything else."""
    value = table.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) and value >= 0 else None
    except OverflowError:
        return None


def failed(workload: Workload, status: int, said: str) -> ToolError:
    """Return the refusal of an answer that is an error."""
    told = f" It says: {said}." if said else ""
    return ToolError(
        "E_SERVER_ERROR",
        f"The server of {workload.name!r} answered with an error (status {status}).{told}",
        "See the server's own log; ask it the same by hand.",
    )


def disagree(workload: Workload, told: str) -> ToolError:
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

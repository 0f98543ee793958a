"""What is refused of a process that generates: too little, too much, too late, or its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.workload.output import OUTPUT_LIMIT_BYTES

if TYPE_CHECKING:
    from pytest_flamegate.workload import process
    from pytest_flamegate.workload.spec import Workload


def check_count(workload: Workload, count: int) -> None:
    """Refuse a sequence of no tokens, or of more than were asked for."""
    if count == 0:
        raise ToolError(
            "E_NO_TOKENS",
            f"The engine of {workload.name!r} generated nothing.",
            "Run it by itself with the same prompt; an engine that prints nothing proves nothing.",
        )
    if count > workload.max_tokens:
        raise ToolError(
            "E_TOO_MANY_TOKENS",
            f"The engine of {workload.name!r} generated {count} tokens or more where "
            f"{workload.max_tokens} were asked for.",
            "Check that max_tokens reaches the engine, and that token_unit counts what the engine "
            'calls a token: "word", "tokenizer", or "engine" for its own count.',
        )


def check_output(workload: Workload, child: process.Child) -> None:
    """Refuse a process that floods its output."""
    if child.output_bytes() > OUTPUT_LIMIT_BYTES:
        raise flooded(workload)


def flooded(workload: Workload) -> ToolError:
    """Return the refusal of output that has no end."""
    return ToolError(
        "E_OUTPUT_FLOOD",
        f"The engine of {workload.name!r} wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB of "
        "messages, or a single token of more than 64 KiB.",
        "Turn its logging down, and check that token_unit suits its output.",
    )


def timed_out(workload: Workload) -> ToolError:
    """Return the refusal of a run that took too long."""
    return ToolError(
        "E_TIMEOUT",
        f"A process of {workload.name!r} did not finish within {workload.timeout_s:g} s.",
        "Raise timeout (seconds) of the workload, or ask for fewer tokens.",
    )


def died(workload: Workload, status: int | None, stderr: str) -> ToolError:
    """Return the refusal of a process that ended before its work."""
    ended = "closed its pipe" if status is None else f"ended with status {status}"
    if status is not None and status < 0:
        ended = f"was killed by signal {-status}"
    said = f" Its last words: {stderr.splitlines()[-1]}" if stderr else ""
    return ToolError(
        "E_ENGINE_DIED",
        f"The engine of {workload.name!r} {ended} before it was done.{said}",
        "Run it by itself with the same prompt to see why.",
    )


def changed(workload: Workload) -> ToolError:
    """Return the refusal of an engine that is another one than a process before."""
    return ToolError(
        "E_ENGINE_CHANGED",
        f"The engine of {workload.name!r} was replaced while it was measured.",
        "Leave the environment alone while it is measured, and run it again.",
    )


def told(text: str) -> FlamegateError:
    """Return the refusal that a process itself told in ``text``, as JSON."""
    failure: dict[str, Any] = json.loads(text)
    kind = UsageError if failure["usage"] else ToolError
    return kind(failure["code"], failure["what"], failure["todo"])

"""A process that loads once and then generates on command, whatever it is commanded through."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.core.process import OUTPUT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.core import process
    from pytest_flamegate.core.clocks import ProcessCounters
    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.observe.observation import Block


WARM_TOKENS = 32

T_co = TypeVar("T_co", covariant=True)


class Window(Protocol[T_co]):
    """Something that watches a process for a while: a profiler that is attached."""

    def stop(self) -> T_co:
        """End the watch and return what it saw."""

    def close(self) -> None:
        """End the watch; what it saw is abandoned."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a timed run has its place: in which pair, and bound to which core."""

    pair: int | None = None
    cpu: int | None = None


ALONE = RunPlace()


class EngineProcess(Protocol):
    """What the observer asks of such a process: a child of its own, or a server.

    ``load_ns`` is None where it ran before. ``facts`` is what the engine says that it is.
    """

    started_at: str
    load_ns: int | None
    facts: Mapping[str, str]
    token_source: str

    @property
    def notes(self) -> Mapping[str, str]:
        """What has to be known so far of how it was observed, by code."""

    @property
    def pid(self) -> int:
        """The process whose clocks are read."""

    def warm_up(self, tokens: int) -> None:
        """Generate one sequence of at most ``tokens`` tokens, unmeasured."""

    def block(self, sequences: int) -> Block:
        """Generate ``sequences`` whole sequences; return what they took."""

    def untold_block(self, sequences: int) -> Block:
        """Do the same under a profiler: the times of tokens may mean nothing."""

    def reports(self) -> tuple[Report, ...]:
        """Return what the engine said of its measured sequences so far."""

    def counters(self) -> ProcessCounters:
        """Read the process's counters."""

    def close(self, leave_s: float = 1.0) -> None:
        """End it and all it started; it has ``leave_s`` to leave by itself."""


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """How long a fresh process takes: ``start_s`` until it is ready, ``sequence_s`` a sequence.

    ``repeats`` is False for a program, which ends after one sequence; its start is part of it.
    """

    start_s: float
    sequence_s: float
    repeats: bool

    def process_s(self, seconds: float) -> float:
        """Return how long a process takes that is to generate for ``seconds``.

        At least one whole sequence is generated, after two of at most 32 tokens to warm up.
        """
        if not self.repeats:
            return self.sequence_s
        return self.start_s + max(seconds, self.sequence_s)


def warm_up_for_block(process: EngineProcess, workload: Workload, block_s: float) -> int:
    """Warm the process up; return how many sequences fill about ``block_s``."""
    return max(1, math.floor(block_s / measure_sequence_s(process, workload)))


def measure_sequence_s(process: EngineProcess, workload: Workload) -> float:
    """Warm the process up; return how long a whole sequence takes, by one of 32 tokens."""
    process.warm_up(WARM_TOKENS)
    began = time.monotonic()
    process.warm_up(WARM_TOKENS)
    took_s = max(time.monotonic() - began, 1e-6)
    return took_s * max(1.0, workload.max_tokens / WARM_TOKENS)


def check_token_count(workload: Workload, count: int) -> None:
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


def check_output_size(workload: Workload, child: process.Child) -> None:
    """Refuse a process that floods its output."""
    if child.output_bytes() > OUTPUT_LIMIT_BYTES:
        raise output_flood_error(workload)


def output_flood_error(workload: Workload) -> ToolError:
    """Return the refusal of output that has no end."""
    return ToolError(
        "E_OUTPUT_FLOOD",
        f"The engine of {workload.name!r} wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB of "
        "messages, or a single token of more than 64 KiB.",
        "Turn its logging down, and check that token_unit suits its output.",
    )


def timeout_error(workload: Workload) -> ToolError:
    """Return the refusal of a run that took too long."""
    return ToolError(
        "E_TIMEOUT",
        f"A process of {workload.name!r} did not finish within {workload.timeout_s:g} s.",
        "Raise timeout (seconds) of the workload, or ask for fewer tokens.",
    )


def engine_died_error(workload: Workload, status: int | None, stderr: str) -> ToolError:
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


def engine_changed_error(workload: Workload) -> ToolError:
    """Return the refusal of an engine that is another one than a process before."""
    return ToolError(
        "E_ENGINE_CHANGED",
        f"The engine of {workload.name!r} was replaced while it was measured.",
        "Leave the environment alone while it is measured, and run it again.",
    )


def read_child_error(text: str) -> FlamegateError:
    """Return the refusal that a process itself told in ``text``, as JSON."""
    failure: dict[str, Any] = json.loads(text)
    kind = UsageError if failure["usage"] else ToolError
    return kind(failure["code"], failure["what"], failure["remedy"])

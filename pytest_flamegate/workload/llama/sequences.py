"""What is refused of one sequence, and which of many sequences is told about."""

from __future__ import annotations

from statistics import median_low
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

Figures = dict[str, float]


def context_full(prompt_tokens: int, max_tokens: int, context: int) -> ToolError:
    """Return the refusal of a prompt and an answer that do not fit."""
    return ToolError(
        "E_CONTEXT_FULL",
        f"A prompt of {prompt_tokens} tokens and {max_tokens} more do not fit into a context of "
        f"{context} tokens.",
        "Say a larger context in the workload, up to what the model was made for, or ask for less.",
    )


def no_prompt() -> ToolError:
    """Return the refusal of a prompt of no tokens."""
    return ToolError(
        "E_BAD_PROMPT",
        "The model's tokenizer makes no token of the prompt.",
        "Give it something to go on with.",
    )


def disagree(what: str, seen: int, told: int) -> ToolError:
    """Return the refusal of two counts of the same thing."""
    return ToolError(
        "E_SOURCES_DISAGREE",
        f"llama.cpp says {told} {what}, and {seen} came.",
        "Run it by itself with the same prompt, and report this with the library's version.",
    )


class Ledger:
    """Keeps what an engine's own clocks say of the sequences of one block."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: list[Figures] = []

    def add(self, figures: Figures) -> None:
        """Keep the figures of one sequence; ``decode_ms`` is among them."""
        self._kept.append(figures)

    def drained(self, kernels: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
        """Return one report and forget: thousands of short sequences would fill the evidence.

        It is of one sequence, the one with the (lower) median time of decode.
        """
        if not self._kept:
            return []
        middle = median_low(each["decode_ms"] for each in self._kept)
        chosen = next(each for each in self._kept if each["decode_ms"] == middle)
        self._kept = []
        return [{"source": self._source, "figures": chosen, "kernels": dict(kernels or {})}]

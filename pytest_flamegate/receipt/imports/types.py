"""What is read out of a foreign result: figures, each with the formula behind it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.receipt.types import Direction

Statistic = Literal["mean", "median", "p90", "p95", "p99", "total"]
"""Of the values of all requests or repetitions; ``total``: one ratio over the whole run."""
Setting = str | int | float | bool

_MS: tuple[str, Direction] = ("ms", "lower_is_better")
_TOKENS: tuple[str, Direction] = ("tokens/s", "higher_is_better")

NAMES: Mapping[str, tuple[str, Direction]] = MappingProxyType(
    {
        "time_to_first_token_ms": _MS,
        "time_per_output_token_ms": _MS,
        "inter_token_latency_ms": _MS,
        "inter_chunk_latency_ms": _MS,
        "normalized_time_per_output_token_ms": _MS,
        "request_latency_ms": _MS,
        "batch_latency_ms": _MS,
        "prefill_tokens_per_second": _TOKENS,
        "decode_tokens_per_second": _TOKENS,
        "output_tokens_per_second": _TOKENS,
        "output_tokens_per_second_per_user": _TOKENS,
        "total_tokens_per_second": _TOKENS,
        "requests_per_second": ("requests/s", "higher_is_better"),
    }
)
"""Every name of an imported figure, with its unit and direction."""


@dataclass(frozen=True, slots=True)
class ImportedMetric:
    """One figure as a tool tells it, in our unit, with the formula that this tool means by it.

    ``field`` is where it stands in the tool's file. ``samples`` counts the requests, tokens or
    repetitions behind it, ``stddev`` is their standard deviation in the same unit; None where
    the file does not tell.
    """

    name: str
    value: float
    unit: str
    direction: Direction
    formula: str
    statistic: Statistic
    field: str
    samples: int | None = None
    stddev: float | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure of the file that was not taken, and why."""

    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Imported:
    """One result of a foreign tool; a file may hold many.

    ``result`` is its name within the file. ``tool_version`` and ``model`` are empty where the
    file does not tell. ``settings`` are what the tool says it ran with, as it says it.
    """

    result: str
    tool: str
    tool_version: str
    model: str
    settings: Mapping[str, Setting]
    metrics: tuple[ImportedMetric, ...]
    left_out: tuple[LeftOut, ...] = ()

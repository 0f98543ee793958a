"""``imported.json``: one result of another benchmark tool, and the file that it comes from.

It cannot be taken for a receipt: ``kind`` says what it is, and its grade is SELF_REPORTED whatever
other files it has next to it.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

from pytest_flamegate.core.json import (
    RECEIPT_LIMITS,
    Count,
    NonEmpty,
    Sha256,
    Timestamp,
    decode_json,
    encode_json,
)
from pytest_flamegate.receipt.types import SCHEMA_VERSION, Direction

KIND: Final = "imported"

Statistic = Literal["mean", "median", "p90", "p95", "p99", "total"]
"""Of the values of all requests or repetitions; ``total`` is one ratio over the whole run."""
Setting = str | int | float | bool
Name = Literal[
    "time_to_first_token_ms",
    "time_per_output_token_ms",
    "inter_token_latency_ms",
    "inter_chunk_latency_ms",
    "normalized_time_per_output_token_ms",
    "request_latency_ms",
    "batch_latency_ms",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "output_tokens_per_second",
    "output_tokens_per_second_per_user",
    "total_tokens_per_second",
    "requests_per_second",
]
"""The names of imported figures. Their ending gives unit and direction, see ``unit_of``."""
Unit = Literal["ms", "tokens/s", "requests/s"]


def unit_of(name: Name) -> tuple[Unit, Direction]:
    """Return the unit of a figure, and which direction is better."""
    if name.endswith("_ms"):
        return "ms", "lower_is_better"
    return "requests/s" if name.startswith("requests") else "tokens/s", "higher_is_better"


@dataclass(frozen=True, slots=True)
class ImportedMetric:
    """One figure in flamegate's unit, with the formula that its tool uses.

    ``field`` is the path of the figure in the tool's file. ``samples`` counts the requests, tokens
    or repetitions behind it, and ``stddev`` is their standard deviation in the same unit; both
    are None if the file does not state them.
    """

    name: Name
    value: Annotated[float, Meta(gt=0)]
    unit: Unit
    direction: Direction
    formula: NonEmpty
    statistic: Statistic
    field: NonEmpty
    samples: Count | None
    stddev: Annotated[float, Meta(ge=0)] | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure of the file that was not imported, and why."""

    field: NonEmpty
    reason: NonEmpty


@dataclass(frozen=True, slots=True)
class Imported:
    """One result of another tool; a file may contain many.

    ``result`` is its name within the file. ``tool_version`` and ``model`` are empty if the file
    does not state them. ``settings`` are those that the tool reports, in its own words.
    """

    result: NonEmpty
    tool: NonEmpty
    tool_version: str
    model: str
    settings: Mapping[str, Setting]
    metrics: Annotated[tuple[ImportedMetric, ...], Meta(min_length=1)]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportSource:
    """The file that a result was read from: name, format, digest, and when it was imported."""

    file: NonEmpty
    format: NonEmpty
    sha256: Sha256
    imported: Timestamp


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The content of ``imported.json``."""

    kind: Literal["imported"]
    schema_version: str
    grade: Literal["SELF_REPORTED"]
    source: ImportSource
    result: Imported


def encode_imported(result: Imported, source: ImportSource) -> bytes:
    """Return the bytes of ``imported.json``."""
    return encode_json(ImportedFile(KIND, SCHEMA_VERSION, "SELF_REPORTED", source, result))


def decode_imported(data: bytes) -> tuple[Imported, ImportSource]:
    """Return what ``imported.json`` contains; ReceiptError ``E_IMPORTED_SCHEMA`` or ``E_JSON_``."""
    found = decode_json(
        data, ImportedFile, RECEIPT_LIMITS, subject="The imported result", code="E_IMPORTED_SCHEMA"
    )
    return found.result, found.source


def is_imported(document: object) -> bool:
    """Whether a parsed document is an imported result, or claims to be one."""
    return isinstance(document, dict) and document.get("kind") == KIND

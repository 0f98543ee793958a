"""Bytes of a result file as plain data: JSON, one document a line, and tables of text."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NoReturn

from pytest_flamegate.core import json_old
from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.text import Refusal, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_flamegate.receipt.types import Direction


MAX_BYTES = 64 << 20
"""Of a result file: a report with every request of a long run has some ten million."""
MAX_RESULTS = 1000
_SNIFFED = 1 << 14
_EXPORT = "Give the file as the tool wrote it, or export it again."


def says(data: bytes, *marks: bytes) -> bool:
    """Whether ``data`` is JSON in which every one of ``marks`` stands."""
    return data.lstrip()[:1] in (b"{", b"[") and all(mark in data for mark in marks)


def documents(data: bytes) -> list[object]:
    """Return the JSON documents in ``data``: a list's entries, one document, or one a line.

    ReceiptError ``E_TOO_LARGE``, or ``E_JSON_...`` for what is no strict JSON: NaN among it.
    """
    bounded(data)
    first = json_old.parse(data, max_bytes=MAX_BYTES)
    if not isinstance(first, Refusal):
        return _counted(first if isinstance(first, list) else [first])
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) < 2 or first.code != "E_JSON_SYNTAX" or not _is_whole(lines[0]):
        raise ReceiptError(first.code, f"The file cannot be read. {first.message}", _EXPORT)
    _counted(lines)
    return [json_old.loads(line, max_bytes=MAX_BYTES) for line in lines]


def _is_whole(line: bytes) -> bool:
    return not isinstance(json_old.parse(line, max_bytes=MAX_BYTES), Refusal)


def bounded(data: bytes) -> bytes:
    """Return ``data``; ReceiptError ``E_TOO_LARGE`` where no result file is as large."""
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The result file has more than the {MAX_BYTES:,} bytes allowed.",
            "Export it without the single requests.",
        )
    return data


def first_line(data: bytes) -> str:
    """Return the first line that is not empty, of text that may be anything."""
    lines = data[:_SNIFFED].lstrip().splitlines()
    return lines[0].decode("utf-8", "replace") if lines else ""


def decoded(data: bytes) -> str:
    """Return ``data`` as text without a byte order mark; ReceiptError where it is not UTF-8."""
    try:
        return bounded(data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReceiptError(
            "E_NOT_TEXT", f"The file is not UTF-8: byte {error.start} cannot be decoded.", _EXPORT
        ) from None


def delimiter_of(header: str) -> str:
    """Return what separates the columns of ``header``: a comma, semicolon or tab."""
    return max(",;\t", key=header.count)


def csv_rows(data: bytes) -> Iterator[list[str]]:
    """Yield the rows of comma, semicolon or tab separated ``data`` but for empty ones."""
    content = io.StringIO(decoded(data), newline="")
    try:
        for row in csv.reader(content, delimiter=delimiter_of(first_line(data)), strict=True):
            if row:
                yield row
    except csv.Error as error:
        raise ReceiptError("E_CSV", f"The table cannot be read: {error}.", _EXPORT) from None


def table(rows: Iterator[list[str]]) -> list[dict[str, str]]:
    """Return each row by the names of the first; ReceiptError where a row is of another length."""
    header = [cell.strip() for cell in next(rows, [])]
    if len(set(header)) != len(header):
        raise ReceiptError("E_CSV", "Two columns of the table have one name.", _EXPORT)
    found: list[dict[str, str]] = []
    for index, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ReceiptError(
                "E_CSV",
                f"Row {index} of the table has {len(row)} cells and its header {len(header)}: "
                "it is cut off, or its cells are separated by something else.",
                _EXPORT,
            )
        found.append(dict(zip(header, row, strict=True)))
        if len(found) > MAX_RESULTS:
            break
    _counted(found)
    return found


def unique(names: Sequence[str]) -> list[str]:
    """Return ``names`` with ``-2``, ``-3`` ... behind those that stood before."""
    counts: dict[str, int] = {}
    # A name may end in a number itself.
    taken = set(names)
    found = []
    for name in names:
        count = counts.get(name, 0) + 1
        given = name
        while count > 1 and given in taken:
            given = f"{name}-{count}"
            count += given in taken
        counts[name] = count
        taken.add(given)
        found.append(given)
    return found


def plain_name(name: str, fallback: str) -> str:
    """Return ``name`` as a file may be called: letters, digits, dots, dashes, underscores."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in name[:60])
    return "-".join(part for part in kept.split("-") if part) or fallback


def _counted(found: list[object] | list[bytes] | list[dict[str, str]]) -> list[object]:
    if not found:
        raise UndecidedError(
            "E_NO_RESULTS", "The file holds no result.", "Let the benchmark run to its end."
        )
    if len(found) > MAX_RESULTS:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The file holds more than the {MAX_RESULTS:,} results allowed.",
            "Give it in parts.",
        )
    return list(found)


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


MAX_TEXT = 200
"""Characters of a setting or a name that are kept."""
MOST = 1 << 53
"""Of whatever is counted: from here on a number as it is read may not be the one written."""
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,20}|\d{1,3}(?:,\d{3}){1,6})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?"
)
_NOT_TOLD = frozenset({"", "N/A", "n/a", "-"})
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Gatherer:
    """Collects the figures of one result of ``tool``, whose field names start with ``prefix``."""

    def __init__(self, tool: str, prefix: str = "") -> None:
        self.tool = tool
        self.prefix = prefix
        self.metrics: list[ImportedMetric] = []
        self.left_out: list[LeftOut] = []

    def add(
        self,
        name: str,
        value: object,
        formula: str,
        statistic: Statistic,
        field: str,
        *,
        scale: float = 1.0,
        samples: int | None = None,
        stddev: object = None,
    ) -> None:
        """Take one figure, times ``scale``; None is one that the tool does not tell.

        A nought is left out with its reason: no time is none, and no rate was measured. Raises
        ReceiptError ``E_NOT_FINITE``, ``E_NEGATIVE`` or ``E_IMPORT_FIELD`` for what is no figure.
        """
        place = self.prefix + field
        found = number(value, self.tool, place)
        if found is None:
            return
        if found == 0:
            self.left_out.append(LeftOut(place, "it is 0, so nothing was measured"))
            return
        spread_of = f"the spread of {place}"
        spread = number(stddev, self.tool, spread_of)
        scaled = found * scale
        if not math.isfinite(scaled):
            _refuse_not_finite(self.tool, place, value)
        if spread is not None and not math.isfinite(spread * scale):
            _refuse_not_finite(self.tool, spread_of, stddev)
        unit, direction = NAMES[name]
        self.metrics.append(
            ImportedMetric(
                name=name,
                value=scaled,
                unit=unit,
                direction=direction,
                formula=formula,
                statistic=statistic,
                field=place,
                samples=samples,
                stddev=None if spread is None else spread * scale,
            )
        )

    def imported(
        self, result: str, *, version: str, model: str, settings: Mapping[str, Setting]
    ) -> Imported:
        """Return the result; UndecidedError ``E_NO_FIGURES`` where it holds no figure at all."""
        if not self.metrics:
            raise UndecidedError(
                "E_NO_FIGURES",
                f"The result {quote(result)} of {self.tool} holds no figure that can be compared.",
                "Run the benchmark again, with requests that succeed and streaming switched on.",
            )
        return Imported(
            result=result,
            tool=self.tool,
            tool_version=version[:MAX_TEXT],
            model=model[:MAX_TEXT],
            settings=settings,
            metrics=tuple(self.metrics),
            left_out=tuple(self.left_out),
        )


def number(value: object, tool: str, field: str) -> float | None:
    """Return the finite figure of 0 or more that ``value`` is, None where none is told.

    Text is read as a decimal number, thousands separated by commas or not at all.
    """
    if isinstance(value, str):
        text = value.strip()
        if text in _NOT_TOLD:
            return None
        if _NOT_FINITE.fullmatch(text):
            _refuse_not_finite(tool, field, value)
        if not _NUMBER.fullmatch(text):
            raise malformed(tool, f"{field} must be a number, and is {quote(value)}.")
        found = float(text.replace(",", ""))
    elif value is None:
        return None
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed(tool, f"{field} must be a number, and is {quote(value)}.")
    else:
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
    if not math.isfinite(found):
        _refuse_not_finite(tool, field, value)
    if found < 0:
        raise ReceiptError(
            "E_NEGATIVE",
            f"{tool}'s {quote(field)} is {quote(value)}, and no time, rate or count is negative.",
            "Run the benchmark again, with the clock of one machine.",
        )
    return found


def whole(value: object, tool: str, field: str) -> int | None:
    """Return the whole number below ``MOST`` that ``value`` is, None where none is told."""
    found = number(value, tool, field)
    if found is None:
        return None
    if found >= MOST or found != int(found):
        raise malformed(
            tool, f"{field} must be a whole number below {MOST:,}, and is {quote(value)}."
        )
    return int(found)


def requests(value: object, tool: str, field: str) -> int | None:
    """Return how many requests succeeded; UndecidedError ``E_NO_REQUESTS`` where none did."""
    found = whole(value, tool, field)
    if found == 0:
        raise UndecidedError(
            "E_NO_REQUESTS",
            f"{tool} says that no request succeeded ({field} is 0).",
            "See what the server answered, and run the benchmark again.",
        )
    return found


def settings_of(found: Mapping[str, object], names: Iterable[str]) -> dict[str, Setting]:
    """Return those of ``names`` that ``found`` tells as text, a number or yes and no."""
    kept: dict[str, Setting] = {}
    for name in names:
        value = found.get(name)
        if isinstance(value, str):
            kept[name] = value[:MAX_TEXT]
        elif isinstance(value, (bool, int, float)):
            kept[name] = value
    return kept


def text(value: object) -> str:
    """Return ``value`` where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def object_in(value: object, tool: str, field: str) -> Mapping[str, object]:
    """Return the object that ``value`` is; ReceiptError ``E_IMPORT_FIELD`` for another thing."""
    if not isinstance(value, dict):
        raise malformed(tool, f"{field} must be an object, and is {quote(value)}.")
    return value


def malformed(tool: str, complaint: str) -> ReceiptError:
    """Return the refusal of a file that is not as ``tool`` writes it."""
    return ReceiptError(
        "E_IMPORT_FIELD",
        f"The file is not as {tool} writes it: {complaint}",
        "Give the file as the tool wrote it, or export it again.",
    )


def _refuse_not_finite(tool: str, field: str, value: object) -> NoReturn:
    told = quote(value) if isinstance(value, str) else "out of range"
    raise ReceiptError(
        "E_NOT_FINITE",
        f"{tool}'s {quote(field)} is {told}, and no figure.",
        "Run the benchmark again, with requests of more than one token.",
    )

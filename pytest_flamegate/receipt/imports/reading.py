"""Bytes of a result file as plain data: JSON, one document a line, and tables of text."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError, UndecidedError
from pytest_flamegate.receipt import strict_json
from pytest_flamegate.receipt.findings import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    first = strict_json.parse(data, max_bytes=MAX_BYTES)
    if not isinstance(first, Refusal):
        return _counted(first if isinstance(first, list) else [first])
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) < 2 or first.code != "E_JSON_SYNTAX" or not _is_whole(lines[0]):
        raise ReceiptError(first.code, f"The file cannot be read. {first.message}", _EXPORT)
    _counted(lines)
    return [strict_json.loads(line, max_bytes=MAX_BYTES) for line in lines]


def _is_whole(line: bytes) -> bool:
    return not isinstance(strict_json.parse(line, max_bytes=MAX_BYTES), Refusal)


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

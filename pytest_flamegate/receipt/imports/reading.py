"""Bytes of a result file as plain data: JSON, JSON lines, and tables of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.json import Limits, parse_json

MAX_BYTES = 64 << 20
"""A report that lists every request of a long run has some ten million bytes."""
MAX_RESULTS = 1000
_SNIFFED_BYTES = 1 << 14
_EXPORT = "Give the file as the tool wrote it, or export it again."


def malformed_error(problem: str) -> ReceiptError:
    """Return the error for a file that is not as its tool writes it."""
    return ReceiptError("E_IMPORT_MALFORMED", f"The result file is malformed: {problem}.", _EXPORT)


def no_results_error(problem: str, remedy: str = "Let the benchmark run to its end.") -> Exception:
    """Return the error for a file without any figure."""
    return UndecidedError("E_NO_RESULTS", f"The file has no result: {problem}.", remedy)


def contains(data: bytes, *marks: bytes) -> bool:
    """Whether ``data`` looks like JSON and contains all of ``marks``."""
    return data.lstrip()[:1] in (b"{", b"[") and all(mark in data for mark in marks)


def read_documents(data: bytes) -> list[object]:
    """Return the JSON documents in ``data``: the entries of a list, one document, or one a line.

    Raises:
        ReceiptError: ``E_TOO_LARGE``, or ``E_JSON_...`` if it is no strict JSON.
    """
    limits = Limits(len(_require_size(data)))
    try:
        whole = parse_json(data, limits, subject="The result file")
    except ReceiptError as error:
        lines = [line for line in data.splitlines() if line.strip()]
        if error.code != "E_JSON_SYNTAX" or len(lines) < 2 or not _is_json(lines[0], limits):
            raise
        _require_count(lines)
        return [parse_json(line, limits, subject="A line of the file") for line in lines]
    return _require_count(whole if isinstance(whole, list) else [whole])


def _is_json(line: bytes, limits: Limits) -> bool:
    try:
        parse_json(line, limits)
    except ReceiptError:
        return False
    return True


def read_text(data: bytes) -> str:
    """Return ``data`` as text without a byte order mark; ReceiptError if it is not UTF-8."""
    try:
        return _require_size(data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed_error(f"byte {error.start} is not UTF-8") from None


def read_first_line(data: bytes) -> str:
    """Return the first line that is not empty, of text that may be anything."""
    lines = data[:_SNIFFED_BYTES].lstrip().splitlines()
    return lines[0].decode("utf-8", "replace").removeprefix("\ufeff") if lines else ""


def split_header(data: bytes) -> list[str]:
    """Return the cells of the first line, as of a table."""
    header = read_first_line(data)
    return [cell.strip().strip('"') for cell in header.split(_delimiter(header))]


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def read_rows(data: bytes) -> Iterator[list[str]]:
    """Yield the non-empty rows of comma, semicolon or tab separated ``data``."""
    content = io.StringIO(read_text(data), newline="")
    delimiter = _delimiter(read_first_line(data))
    try:
        yield from (row for row in csv.reader(content, delimiter=delimiter, strict=True) if row)
    except csv.Error as error:
        raise malformed_error(f"the table cannot be read ({error})") from None


def name_cells(header: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """Return the cells of ``row`` by the names of its header; ReceiptError if they do not fit."""
    if len(set(header)) != len(header):
        raise malformed_error("two columns of the table have one name")
    if len(row) != len(header):
        raise malformed_error(
            f"a row of the table has {len(row)} cells, but its header has {len(header)}"
        )
    return dict(zip(header, row, strict=True))


def read_table(data: bytes) -> list[Mapping[str, object]]:
    """Return each row of a table by the names of the first row."""
    rows = read_rows(data)
    header = [cell.strip() for cell in next(rows, [])]
    found: list[Mapping[str, object]] = []
    for row in rows:
        found.append(name_cells(header, row))
        if len(found) > MAX_RESULTS:
            break
    _require_count(found)
    return found


def unique_names(names: Sequence[str]) -> list[str]:
    """Return ``names``, with ``-2``, ``-3`` ... after those that occurred before."""
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


def file_name(name: str, fallback: str) -> str:
    """Return ``name`` as a file may be called: letters, digits and dashes."""
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in name[:60])
    return "-".join(part for part in plain.split("-") if part) or fallback


def _require_size(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The result file has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed.",
            "Export it without the single requests.",
        )
    return data


def _require_count(found: Sequence[object]) -> list[object]:
    if not found:
        raise no_results_error("it is an empty list or table")
    if len(found) > MAX_RESULTS:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The file has more than {MAX_RESULTS:,} results.",
            "Split it into several files.",
        )
    return list(found)

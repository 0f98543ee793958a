"""The values of a foreign file: documents of JSON, rows of tables, and the numbers and texts."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.json_parser import Limits, parse_json
from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports.imported import Setting

MAX_BYTES = 64 << 20
"""A report that lists every request of a long run has some ten million bytes."""
MAX_RESULTS = 1000
_MAX_COLUMNS = 1000
MAX_TABLE_BYTES = 4 << 20
"""A thousand rows of llama-bench's CSV, the widest table, have half a million bytes."""
MAX_TEXT = 200
"""Characters of a setting or a name that are stored."""
MAX_COUNT = 1 << 53
"""A larger number may not be the one that was written, once it is read."""


def malformed_error(problem: str) -> ReceiptError:
    """Return the error for a file that is not as its tool writes it."""
    return ReceiptError("E_IMPORT_MALFORMED", f"The result file is malformed: {problem}.")


def no_results_error(problem: str, remedy: str) -> Exception:
    """Return the error for a file without any figure."""
    return UndecidedError("E_NO_RESULTS", f"The file has no result: {problem}.", remedy)


def read_documents(data: bytes) -> list[Mapping[str, object]]:
    """Return the objects in ``data``: the entries of a list, one object, or one a line."""
    limits = Limits(len(_require_size(data, MAX_BYTES)))
    try:
        whole = parse_json(data, limits, subject="The result file")
        found = whole if isinstance(whole, list) else [whole]
    except ReceiptError as error:
        lines = [line for line in data.splitlines() if line.strip()]
        if error.code != "E_JSON_SYNTAX" or len(lines) < 2:
            raise
        try:
            found = [parse_json(line, limits) for line in lines]
        except ReceiptError:
            raise error from None
    _require_few(found)
    return [require_object(each, "a result") for each in found]


Form = Literal["json", "csv", "markdown"]
_SNIFFED_BYTES = 1 << 14
_RULE = re.compile(r":?-+:?")


def is_table(data: bytes, form: Form, columns: frozenset[str]) -> bool:
    """Whether ``data`` begins with a table of this form that has all ``columns``."""
    text = data[:_SNIFFED_BYTES].decode("utf-8-sig", "replace")
    try:
        return any(columns <= set(cells) for cells in _split_rows(text, form))
    except ReceiptError:
        return False


def read_table(data: bytes, form: Form, columns: frozenset[str]) -> list[dict[str, str]]:
    """Return each row by the names of its header, which is any row with all ``columns``."""
    try:
        text = _require_size(data, MAX_TABLE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed_error(f"byte {error.start} is not UTF-8") from None
    rows = list(islice(_name_cells(_split_rows(text, form), columns), MAX_RESULTS + 1))
    _require_few(rows)
    return rows


def _split_rows(text: str, form: Form) -> Iterator[list[str]]:
    """Yield the cells of each line; none if it is no row of a table."""
    lines = io.StringIO(text, newline="")
    if form == "csv":
        try:
            yield from csv.reader(lines, strict=True)
        except csv.Error as error:
            raise malformed_error(f"the table cannot be read ({error})") from None
    for line in map(str.strip, lines):
        # A line of nothing but bars would make many cells of few bytes.
        is_row = len(line) > 1 and line[0] == line[-1] == "|" and line.count("|") <= _MAX_COLUMNS
        cells = [cell.strip() for cell in line[1:-1].split("|")] if is_row else []
        yield [] if all(map(_RULE.fullmatch, cells)) else cells


def _name_cells(rows: Iterable[list[str]], columns: frozenset[str]) -> Iterator[dict[str, str]]:
    header: list[str] = []
    for row in rows:
        if columns <= set(row):
            header = row
            if len(set(header)) != len(header):
                raise malformed_error("two columns of the table have one name")
        elif header and row:
            if len(row) != len(header):
                raise malformed_error(
                    f"a row has {len(row)} cells, but the header of the table has {len(header)}"
                )
            yield dict(zip(header, row, strict=True))


def _require_size(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The result file has {len(data):,} bytes; at most {limit:,} are allowed.",
            "Export it without the single requests.",
        )
    return data


def _require_few(results: Sequence[object]) -> None:
    if len(results) > MAX_RESULTS:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The file has more than {MAX_RESULTS:,} results.",
            "Split it into several files.",
        )


def find(document: object, path: str) -> object:
    """Return the value at ``path``; None if it is not stated or ``path`` is empty."""
    at = ""
    for name in path.split(".") if path else [""]:
        if document is None or not path:
            return None
        document = require_object(document, at or "the result").get(name)
        at = f"{at}.{name}".removeprefix(".")
    return document


def look_up(value: object, path: str) -> object:
    """Return the value at ``path``, in which numbers are places of a list; None if none is."""
    for name in path.split("."):
        if isinstance(value, list) and value and name == "0":
            value = value[0]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def first_text(document: object, paths: Iterable[str]) -> str:
    """Return the first text at one of ``paths``; "" if there is none."""
    found = (look_up(document, path) for path in paths)
    return next((text for text in found if isinstance(text, str)), "")


def read_settings(document: object, paths: Iterable[str]) -> dict[str, Setting]:
    """Return the text, numbers and booleans at ``paths``, by the last name of each."""
    return {
        path.rpartition(".")[2]: value[:MAX_TEXT] if isinstance(value, str) else value
        for path in paths
        if isinstance(value := look_up(document, path), (str, bool, int, float))
    }


def require_object(value: object, field: str) -> Mapping[str, object]:
    """Return ``value`` if it is an object; ReceiptError ``E_IMPORT_MALFORMED`` if not."""
    if not isinstance(value, dict):
        raise malformed_error(f"{field} must be an object, and is {quote(value)}")
    return value


def read_number(value: object, field: str) -> float | None:
    """Return a finite number from 0 on; None if it is not stated."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise malformed_error(f"{quote(field)} must be a number, and is {quote(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise malformed_error(f"{quote(field)} must be finite and not negative: {quote(value)}")
    return number


def read_count(value: object, field: str) -> int | None:
    """Return a whole number below 2^53; None if it is not stated."""
    found = read_number(value, field)
    if found is not None and (found >= MAX_COUNT or found != int(found)):
        raise malformed_error(f"{quote(field)} must be a whole number, and is {quote(value)}")
    return None if found is None else int(found)


def unique_names(names: Sequence[str]) -> list[str]:
    """Return ``names``, with ``-2``, ``-3`` ... after those that occurred before."""
    found: dict[str, None] = {}
    counts, taken = Counter[str](), set(names)
    for name in names:
        given = name
        # A name may end in a number itself.
        while given in found or (given != name and given in taken):
            counts[name] += 1
            given = f"{name}-{counts[name] + 1}"
        found[given] = None
    return list(found)

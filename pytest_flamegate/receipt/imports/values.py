"""The values of a foreign JSON file: its documents, and numbers and texts in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.core.json import Limits, parse_json
from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports.imported import Setting

MAX_BYTES = 64 << 20
"""A report that lists every request of a long run has some ten million bytes."""
MAX_RESULTS = 1000
MAX_TEXT = 200
"""Characters of a setting or a name that are stored."""
MAX_COUNT = 1 << 53
"""A larger number may not be the one that was written, once it is read."""


def malformed_error(problem: str) -> ReceiptError:
    """Return the error for a file that is not as its tool writes it."""
    return ReceiptError(
        "E_IMPORT_MALFORMED",
        f"The result file is malformed: {problem}.",
        "Give the file as the tool wrote it, or export it again.",
    )


def no_results_error(problem: str, remedy: str) -> Exception:
    """Return the error for a file without any figure."""
    return UndecidedError("E_NO_RESULTS", f"The file has no result: {problem}.", remedy)


def read_documents(data: bytes) -> list[Mapping[str, object]]:
    """Return the objects in ``data``: the entries of a list, one object, or one a line.

    Raises:
        ReceiptError: ``E_TOO_LARGE``, ``E_IMPORT_MALFORMED``, or ``E_JSON_...`` if it is no
            strict JSON.
    """
    if len(data) > MAX_BYTES:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The result file has {len(data):,} bytes; at most {MAX_BYTES:,} are allowed.",
            "Export it without the single requests.",
        )
    limits = Limits(len(data))
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
    if len(found) > MAX_RESULTS:
        raise ReceiptError(
            "E_TOO_LARGE",
            f"The file has more than {MAX_RESULTS:,} results.",
            "Split it into several files.",
        )
    return [require_object(each, "a result") for each in found]


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

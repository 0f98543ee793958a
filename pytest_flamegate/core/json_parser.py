"""Parse JSON that any program may have written, with one meaning, bounded work and coded errors."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.files import MAX_BYTES
from pytest_flamegate.core.text import quote


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a document may be, checked before anything is built from it.

    Attributes:
        max_bytes: Size of the file.
        max_containers: Objects and lists together; None for as many as fit.
        max_commas: Values that follow another one in their object or list; None likewise.
    """

    max_bytes: int
    max_containers: int | None = None
    max_commas: int | None = None


MIB = 1 << 20
SMALL_LIMITS = Limits(1 * MIB)
RECEIPT_LIMITS = Limits(1 * MIB, max_containers=512, max_commas=12_000)
"""Several rules inspect every value of a receipt: ten thousand kernels, and two thousand others."""
EVIDENCE_LIMITS = Limits(MAX_BYTES, max_containers=1 << 20)
"""A list for each sequence, and some tens of objects for each run."""

MAX_DEPTH = 64
"""Objects and lists within one another."""
MAX_NUMBER_CHARACTERS = 64

# Only these bytes outside of strings decide how a document is built.
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}:,"')
_NOT_BRACKETS = b":,"
_ALIKE = bytes.maketrans(b"{}", b"[]")
_NUMBER_AS_ZERO = bytes(0 if byte in b"0123456789+-.eE" else 1 for byte in range(256))
_LONG_NUMBER = bytes(MAX_NUMBER_CHARACTERS + 1)
_LONG_NUMBER_OUTSIDE = re.compile(rb"(?:\A|[:,\[\s])[-0-9][-+.eE0-9]{%d}" % MAX_NUMBER_CHARACTERS)


class _ParseError(Exception):
    """Carries code and problem out of the parser's callbacks; the file's name is added there."""


def parse_json(data: bytes, limits: Limits = SMALL_LIMITS, *, subject: str = "The document") -> Any:
    """Parse bytes into dict, list, str, int, finite float, bool and None.

    An error calls the file ``subject``, such as ``The evidence``. Raises ``ReceiptError``, whose
    code starts with ``E_JSON_``.
    """
    try:
        return _parse(data, limits)
    except _ParseError as error:
        code, problem = error.args
        raise ReceiptError(code, f"{subject} {problem}.") from None


def find_table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object called ``name``; empty if there is none."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def find_number(fields: Mapping[str, Any], *names: str) -> float | None:
    """Return the first finite number among the fields ``names``; None if there is none."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:  # an integer too large for a float
            continue
    return None


def _parse(data: bytes, limits: Limits) -> Any:
    if len(data) > limits.max_bytes:
        raise _ParseError(
            "E_JSON_SIZE", f"has {len(data):,} bytes; at most {limits.max_bytes:,} are allowed"
        )
    structure = _structure(data)
    is_shallow = _is_shallow(structure)
    _check_size(structure, is_shallow, limits)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _ParseError(
            "E_JSON_ENCODING", f"is not UTF-8: byte {error.start} cannot be decoded"
        ) from None
    # The translation is fast; the search is for the rare document in which it finds something.
    has_long_number = _LONG_NUMBER in data.translate(_NUMBER_AS_ZERO) and (
        _LONG_NUMBER_OUTSIDE.search(data) is not None
    )
    if is_shallow and not has_long_number:
        try:
            document = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            pass
        else:
            # msgspec keeps the last of two equal keys: then fewer keys are left than were read.
            if structure.count(b":") == _structure(msgspec.json.encode(document)).count(b":"):
                return document
    # If the fast parser rejects the document, the standard one gives the reason.
    document = _parse_with_reasons(text)
    if not is_shallow:
        raise _too_deep()
    return document


def _structure(data: bytes) -> bytes:
    """Return the brackets, commas and colons of ``data`` that stand outside of strings."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A string without such characters leaves two quotes, which go. Of the few others every second
    # piece is outside; splitting at every quote would take thirty times a hostile file's size.
    quoted = data.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    return b"".join(quoted.split(b'"')[::2])


def _is_shallow(structure: bytes) -> bool:
    brackets = structure.translate(_ALIKE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    return not brackets


def _check_size(structure: bytes, is_shallow: bool, limits: Limits) -> None:
    most = limits.max_containers
    if most is not None and structure.count(b"[") + structure.count(b"{") > most:
        if not is_shallow:
            raise _too_deep()
        raise _ParseError("E_JSON_SIZE", f"has more than the {most:,} objects and lists allowed")
    most = limits.max_commas
    if most is not None and structure.count(b",") > most:
        raise _ParseError("E_JSON_SIZE", f"holds more than {most:,} values")


def _parse_with_reasons(text: str) -> Any:
    if text.startswith("\ufeff"):
        raise _ParseError("E_JSON_ENCODING", "starts with a byte order mark")
    try:
        document = json.loads(  # noqa: TID251 - the strict parser itself
            text,
            object_pairs_hook=_object,
            parse_float=_float,
            parse_int=lambda digits: int(_bounded(digits)),
            parse_constant=_constant,
        )
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise _ParseError("E_JSON_SYNTAX", problem) from None
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.start + 1]
        raise _ParseError(
            "E_JSON_ENCODING", f"holds half a surrogate pair near {quote(near)}"
        ) from None
    return document


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _ParseError("E_JSON_DUPLICATE_KEY", f"has the key {quote(key)} twice in one object")
    return fields


def _float(text: str) -> float:
    value = float(_bounded(text))
    if math.isinf(value):
        raise _ParseError("E_JSON_NUMBER", f"has a number out of range: {quote(text)}")
    return value


def _bounded(text: str) -> str:
    if len(text) > MAX_NUMBER_CHARACTERS:
        most = f"at most {MAX_NUMBER_CHARACTERS} are read"
        raise _ParseError("E_JSON_NUMBER", f"has a number of {len(text):,} characters; {most}")
    return text


def _constant(text: str) -> NoReturn:
    raise _ParseError("E_JSON_NUMBER", f"has {text}, which is no number in JSON")


def _too_deep() -> _ParseError:
    return _ParseError("E_JSON_DEPTH", f"is nested deeper than {MAX_DEPTH} levels")

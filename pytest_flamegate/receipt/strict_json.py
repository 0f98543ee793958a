"""JSON as one document with one meaning: bytes in, a document or a coded refusal out.

The standard parser is lenient where a verifier must not be: it takes duplicate keys,
NaN, 1e999 as infinity, lone surrogates, a byte order mark and UTF-16, and it raises
RecursionError or ValueError on depth and on long digits.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, NoReturn

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt.findings import Refusal, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIB = 1 << 20
RECEIPT_MAX_BYTES = 1 * MIB
EVIDENCE_MAX_BYTES = 64 * MIB
MAX_DEPTH = 64
MAX_NUMBER_CHARACTERS = 64
RECEIPT_MAX_CONTAINERS = 512
"""Objects and lists in a receipt. Several rules look into each; real ones have some tens."""
RECEIPT_MAX_COMMAS = 12_000
"""Commas between its values: ten thousand kernels, and two thousand for all else."""
EVIDENCE_MAX_CONTAINERS = 1 << 20
"""The same for evidence: a list for each sequence, and some tens for each run."""

_BOM = b"\xef\xbb\xbf"
_DIGITS_AS_ZERO = bytes(0 if byte in b"0123456789" else 1 for byte in range(256))
_LONG_DIGITS = bytes(MAX_NUMBER_CHARACTERS + 1)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS_ALIKE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b'[]{}"\\')
_NO_COMMAS = bytes(byte for byte in range(256) if byte not in b',"\\')
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_REGENERATE = "Have the tool that wrote it write it again; do not edit it by hand."


class _RefusedError(Exception):
    """Carries a code and a sentence out of the parser's callbacks."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


def parse(
    data: bytes,
    *,
    max_bytes: int = RECEIPT_MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_containers: int | None = None,
    max_commas: int | None = None,
) -> object | Refusal:
    """Return the document that ``data`` holds, or the Refusal that says why it is none.

    The document is made of dict, list, str, int, finite float, bool and None.
    ``max_containers`` is how many objects and lists it may have, ``max_commas`` how many
    values may follow others in them; None: as many as fit.
    """
    try:
        if len(data) > max_bytes:
            raise _RefusedError(
                "E_JSON_SIZE", f"It has {len(data):,} bytes, more than the {max_bytes:,} allowed."
            )
        if max_containers is not None:
            _check_containers(data, max_containers, max_depth)
        if max_commas is not None and data.count(b",") > max_commas:
            _check_commas(data, max_commas)
        return _parse(data, max_depth)
    except _RefusedError as refused:
        return Refusal(refused.code, refused.message, _REGENERATE)


def loads(data: bytes, *, max_bytes: int = RECEIPT_MAX_BYTES, max_depth: int = MAX_DEPTH) -> object:
    """Return the document that ``data`` holds; ReceiptError where ``parse`` refuses."""
    document = parse(data, max_bytes=max_bytes, max_depth=max_depth)
    if isinstance(document, Refusal):
        raise ReceiptError(document.code, document.message, document.todo)
    return document


def _parse(data: bytes, max_depth: int) -> object:
    if data.startswith(_BOM):
        raise _RefusedError("E_JSON_ENCODING", "It starts with a byte order mark.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _RefusedError(
            "E_JSON_ENCODING", f"It is not UTF-8: byte {error.start} cannot be decoded."
        ) from None
    # A callback for each integer would double the time on long lists of token times, and
    # a regular expression would look 65 times at each digit: so find 65 zeros in a row.
    parse_int = _integer if _LONG_DIGITS in data.translate(_DIGITS_AS_ZERO) else None
    try:
        document = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=_number,
            parse_int=parse_int,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise _RefusedError(
            "E_JSON_SYNTAX",
            f"It is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).",
        ) from None
    except (RecursionError, MemoryError):
        raise _too_deep(max_depth) from None
    if not _is_surely_shallow(data, max_depth):
        _check_depth(document, max_depth)
    if b"\\u" in data and _SURROGATE_ESCAPE.search(data):
        _check_surrogates(document)
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise _RefusedError("E_JSON_DUPLICATE_KEY", f"The key {shown(key)} stands twice in one object.")


def _number(text: str) -> float:
    _check_length(text)
    value = float(text)
    if math.isinf(value):
        raise _RefusedError("E_JSON_NUMBER", f"The number {shown(text)} is out of range.")
    return value


def _integer(text: str) -> int:
    _check_length(text)
    return int(text)


def _check_length(text: str) -> None:
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise _RefusedError(
            "E_JSON_NUMBER",
            f"A number has {len(text):,} characters, more than {MAX_NUMBER_CHARACTERS}.",
        )


def _constant(text: str) -> NoReturn:
    raise _RefusedError("E_JSON_NUMBER", f"{text} is not a number in JSON.")


def _too_deep(max_depth: int) -> _RefusedError:
    return _RefusedError("E_JSON_DEPTH", f"It is nested deeper than {max_depth} levels.")


def _check_containers(data: bytes, max_containers: int, max_depth: int) -> None:
    """Refuse before anything is built: a hundred thousand objects take a second to judge."""
    if data.count(b"[") + data.count(b"{") <= max_containers:
        return
    brackets = _STRING.sub(b"", data).translate(_BRACKETS_ALIKE, _NO_BRACKETS)
    if brackets.count(b"[") > max_containers:
        if b"[" * (max_depth + 1) in brackets:
            raise _too_deep(max_depth)
        raise _RefusedError(
            "E_JSON_SIZE",
            f"It has more than the {max_containers:,} objects and lists allowed.",
        )


def _check_commas(data: bytes, max_commas: int) -> None:
    """Refuse what is looked through value by value, where it would take too long."""
    # Of strings without commas and escapes two quotes are left, which go.
    sparse = data.translate(None, _NO_COMMAS).replace(b'""', b"")
    if b'"' in sparse or b"\\" in sparse:
        sparse = _STRING.sub(b"", data)
    if sparse.count(b",") > max_commas:
        raise _RefusedError(
            "E_JSON_SIZE", f"Its objects and lists hold more than {max_commas:,} values."
        )


def _is_surely_shallow(data: bytes, max_depth: int) -> bool:
    """Say whether the JSON in ``data`` has few levels, from its brackets; False: walk it.

    A string without brackets and escapes leaves two quotes, which go; where a quote is
    left, some bracket may be text. Of the others, each pass takes away the innermost
    level. A walk over every value would take five times as long.
    """
    brackets = data.translate(_BRACKETS_ALIKE, _NO_BRACKETS).replace(b'""', b"")
    if b'"' in brackets or b"\\" in brackets:
        return False
    for _ in range(max_depth):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return True
    return not brackets


def _check_depth(document: object, max_depth: int) -> None:
    level = [document] if isinstance(document, (dict, list)) else []
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise _too_deep(max_depth)
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]


def _check_surrogates(document: object) -> None:
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str) and _has_lone_surrogate(value):
            raise _RefusedError(
                "E_JSON_ENCODING", f"The string {shown(value)} holds half a surrogate pair."
            )


def _has_lone_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def dumps(document: object) -> bytes:
    """Return ``document`` as ASCII JSON bytes: indent 2, fields in their order, one newline.

    The same document gives the same bytes. Lists of plain values stand on one line,
    so that a hundred thousand token times do not make a hundred thousand lines.
    ReceiptError for anything that ``parse`` would refuse: non-finite numbers, lone
    surrogates, other types.
    """
    try:
        return (_encode(document, "") + "\n").encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ReceiptError(
            "E_CANNOT_ENCODE",
            f"The document cannot be written as JSON: {error}.",
            "Give only text, finite numbers, true, false, null, lists and objects of these.",
        ) from error


def _encode(value: object, pad: str) -> str:
    if isinstance(value, dict):
        return _encode_object(value, pad)
    if isinstance(value, (list, tuple)):
        return _encode_list(value, pad)
    return _encode_scalar(value)


def _encode_object(fields: Mapping[object, object], pad: str) -> str:
    inner = pad + "  "
    lines = []
    for key, value in fields.items():
        if not isinstance(key, str):
            raise TypeError(f"the key {shown(key)} is not text")
        lines.append(f"{inner}{_encode_scalar(key)}: {_encode(value, inner)}")
    return "{\n" + ",\n".join(lines) + f"\n{pad}}}" if lines else "{}"


def _encode_list(values: Sequence[object], pad: str) -> str:
    if set(map(type, values)) <= {int}:
        return json.dumps(values)
    if not any(isinstance(value, (dict, list, tuple)) for value in values):
        return "[" + ", ".join(map(_encode_scalar, values)) + "]"
    inner = pad + "  "
    return "[\n" + ",\n".join(inner + _encode(value, inner) for value in values) + f"\n{pad}]"


def _encode_scalar(value: object) -> str:
    if isinstance(value, str) and _has_lone_surrogate(value):
        raise ValueError(f"the string {shown(value)} holds half a surrogate pair")
    return json.dumps(value, allow_nan=False)

"""Strict JSON: bytes to typed objects and back, with coded errors and bounded work.

A file may come from anybody, so it must have one meaning: no duplicate keys, no numbers out of
range, no text that is not UTF-8. Types are stated once, as frozen ``msgspec.Struct`` classes
(or dataclasses where msgspec cannot be imported); their annotations are the validation.

    class Batch(msgspec.Struct, frozen=True):
        nonce: NonEmpty
        created: Timestamp
        processes: Positive

    batch = decode_json(data, Batch, subject="The batch")
    data = encode_json(batch)
"""

from __future__ import annotations

import json
import math
import re
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a document may be, checked before anything is built from it.

    Attributes:
        max_bytes: Size of the file.
        max_containers: Objects and lists together; None for as many as fit.
        max_commas: Values that follow another one in their object or list; None likewise.
        max_depth: Objects and lists within one another.
    """

    max_bytes: int
    max_containers: int | None = None
    max_commas: int | None = None
    max_depth: int = 64


MIB = 1 << 20
SMALL_LIMITS = Limits(1 * MIB)
RECEIPT_LIMITS = Limits(1 * MIB, max_containers=512, max_commas=12_000)
"""Several rules inspect every value of a receipt: ten thousand kernels, and two thousand others."""
EVIDENCE_LIMITS = Limits(64 * MIB, max_containers=1 << 20)
"""A list for each sequence, and some tens of objects for each run."""

MAX_NUMBER_CHARACTERS = 64
_REMEDY = "Generate the file again with the tool that wrote it; do not edit it by hand."

# The types of fields that several documents share.
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
NonEmpty = Annotated[str, Meta(min_length=1)]
Sha256 = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}(?![\s\S])", description="64 lower-case hexadecimal digits")
]
_DAY = (
    r"(?:(?!0000)\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_RFC3339 = rf"^{_DAY}[Tt]{_CLOCK}:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-]{_CLOCK})(?![\s\S])".replace(
    r"\d", "[0-9]"
)
# Nine digits of a second make 35 characters; more cost time to read and say nothing.
_TIMESTAMP_CHARACTERS = 64
Timestamp = Annotated[
    str,
    Meta(
        pattern=_RFC3339,
        max_length=_TIMESTAMP_CHARACTERS,
        description="an RFC 3339 timestamp with an offset",
    ),
]
"""Text rather than ``datetime``: a document is written back as it was read, digit for digit."""


def is_timestamp(text: str) -> bool:
    """Whether ``text`` is an RFC 3339 date-time with an offset, and nothing else."""
    return len(text) <= _TIMESTAMP_CHARACTERS and re.match(_RFC3339, text) is not None


def parse_timestamp(text: str) -> datetime:
    """Return the moment that ``text`` names, with its offset; ValueError if it names none."""
    if not is_timestamp(text):
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    return datetime.fromisoformat(text.upper())


# Only these bytes outside of strings decide how a document is built.
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}:,"')
_NOT_BRACKETS = b":,"
_ALIKE = bytes.maketrans(b"{}", b"[]")
_NUMBER_AS_ZERO = bytes(0 if byte in b"0123456789+-.eE" else 1 for byte in range(256))
_LONG_NUMBER = bytes(MAX_NUMBER_CHARACTERS + 1)


class _MalformedError(Exception):
    """Carries an error out of the parser's callbacks; ``problem`` follows the file's name."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(code, problem)
        self.code = code
        self.problem = problem


def parse_json(data: bytes, limits: Limits = SMALL_LIMITS, *, subject: str = "The document") -> Any:
    """Parse bytes that anybody may have written into one plain document.

    Args:
        data: The bytes of the file.
        limits: How large it may be.
        subject: What the file is called in an error, such as ``The evidence``.

    Returns:
        dict, list, str, int, finite float, bool and None.

    Raises:
        ReceiptError: ``E_JSON_SIZE``, ``E_JSON_ENCODING``, ``E_JSON_SYNTAX``, ``E_JSON_DEPTH``,
            ``E_JSON_NUMBER`` or ``E_JSON_DUPLICATE_KEY``.
    """
    try:
        return _parse(data, limits)
    except _MalformedError as error:
        raise ReceiptError(error.code, f"{subject} {error.problem}.", _REMEDY) from None


def _parse(data: bytes, limits: Limits) -> Any:
    if len(data) > limits.max_bytes:
        raise _MalformedError(
            "E_JSON_SIZE", f"has {len(data):,} bytes; at most {limits.max_bytes:,} are allowed"
        )
    structure = _structure(data)
    is_shallow = _is_shallow(structure, limits.max_depth)
    _check_size(structure, is_shallow, limits)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _MalformedError(
            "E_JSON_ENCODING", f"is not UTF-8: byte {error.start} cannot be decoded"
        ) from None
    if is_shallow and _LONG_NUMBER not in data.translate(_NUMBER_AS_ZERO):
        try:
            document = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            pass
        else:
            # msgspec keeps the last of two equal keys: then fewer keys are left than were read.
            if structure.count(b":") == _count_keys(document):
                return document
    # Whatever the fast parser does not take is judged by the standard one, which says why.
    document = _parse_with_reasons(text, limits)
    if not is_shallow:
        raise _too_deep(limits)
    return document


def _structure(data: bytes) -> bytes:
    """Return the brackets, commas and colons of ``data`` that stand outside of strings."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A string without such characters leaves two quotes, which go. Of the few others every second
    # piece is outside; splitting at every quote would take thirty times a hostile file's size.
    quoted = data.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    return b"".join(quoted.split(b'"')[::2])


def _is_shallow(structure: bytes, max_depth: int) -> bool:
    brackets = structure.translate(_ALIKE, _NOT_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    return not brackets


def _check_size(structure: bytes, is_shallow: bool, limits: Limits) -> None:
    most = limits.max_containers
    if most is not None and structure.count(b"[") + structure.count(b"{") > most:
        if not is_shallow:
            raise _too_deep(limits)
        raise _MalformedError(
            "E_JSON_SIZE", f"has more than the {most:,} objects and lists allowed"
        )
    most = limits.max_commas
    if most is not None and structure.count(b",") > most:
        raise _MalformedError("E_JSON_SIZE", f"holds more than {most:,} values")


def _count_keys(document: object) -> int:
    encoded = msgspec.json.encode(document)
    if b"\\" in encoded:
        return _structure(encoded).count(b":")
    return encoded.count(b'":')


def _parse_with_reasons(text: str, limits: Limits) -> Any:
    if text.startswith("\ufeff"):
        raise _MalformedError("E_JSON_ENCODING", "starts with a byte order mark")
    try:
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_float,
            parse_int=_integer,
            parse_constant=_constant,
        )
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise _MalformedError("E_JSON_SYNTAX", problem) from None
    except RecursionError:
        raise _too_deep(limits) from None
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.start + 1]
        raise _MalformedError(
            "E_JSON_ENCODING", f"holds half a surrogate pair near {quote(near)}"
        ) from None
    return document


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _MalformedError(
            "E_JSON_DUPLICATE_KEY", f"has the key {quote(key)} twice in one object"
        )
    return fields


def _float(text: str) -> float:
    value = float(_bounded(text))
    if math.isinf(value):
        raise _MalformedError("E_JSON_NUMBER", f"has a number out of range: {quote(text)}")
    return value


def _integer(text: str) -> int:
    return int(_bounded(text))


def _bounded(text: str) -> str:
    if len(text) > MAX_NUMBER_CHARACTERS:
        problem = (
            f"has a number of {len(text):,} characters; at most {MAX_NUMBER_CHARACTERS} are read"
        )
        raise _MalformedError("E_JSON_NUMBER", problem)
    return text


def _constant(text: str) -> NoReturn:
    raise _MalformedError("E_JSON_NUMBER", f"has {text}, which is no number in JSON")


def _too_deep(limits: Limits) -> _MalformedError:
    return _MalformedError("E_JSON_DEPTH", f"is nested deeper than {limits.max_depth} levels")


def decode_json(
    data: bytes,
    kind: type[T],
    limits: Limits = SMALL_LIMITS,
    *,
    subject: str = "The document",
    code: str | None = None,
    versioned: bool = False,
) -> T:
    """Return the ``kind`` that ``data`` holds: ``parse_json``, then ``decode_plain``."""
    document = parse_json(data, limits, subject=subject)
    return decode_plain(document, kind, subject=subject, code=code, versioned=versioned)


def decode_plain(
    document: object,
    kind: type[T],
    *,
    subject: str = "The document",
    code: str | None = None,
    versioned: bool = False,
) -> T:
    """Return the ``kind`` that a parsed document describes.

    Fields that ``kind`` does not know are left out. A whole number is taken for a float, and
    nothing else is converted: ``128.0`` and ``true`` are no ``int``.

    Args:
        document: What ``parse_json`` or ``encode_plain`` returned.
        kind: A Struct, a dataclass, or any annotation, such as ``tuple[Batch, ...]``.
        subject: What the document is called in an error.
        code: Used for any error instead of the two below.
        versioned: Whether ``schema_version`` must be there, although the type has a default.

    Raises:
        ReceiptError: ``E_MISSING_FIELD``, or ``E_WRONG_TYPE`` for a value of another type or out
            of range. The error names the field by its path, the value, and what is expected.
    """
    try:
        converted = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        found, problem = _describe(str(error), document, kind)
    else:
        if not versioned or (isinstance(document, dict) and "schema_version" in document):
            return converted
        found, problem = "E_MISSING_FIELD", '"schema_version" is missing'
    raise ReceiptError(code or found, f"{subject} is malformed: {problem}.", _REMEDY)


_ERROR = re.compile(r"(?s)(?P<message>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_EXPECTED = re.compile(r"Expected (?P<expected>.*?)(?:, got .*)?")
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}


def _describe(error: str, document: object, kind: Any) -> tuple[str, str]:
    """Return code and sentence for msgspec's message, which names no value and no key."""
    found = _ERROR.fullmatch(error)
    assert found is not None  # it matches anything
    place, value, kind = _follow(found["path"] or "", document, kind)
    if found["key"]:
        place, kind = f"a key of {place}", get_args(_bare(kind))[0]
        value = next((key for key in value if not _converts(key, kind)), None)
    if missing := _MISSING.fullmatch(found["message"]):
        place = f"{place}.{missing['name']}".removeprefix(".")
        return "E_MISSING_FIELD", f"{quote(place)} is missing"
    place = quote(place) if place else "it"
    if expected := _expected(found["message"], _without_null(kind)):
        return "E_WRONG_TYPE", f"{place} must be {expected}, and is {quote(value)}"
    return "E_WRONG_TYPE", f"{place} is not accepted: {found['message']}"


def _follow(path: str, value: Any, kind: Any) -> tuple[str, Any, Any]:
    """Return the place that msgspec's ``path`` leads to, with its value and annotation."""
    place = ""
    for step in _STEP.finditer(path):
        kind = _bare(kind)
        if name := step["name"]:
            value, kind = value[name], _annotation(kind, name)
            place += f".{name}"
        elif step["index"]:
            index, kinds = int(step["index"]), get_args(kind)
            value, kind = value[index], kinds[0] if kinds[-1] is Ellipsis else kinds[index]
            place += f"[{index}]"
        else:  # msgspec does not say which key of a mapping
            kind = get_args(kind)[1]
            key = next((key for key in value if not _converts(value[key], kind)), "")
            value = value.get(key)
            place += f".{key}"
    return place.removeprefix("."), value, kind


def _annotation(kind: Any, name: str) -> Any:
    """Return the annotation of the field that is called ``name`` in JSON."""
    if issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        name = next(each.name for each in fields if each.encode_name == name)
    return get_type_hints(kind, include_extras=True)[name]


def _without_null(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(each for each in get_args(kind) if each is not type(None))
    return kind


def _bare(kind: Any) -> Any:
    kind = _without_null(kind)
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _converts(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _expected(message: str, kind: Any) -> str | None:
    if "matching regex" in message:
        return next(meta.description for meta in get_args(kind)[1:] if isinstance(meta, Meta))
    if "enum value" in message:
        return " or ".join(map(quote, get_args(_bare(kind))))
    if expected := _EXPECTED.fullmatch(message):
        return re.sub(r"`(.+?)`", _in_words, expected["expected"])
    return None


def _in_words(types_: re.Match[str]) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types_[1].split(" | "))


def encode_plain(value: object) -> Any:
    """Return a typed object as dict, list, tuple and scalars.

    Fields keep their order, keys of mappings are sorted. TypeError for what JSON cannot hold.
    """
    return msgspec.to_builtins(value, order="deterministic", enc_hook=_plain_mapping)


def _plain_mapping(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def encode_json(document: object) -> bytes:
    """Return ASCII JSON: indent 2, fields in their order, one newline at the end.

    The same document gives the same bytes. Lists of plain values stand on one line, so that a
    hundred thousand token times do not make a hundred thousand lines.

    Args:
        document: A typed object, or plain data whose keys stay in their order.

    Raises:
        ReceiptError: ``E_CANNOT_ENCODE`` for anything that ``parse_json`` would not read back:
            numbers that are not finite, halves of surrogate pairs, other types.
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
    if value is None or isinstance(value, (str, int, float)):
        return _encode_scalar(value)
    return _encode(encode_plain(value), pad)


def _encode_object(fields: dict[Any, object], pad: str) -> str:
    inner = pad + "  "
    lines = []
    for key, value in fields.items():
        if not isinstance(key, str):
            raise TypeError(f"the key {quote(key)} is not text")
        lines.append(f"{inner}{_encode_scalar(key)}: {_encode(value, inner)}")
    return "{\n" + ",\n".join(lines) + f"\n{pad}}}" if lines else "{}"


def _encode_list(values: Sequence[object], pad: str) -> str:
    if set(map(type, values)) <= {int}:
        return json.dumps(values)
    if all(value is None or isinstance(value, (str, int, float)) for value in values):
        return "[" + ", ".join(map(_encode_scalar, values)) + "]"
    inner = pad + "  "
    return "[\n" + ",\n".join(inner + _encode(value, inner) for value in values) + f"\n{pad}]"


def _encode_scalar(value: object) -> str:
    if isinstance(value, str):
        value.encode("utf-8")  # half a surrogate pair cannot be
    return json.dumps(value, allow_nan=False)

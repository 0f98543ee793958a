"""Strict JSON: bytes to typed objects and back, with coded errors and bounded work.

A document must have one meaning: no duplicate keys, no numbers out of range, only UTF-8. Types
are stated once, as frozen dataclasses; their annotations are the validation.

    @dataclass(frozen=True, slots=True)
    class Batch:
        nonce: NonEmpty
        created: Timestamp
        processes: Positive

    batch = decode_json(data, Batch, subject="The batch")
    data = encode_json(batch)
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Generic,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json_parser import SMALL_LIMITS, Limits, parse_json
from pytest_flamegate.core.text import quote

T = TypeVar("T")
_WHITE_SPACE = b" \t\r\n"


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
_RFC3339 = re.compile(
    rf"^{_DAY}[Tt]{_CLOCK}:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-]{_CLOCK})(?![\s\S])".replace(r"\d", "[0-9]")
)
# Nine digits of a second make 35 characters; more cost time to read and say nothing.
_TIMESTAMP_CHARACTERS = 64
Timestamp = Annotated[
    str,
    Meta(
        pattern=_RFC3339.pattern,
        max_length=_TIMESTAMP_CHARACTERS,
        description="an RFC 3339 timestamp with an offset",
    ),
]
"""Text rather than ``datetime``: a document is written back as it was read, digit for digit."""


def parse_timestamp(text: str) -> datetime:
    """Return the moment that ``text`` names, with its offset.

    ValueError unless it is an RFC 3339 date-time with an offset, and nothing else.
    """
    if len(text) > _TIMESTAMP_CHARACTERS or _RFC3339.match(text) is None:
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    return datetime.fromisoformat(text.upper())


def decode_json(
    data: bytes,
    kind: type[T],
    limits: Limits = SMALL_LIMITS,
    *,
    subject: str = "The document",
    code: str = "E_WRONG_TYPE",
    versioned: bool = False,
) -> T:
    """Return the ``kind`` that ``data`` holds: ``parse_json``, then ``decode_plain``."""
    document = parse_json(data, limits, subject=subject)
    return decode_plain(document, kind, subject=subject, code=code, versioned=versioned)


# msgspec 0.22 crashes if two threads meet a type for the first time.
_CONVERTING = threading.Lock()
# A process that is forked meanwhile would wait for it forever.
os.register_at_fork(
    before=_CONVERTING.acquire,
    after_in_parent=_CONVERTING.release,
    after_in_child=_CONVERTING.release,
)


def convert(document: object, kind: type[T]) -> T:
    """Return ``msgspec.convert(document, kind)``, one thread at a time."""
    with _CONVERTING:
        return msgspec.convert(document, kind)


def decode_plain(
    document: object,
    kind: type[T],
    *,
    subject: str = "The document",
    code: str = "E_WRONG_TYPE",
    versioned: bool = False,
) -> T:
    """Return the ``kind`` that a parsed document describes.

    Fields that ``kind`` does not know are left out. A whole number is taken for a float, and
    nothing else is converted: ``128.0`` and ``true`` are no ``int``.

    ``kind`` is a Struct, a dataclass or any annotation. If ``versioned``, ``schema_version`` must
    be there although the type has a default.

    Raises ``ReceiptError`` ``code`` for a field that is missing, of another type or out of range.
    It names the field by its path, the value, and what is expected.
    """
    try:
        converted = convert(document, kind)
    except msgspec.ValidationError as error:
        problem = _describe(str(error), document, kind)
    else:
        if not versioned or (isinstance(document, dict) and "schema_version" in document):
            return converted
        problem = '"schema_version" is missing'
    raise ReceiptError(code, f"{subject} is malformed: {problem}.")


def decode_canonical(data: bytes, kind: type[T]) -> tuple[T, bytes] | None:
    """Return the ``kind`` in ``data``, and ``data`` without white space, also within its texts.

    None unless ``data`` has all fields once and in order. Such a document has one meaning, and the
    slower checks of ``parse_json`` would find only what ``kind`` leaves open: depth and long
    numbers. A field whose name has a space too many is none of ``kind``, which takes its default.
    """
    try:
        with _CONVERTING:
            decoded = msgspec.json.decode(data, type=kind)
        # Only texts contain white space here, and other one than spaces is escaped.
        dense = msgspec.json.encode(decoded).replace(b" ", b"")
        # Removing it changes no token: no number follows another, and no escape has any.
        return (decoded, dense) if dense == data.translate(None, _WHITE_SPACE) else None
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None


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


def _describe(error: str, document: object, kind: Any) -> str:
    """Return a sentence for msgspec's message, which names no value and no key."""
    found = _ERROR.fullmatch(error)
    assert found is not None  # it matches anything
    place, value, kind = _follow(found["path"] or "", document, kind)
    if found["key"]:
        place, kind = f"a key of {place}", get_args(_bare(kind))[0]
        value = next((key for key in value if not _converts(key, kind)), None)
    if missing := _MISSING.fullmatch(found["message"]):
        place = f"{place}.{missing['name']}".removeprefix(".")
        return f"{quote(place)} is missing"
    place = quote(place) if place else "it"
    if expected := _expected(found["message"], _without_null(kind)):
        return f"{place} must be {expected}, and is {quote(value)}"
    return f"{place} is not accepted: {found['message']}"


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
        convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _expected(message: str, kind: Any) -> str | None:
    if "matching regex" in message:
        return next(meta.description for meta in get_args(kind)[1:] if isinstance(meta, Meta))
    if "enum value" in message:
        return " or ".join(map(quote, get_args(_bare(kind))))
    if expected := _EXPECTED.fullmatch(message):
        words = expected["expected"].replace("`", "").replace(" | ", " or ")
        return re.sub(r"\w+", lambda word: _WORDS.get(word[0], word[0]), words)
    return None


def replace(typed: T, /, **changes: Any) -> T:
    """Return a Struct or a dataclass with some of its fields changed."""
    module: Any = msgspec.structs if isinstance(typed, msgspec.Struct) else dataclasses
    return cast("T", module.replace(typed, **changes))


class computed_once(Generic[T]):  # noqa: N801
    """A property of a frozen type that is computed when it is first read.

    Like ``functools.cached_property`` without the lock that this has before Python 3.12, which
    takes longer than most values. Two threads may both compute the value.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _: type) -> T:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


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

    Raises ``ReceiptError`` ``E_CANNOT_ENCODE`` for anything that ``parse_json`` would not read
    back: numbers that are not finite, halves of surrogate pairs, other types.
    """
    try:
        return (_encode(document, "") + "\n").encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ReceiptError(
            "E_CANNOT_ENCODE", f"The document cannot be written as JSON: {error}."
        ) from error


def _encode(value: object, pad: str) -> str:
    if isinstance(value, dict):
        inner = pad + "  "
        lines = []
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {quote(key)} is not text")
            lines.append(f"{inner}{_encode_scalar(key)}: {_encode(each, inner)}")
        return "{\n" + ",\n".join(lines) + f"\n{pad}}}" if lines else "{}"
    if isinstance(value, (list, tuple)):
        return _encode_list(value, pad)
    if value is None or isinstance(value, (str, int, float)):
        return _encode_scalar(value)
    return _encode(encode_plain(value), pad)


def _encode_list(values: Sequence[object], pad: str) -> str:
    if all(value is None or isinstance(value, (str, int, float)) for value in values):
        texts = (value for value in values if isinstance(value, str))
        "".join(texts).encode("utf-8")  # half a surrogate pair cannot be
        return json.dumps(values, allow_nan=False)
    inner = pad + "  "
    return "[\n" + ",\n".join(inner + _encode(value, inner) for value in values) + f"\n{pad}]"


def _encode_scalar(value: object) -> str:
    if isinstance(value, str):
        value.encode("utf-8")  # half a surrogate pair cannot be
    return json.dumps(value, allow_nan=False)

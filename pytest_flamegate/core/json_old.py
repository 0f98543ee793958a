"""JSON of a file that anybody may have written, read as one document with one meaning."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache, lru_cache
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import Refusal, escape_name, quote

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_NUMBER_CHARACTERS = 64
_SHOWN = 200


def loads_strict(data: bytes, refused: Refused, *, max_bytes: int) -> Any:
    """Return the document that ``data`` holds; ``refused`` makes of a reason what is raised.

    Refused are more than ``max_bytes``, two fields of one name, NaN, infinity, numbers of more
    than 64 characters, and what is no UTF-8. ``1e999`` is infinity, so look at each figure.
    """
    if len(data) > max_bytes:
        raise refused(f"it has more than the {max_bytes:,} bytes allowed")
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_int=_integer,
        )
    except RecursionError:
        raise refused("it is nested too deeply") from None
    except ValueError as error:
        raise refused(f"no JSON ({error})") from None


class Refused:
    """Makes the refusals of one kind of file: ``code``, and what the file is called."""

    def __init__(self, code: str, what: str) -> None:
        self.code = code
        self.problem = what

    def __call__(self, why: str) -> ReceiptError:
        """Return the refusal for ``why``, a few words."""
        return ReceiptError(
            self.code,
            f"{self.problem} is malformed: {escape_name(why, _SHOWN)}.",
            "Have the tool that wrote it write it again.",
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("two fields of one object have one name")
    return fields


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise ValueError(f"a number has more than {MAX_NUMBER_CHARACTERS} characters")
    return int(text)


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


T = TypeVar("T")
_Reader = Callable[[Any], Any]
_SCALARS = {str, int, float, bool, type(None)}


def to_plain(value: object) -> Any:
    """Return ``value`` as dict, list and scalars; mappings sorted by name.

    A dataclass's fields keep their order. TypeError for what JSON cannot hold.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, (tuple, list)):
        if set(map(type, value)) <= _SCALARS:
            return list(value)
        return [to_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: to_plain(value[name]) for name in sorted(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{kind.__name__} has no form in JSON")


class _MisfitError(Exception):
    """Carries what is wrong out of nested readers; each adds its step, the innermost first."""

    def __init__(self, code: str, complaint: str) -> None:
        super().__init__(code, complaint)
        self.code = code
        self.complaint = complaint
        self.steps: list[str] = []


def from_plain(cls: type[T], data: object, path: str = "") -> T:
    """Return the ``cls`` that ``data`` describes; ReceiptError at the first wrong type.

    ``path`` names the place of ``data`` in its document, for the error.
    """
    try:
        return cast("T", _reader(cast("Any", cls))(data))
    except _MisfitError as misfit:
        place = "".join([path, *reversed(misfit.steps)]).removeprefix(".")
        raise ReceiptError(
            misfit.code,
            f"{quote(place) if place else 'The document'} {misfit.complaint}.",
            "Have the tool that wrote it write it again.",
        ) from None


@cache
def _reader(kind: Any) -> _Reader:
    origin = get_origin(kind)
    if kind in (object, Any):
        return _frozen
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_reader(kind)
    if origin is Literal:
        return _literal_reader(get_args(kind))
    if origin in (Union, types.UnionType):
        return _union_reader(get_args(kind))
    if origin is tuple:
        first, *rest = get_args(kind)
        return _tuple_reader(first) if rest == [Ellipsis] else _row_reader((first, *rest))
    if origin in (Mapping, dict) and get_args(kind)[0] is str:
        return _mapping_reader(get_args(kind)[1])
    raise TypeError(f"no reader for {kind!r}")


def _as_they_are(kind: Any) -> frozenset[type]:
    """Return the types whose values are read as ``kind`` without any change."""
    if kind in _SCALARS:
        return frozenset({kind})
    if get_origin(kind) in (Union, types.UnionType):
        return frozenset(chain.from_iterable(map(_as_they_are, get_args(kind))))
    return frozenset()


def _wrong(wanted: str, data: object) -> _MisfitError:
    return _MisfitError("E_WRONG_TYPE", f"must be {wanted}, and is {quote(data)}")


def _scalar_reader(kind: type) -> _Reader:
    name = "null" if kind is type(None) else kind.__name__

    def read(data: Any) -> Any:
        if type(data) is kind:
            return data
        # JSON has one kind of number: 512 and 512.0 are the same rate.
        if kind is float and type(data) is int:
            return float(data)
        raise _wrong(name, data)

    return read


def _literal_reader(values: tuple[object, ...]) -> _Reader:
    wanted = " or ".join(map(quote, values))
    allowed = {(type(value), value) for value in values}

    def read(data: Any) -> Any:
        if not isinstance(data, (dict, list)) and (type(data), data) in allowed:
            return data
        raise _wrong(wanted, data)

    return read


def _union_reader(kinds: tuple[Any, ...]) -> _Reader:
    optional = type(None) in kinds
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]

    def read(data: Any) -> Any:
        if optional and data is None:
            return None
        for reader in readers[:-1]:
            try:
                return reader(data)
            except _MisfitError:
                continue
        return readers[-1](data)

    return read


def _tuple_reader(kind: Any) -> _Reader:
    reader = _reader(kind)
    plain = _as_they_are(kind)
    rows = _as_they_are(get_args(kind)[0]) if get_args(kind)[1:] == (Ellipsis,) else frozenset()

    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise _wrong("a list", data)
        # Token times come by the hundred thousand, in lists and in lists of lists: one
        # pass over their types, no calls.
        found = {*map(type, data)}
        if found <= plain:
            return tuple(data)
        if rows and found <= {list} and {*map(type, chain.from_iterable(data))} <= rows:
            return tuple(map(tuple, data))
        return _read_each(data, reader)

    return read


def _row_reader(kinds: tuple[Any, ...]) -> _Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(readers):
            raise _wrong(f"a list of {len(readers)}", data)
        return _read_each(zip(readers, data, strict=True), lambda pair: pair[0](pair[1]))

    return read


def _read_each(entries: Iterable[Any], reader: _Reader) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        found.extend(map(reader, entries))
    except _MisfitError as misfit:
        misfit.steps.append(f"[{len(found)}]")
        raise
    return tuple(found)


def _mapping_reader(kind: Any) -> _Reader:
    reader = _reader(kind)
    plain = _as_they_are(kind)

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _wrong("an object", data)
        if {*map(type, data.values())} <= plain:
            return MappingProxyType(dict(data))
        found = {}
        name = ""
        try:
            for name, entry in data.items():
                found[name] = reader(entry)
        except _MisfitError as misfit:
            misfit.steps.append(f".{name}")
            raise
        return MappingProxyType(found)

    return read


def _dataclass_reader(cls: type) -> _Reader:
    hints = get_type_hints(cls, localns=_names_used_by(cls))
    plan = [
        (field.name, _as_they_are(hints[field.name]), _reader(hints[field.name]))
        for field in fields(cls)
    ]
    required = {
        field.name
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    }

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _wrong("an object", data)
        if not required <= data.keys():
            misfit = _MisfitError("E_MISSING_FIELD", "is missing")
            misfit.steps.append(f".{min(required - data.keys())}")
            raise misfit
        found = {}
        name = ""
        try:
            for name, plain, reader in plan:
                if name in data:
                    value = data[name]
                    found[name] = value if type(value) in plain else reader(value)
        except _MisfitError as misfit:
            misfit.steps.append(f".{name}")
            raise
        return cls(**found)

    return read


def _frozen(data: object) -> object:
    """Plain data of any shape, made immutable: lists to tuples, objects to read-only views."""
    if isinstance(data, list):
        return tuple(map(_frozen, data))
    if isinstance(data, dict):
        return MappingProxyType({name: _frozen(entry) for name, entry in data.items()})
    return data


def _names_used_by(cls: type) -> dict[str, Any]:
    """Import the names in ``cls``'s annotations that its module imports for type checkers only.

    Modules keep such imports out of run time; reading typed data is where they are needed.
    """
    used = {
        node.id
        for field in fields(cls)
        for node in ast.walk(ast.parse(str(field.type)))
        if isinstance(node, ast.Name)
    }
    found = {}
    modules = {base.__module__ for base in cls.__mro__ if is_dataclass(base)}
    for statement in chain.from_iterable(map(_imports_for_type_checkers, sorted(modules))):
        for alias in statement.names:
            name = alias.asname or alias.name
            if name in used and statement.module is not None:
                found[name] = getattr(import_module(statement.module), alias.name)
    return found


@cache
def _imports_for_type_checkers(module: str) -> tuple[ast.ImportFrom, ...]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return tuple(
        statement
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
    )


class FieldError(Exception):
    """One sentence: what is wrong with a field."""


def object_of(value: object, name: str) -> Mapping[str, object]:
    """Return ``value`` if it is an object."""
    if not isinstance(value, dict):
        raise FieldError(f"{name} must be an object, and is {quote(value)}.")
    return cast("Mapping[str, object]", value)


def list_of(value: object, name: str, most: int) -> list[object]:
    """Return ``value`` if it is a list of at least one and at ``most`` so many entries."""
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise FieldError(f"{name} must be a list of 1 to {most}, and is {quote(value)}.")
    return value


def text_of(value: object, name: str) -> str:
    """Return ``value`` if it is text."""
    if not isinstance(value, str):
        raise FieldError(f"{name} must be text, and is {quote(value)}.")
    return value


MIB = 1 << 20
RECEIPT_MAX_BYTES = 1 * MIB
EVIDENCE_MAX_BYTES = 64 * MIB
MAX_DEPTH = 64
STRICT_JSON_MAX_NUMBER_CHARACTERS = 64
RECEIPT_MAX_CONTAINERS = 512
"""Objects and lists in a receipt. Several rules look into each; real ones have some tens."""
RECEIPT_MAX_COMMAS = 12_000
"""Commas between its values: ten thousand kernels, and two thousand for all else."""
EVIDENCE_MAX_CONTAINERS = 1 << 20
"""The same for evidence: a list for each sequence, and some tens for each run."""

_BOM = b"\xef\xbb\xbf"
_DIGITS_AS_ZERO = bytes(0 if byte in b"0123456789" else 1 for byte in range(256))
_LONG_DIGITS = bytes(STRICT_JSON_MAX_NUMBER_CHARACTERS + 1)
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
        raise ReceiptError(document.code, document.message, document.remedy)
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
    parse_int = _integer_strict_json if _LONG_DIGITS in data.translate(_DIGITS_AS_ZERO) else None
    try:
        document = json.loads(
            text,
            object_pairs_hook=_unique_strict_json,
            parse_float=_number,
            parse_int=parse_int,
            parse_constant=_constant_strict_json,
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


def _unique_strict_json(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise _RefusedError("E_JSON_DUPLICATE_KEY", f"The key {quote(key)} stands twice in one object.")


def _number(text: str) -> float:
    _check_length(text)
    value = float(text)
    if math.isinf(value):
        raise _RefusedError("E_JSON_NUMBER", f"The number {quote(text)} is out of range.")
    return value


def _integer_strict_json(text: str) -> int:
    _check_length(text)
    return int(text)


def _check_length(text: str) -> None:
    if len(text) > STRICT_JSON_MAX_NUMBER_CHARACTERS:
        raise _RefusedError(
            "E_JSON_NUMBER",
            f"A number has {len(text):,} characters, "
            f"more than {STRICT_JSON_MAX_NUMBER_CHARACTERS}.",
        )


def _constant_strict_json(text: str) -> NoReturn:
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
                "E_JSON_ENCODING", f"The string {quote(value)} holds half a surrogate pair."
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
            raise TypeError(f"the key {quote(key)} is not text")
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
        raise ValueError(f"the string {quote(value)} holds half a surrogate pair")
    return json.dumps(value, allow_nan=False)


MAX_CHARACTERS = 64
"""Nine digits of a second make 35; what is longer is no moment, and costs time to look at."""


def is_timestamp(text: str) -> bool:
    """Say whether ``text`` is an RFC 3339 date-time with an offset, and nothing besides.

    Any number of fractional digits is taken that fits; a trailing newline is not.
    """
    return len(text) <= MAX_CHARACTERS and _is_timestamp(text)


# The same one stands in receipt, evidence and runs, and several rules read it.
@lru_cache(maxsize=256)
def _is_timestamp(text: str) -> bool:
    # Imported here so that importing the receipt room stays free.
    from rfc3339_validator import validate_rfc3339  # type: ignore[import-untyped]

    return text.isascii() and text == text.strip() and bool(validate_rfc3339(text.upper()))


def read_timestamp(text: str) -> datetime:
    """Return the moment that ``text`` names, with its offset; ValueError if it names none."""
    if not is_timestamp(text):
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    return datetime.fromisoformat(text.upper())

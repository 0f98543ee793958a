"""Typed dataclasses to plain JSON data and back, strict when reading.

Readers are built once for each type, from the dataclass's own annotations: frozen
dataclasses, ``tuple[X, ...]``, ``tuple[X, Y]``, ``Mapping[str, X]``, ``Literal``, unions, ``str``,
``int``, ``float``, ``bool`` and ``object`` (any plain data). A wrong type is a
ReceiptError that names the path; an unknown field is ignored, so that an old reader
can read a later writer.

Nearly all data is right. So paths are put together only where something is wrong, on
the way out; and values that pass as they are, known by their type, pass without a call.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt.findings import shown

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
            f"{shown(place) if place else 'The document'} {misfit.complaint}.",
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
    return _MisfitError("E_WRONG_TYPE", f"must be {wanted}, and is {shown(data)}")


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
    wanted = " or ".join(map(shown, values))
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

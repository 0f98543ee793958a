"""Typed dataclasses to plain JSON data and back, strict when reading.

Readers are built once for each type, from the dataclass's own annotations: frozen
dataclasses, ``tuple[X, ...]``, ``tuple[X, Y]``, ``Mapping[str, X]``, ``Literal``, unions, ``str``,
``int``, ``float``, ``bool`` and ``object`` (any plain data). A wrong type is a
ReceiptError that names the path; an unknown field is ignored, so that an old reader
can read a later writer.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt.findings import shown

T = TypeVar("T")
_Reader = Callable[[object, str], Any]
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


def from_plain(cls: type[T], data: object, path: str = "") -> T:
    """Return the ``cls`` that ``data`` describes; ReceiptError at the first wrong type.

    ``path`` names the place of ``data`` in its document, for the error.
    """
    return cast("T", _reader(cast("Any", cls))(data, path))


@cache
def _reader(kind: Any) -> _Reader:
    origin = get_origin(kind)
    if kind in (object, Any):
        return lambda data, _: _frozen(data)
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


def _wrong(path: str, wanted: str, data: object) -> ReceiptError:
    return ReceiptError(
        "E_WRONG_TYPE",
        f"{shown(path) if path else 'The document'} must be {wanted}, and is {shown(data)}.",
        "Have the tool that wrote it write it again.",
    )


def _scalar_reader(kind: type) -> _Reader:
    name = "null" if kind is type(None) else kind.__name__

    def read(data: object, path: str) -> Any:
        if type(data) is kind:
            return data
        # JSON has one kind of number: 512 and 512.0 are the same rate.
        if kind is float and type(data) is int:
            return float(data)
        raise _wrong(path, name, data)

    return read


def _literal_reader(values: tuple[object, ...]) -> _Reader:
    wanted = " or ".join(map(shown, values))
    allowed = {(type(value), value) for value in values}

    def read(data: object, path: str) -> Any:
        if not isinstance(data, (dict, list)) and (type(data), data) in allowed:
            return data
        raise _wrong(path, wanted, data)

    return read


def _union_reader(kinds: tuple[Any, ...]) -> _Reader:
    optional = type(None) in kinds
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]

    def read(data: object, path: str) -> Any:
        if optional and data is None:
            return None
        for reader in readers[:-1]:
            try:
                return reader(data, path)
            except ReceiptError:
                continue
        return readers[-1](data, path)

    return read


def _tuple_reader(kind: Any) -> _Reader:
    reader = _reader(kind)

    def read(data: object, path: str) -> Any:
        if not isinstance(data, list):
            raise _wrong(path, "a list", data)
        # Token times come by the hundred thousand: one pass over their types, no calls.
        if kind in _SCALARS and set(map(type, data)) <= {kind}:
            return tuple(data)
        return tuple(reader(entry, f"{path}[{index}]") for index, entry in enumerate(data))

    return read


def _row_reader(kinds: tuple[Any, ...]) -> _Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(data: object, path: str) -> Any:
        if not isinstance(data, list) or len(data) != len(readers):
            raise _wrong(path, f"a list of {len(readers)}", data)
        pairs = zip(readers, data, strict=True)
        return tuple(reader(entry, f"{path}[{i}]") for i, (reader, entry) in enumerate(pairs))

    return read


def _mapping_reader(kind: Any) -> _Reader:
    reader = _reader(kind)

    def read(data: object, path: str) -> Any:
        if not isinstance(data, dict):
            raise _wrong(path, "an object", data)
        return MappingProxyType(
            {name: reader(entry, _join(path, name)) for name, entry in data.items()}
        )

    return read


def _dataclass_reader(cls: type) -> _Reader:
    hints = get_type_hints(cls, localns=_names_used_by(cls))
    readers = {field.name: _reader(hints[field.name]) for field in fields(cls)}
    required = {
        field.name
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    }

    def read(data: object, path: str) -> Any:
        if not isinstance(data, dict):
            raise _wrong(path, "an object", data)
        missing = sorted(required - data.keys())
        if missing:
            raise ReceiptError(
                "E_MISSING_FIELD",
                f"{shown(_join(path, missing[0]))} is missing.",
                "Have the tool that wrote it write it again.",
            )
        return cls(
            **{
                name: reader(data[name], _join(path, name))
                for name, reader in readers.items()
                if name in data
            }
        )

    return read


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


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

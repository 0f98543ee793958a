"""The published schemas as plain functions, which say in microseconds what is surely valid.

jsonschema takes some ten calls for each value, to be able to tell what is wrong with it.
Nearly every document has nothing wrong: these functions only say so, and where they say
no, jsonschema finds the words. They know the keywords that our schemas use and no
others: an unknown one is an error when the schema is compiled, never ignored.
"""

from __future__ import annotations

import math
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_flamegate.receipt.timestamps import is_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Test: TypeAlias = Callable[[Any], bool]

_ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description", "examples"})
_OF_FIELDS = frozenset({"required", "properties", "additionalProperties", "minProperties"})
"""Tested together, in one pass over an object."""
_OF_CASES = frozenset({"if", "then"})
_REFERENCE = "#/$defs/"


class Compiler:
    """Turns the parts of one schema into tests of plain data, each part once.

    A test takes what ``strict_json`` returns, and says whether it satisfies the part.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        """Compile parts of the schema ``root``, whose ``$defs`` they may refer to."""
        self._definitions = root.get("$defs", {})
        # By identity, for dicts cannot be hashed; held here, so that the identity stays theirs.
        self._made: dict[int, tuple[object, Test]] = {}
        self._makers: dict[str, Callable[[Any], Test]] = {
            **_VALUE_TESTS,
            "items": self._items,
            "propertyNames": self._names,
            "anyOf": self._any_of,
            "$ref": self._reference,
        }

    def test(self, schema: object) -> Test:
        """Return the test for ``schema``; ValueError for what this compiler does not know."""
        known = self._made.get(id(schema))
        if known is None:
            known = self._made[id(schema)] = (schema, self._compile(schema))
        return known[1]

    def _compile(self, schema: object) -> Test:
        if schema is True:
            return lambda _: True
        if not isinstance(schema, dict):
            raise TypeError(f"a schema is an object or true here, and not {schema!r}")
        unknown = schema.keys() - self._makers.keys() - _ANNOTATIONS - _OF_FIELDS - _OF_CASES
        if unknown:
            raise ValueError(f"the keywords {sorted(unknown)} are not known here")
        count = _count(schema)
        if count is not None:
            return count
        tests = [self._makers[key](schema[key]) for key in schema if key in self._makers]
        if not _OF_CASES.isdisjoint(schema):
            tests.append(self._case(schema["if"], schema["then"]))
        if not _OF_FIELDS.isdisjoint(schema):
            tests.append(self._fields(schema))
        return _all(tests)

    def _fields(self, schema: Mapping[str, Any]) -> Test:
        required = frozenset(schema.get("required", ()))
        fewest = schema.get("minProperties", 0)
        tests = {name: self.test(part) for name, part in schema.get("properties", {}).items()}
        others = self.test(schema.get("additionalProperties", True))

        def fields(value: Any) -> bool:
            if type(value) is not dict:
                return True
            if len(value) < fewest or not required <= value.keys():
                return False
            # A plain loop, for most of the time goes by here: all() would take twice as long.
            for name, entry in value.items():  # noqa: SIM110
                if not tests.get(name, others)(entry):
                    return False
            return True

        return fields

    def _items(self, part: Mapping[str, Any]) -> Test:
        in_bulk = _in_bulk(part)
        if in_bulk is not None:
            return lambda value: type(value) is not list or in_bulk(value)
        test = self.test(part)
        return lambda value: type(value) is not list or all(map(test, value))

    def _names(self, part: Mapping[str, Any]) -> Test:
        test = self.test(part)
        return lambda value: type(value) is not dict or all(map(test, value))

    def _any_of(self, parts: list[Any]) -> Test:
        first, second = map(self.test, parts)
        return lambda value: first(value) or second(value)

    def _case(self, condition: Any, consequence: Any) -> Test:
        when, then = self.test(condition), self.test(consequence)
        return lambda value: not when(value) or then(value)

    def _reference(self, reference: str) -> Test:
        if not reference.startswith(_REFERENCE):
            raise ValueError(f"the reference {reference!r} is not known here")
        return self.test(self._definitions[reference.removeprefix(_REFERENCE)])


def _all(tests: list[Test]) -> Test:
    """Return the test that all ``tests`` pass, in their order."""
    if not tests:
        return lambda _: True
    first, *rest = tests
    if not rest:
        return first
    others = _all(rest)
    return lambda value: first(value) and others(value)


def _count(part: Mapping[str, Any]) -> Test | None:
    """Return the test of a whole number with a minimum, or null; None for any other part.

    Three values of four are of this kind: one call for them instead of three.
    """
    if part.keys() - _ANNOTATIONS != {"type", "minimum"}:
        return None
    least = part["minimum"]
    if part["type"] == "integer":
        return lambda value: type(value) is int and value >= least
    if part["type"] == ["integer", "null"]:
        return lambda value: value is None or (type(value) is int and value >= least)
    return None


def _in_bulk(part: Mapping[str, Any]) -> Callable[[list[Any]], bool] | None:
    """Return a test of all entries of a list at once; None where each needs its own look.

    Token times come by the hundred thousand, as integers in lists and in lists of lists:
    two passes in C over all of them take a tenth of the time of one call each.
    """
    keywords = part.keys() - _ANNOTATIONS
    if keywords == {"type", "minimum"} and part["type"] == "integer":
        least = part["minimum"]
        return lambda values: {*map(type, values)} <= {int} and min(values, default=least) >= least
    if keywords == {"type", "items"} and part["type"] == "array":
        inner = _in_bulk(part["items"])
        if inner is not None:
            return lambda values: {*map(type, values)} <= {list} and inner([*chain(*values)])
    return None


_TYPES: Mapping[str, frozenset[type]] = {
    "object": frozenset({dict}),
    "array": frozenset({list}),
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
}


def _type(wanted: str | list[str]) -> Test:
    names = [wanted] if isinstance(wanted, str) else wanted
    allowed = frozenset(chain.from_iterable(_TYPES[name] for name in names))
    if float in allowed:
        return lambda value: (
            type(value) in allowed and (type(value) is not float or math.isfinite(value))
        )
    if len(allowed) == 1:
        (only,) = allowed
        return lambda value: type(value) is only
    return lambda value: type(value) in allowed


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _enum(wanted: list[Any]) -> Test:
    if not all(isinstance(name, str) for name in wanted):
        raise ValueError("an enum of anything but strings is not known here")
    allowed = frozenset(wanted)
    return lambda value: type(value) is str and value in allowed


def _pattern(wanted: str) -> Test:
    search = re.compile(wanted).search
    return lambda value: type(value) is not str or search(value) is not None


def _format(wanted: str) -> Test:
    if wanted != "date-time":
        raise ValueError(f"the format {wanted!r} is not known here")
    return lambda value: type(value) is not str or is_timestamp(value)


_VALUE_TESTS: Mapping[str, Callable[[Any], Test]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda wanted: _enum([wanted]),
    "pattern": _pattern,
    "format": _format,
    "minimum": lambda least: lambda value: not _is_number(value) or value >= least,
    "maximum": lambda most: lambda value: not _is_number(value) or value <= most,
    "exclusiveMinimum": lambda below: lambda value: not _is_number(value) or value > below,
    "minItems": lambda fewest: lambda value: type(value) is not list or len(value) >= fewest,
    "maxItems": lambda most: lambda value: type(value) is not list or len(value) <= most,
    "minLength": lambda fewest: lambda value: type(value) is not str or len(value) >= fewest,
    "maxLength": lambda most: lambda value: type(value) is not str or len(value) <= most,
}
"""The keywords that look at one value, each as what makes its test."""

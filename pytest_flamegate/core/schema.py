"""The published JSON Schemas, applied without jsonschema's own leniencies.

jsonschema takes 128.0 for an integer and NaN for a number, and with no checker
installed any string for a date-time. Its messages quote whole documents. The
vocabulary is 2020-12; only the types, one format and the wording are our own.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import is_timestamp
from pytest_flamegate.core.text import Refusal, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator


if TYPE_CHECKING:
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

Kind = Literal["receipt", "evidence", "verdict", "baseline", "history", "imported"]
VERSION = "1.0.0"
_REPORTED_PER_LIST = 8

_FIELD_CODES = {
    "schema_version": "E_SCHEMA_VERSION",
    "timestamp": "E_TIMESTAMP",
    "compute_path": "E_COMPUTE_PATH",
    "backend": "E_BACKEND",
    "deterministic": "E_DETERMINISTIC",
    "tokens_requested": "E_TOKENS",
    "tokens_generated": "E_TOKENS",
    "tokens_per_second": "E_TPS",
    "kernels": "E_KERNELS",
    "environment": "E_ENVIRONMENT",
    "model": "E_MODEL",
}
_OTHER_CODES: Mapping[Kind, str] = {
    "receipt": "E_SCHEMA",
    "evidence": "E_EVIDENCE_SCHEMA",
    "verdict": "E_VERDICT_SCHEMA",
    "baseline": "E_BASELINE_SCHEMA",
    "history": "E_HISTORY_SCHEMA",
    "imported": "E_IMPORTED_SCHEMA",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One departure from a schema: the top-level field it lies in (None for the whole)."""

    field: str | None
    refusal: Refusal


def validate(document: object, kind: Kind) -> list[Refusal]:
    """Return a Refusal for each way in which ``document`` departs from the schema ``kind``."""
    return [fault.refusal for fault in faults(document, kind)]


def faults(document: object, kind: Kind) -> list[Fault]:
    """Like ``validate``, with the field of each fault; of a long list only the first few."""
    if _compiler(kind).test(load(kind))(document):
        return []
    found = _validator(kind).iter_errors(cast("Any", document))
    errors = sorted(found, key=lambda error: error.json_path)
    return [fault for error in errors for part in _parts(error) for fault in _faults_of(part, kind)]


def _parts(error: ValidationError) -> Iterator[ValidationError]:
    """Yield what is behind an error: of "this or null", the faults of this."""
    inner = [part for part in error.context or () if part.schema_path[0] == 0]
    if error.validator == "anyOf" and error.instance is not None and inner:
        for part in inner:
            yield from _parts(part)
    else:
        yield error


@cache
def load(kind: Kind) -> dict[str, Any]:
    """Return the schema ``kind`` as a document; ToolError if the installation lacks it."""
    name = f"{kind}-{VERSION}.schema.json"
    package = resources.files("pytest_flamegate")
    # A wheel carries the schemas inside the package, a checkout beside it.
    checkout = Path(str(package)).parent / "schemas" / name
    for place in (package / "schemas" / name, checkout):
        if place.is_file():
            schema: dict[str, Any] = json.loads(place.read_text("utf-8"))
            return schema
    raise ToolError(
        "E_NO_SCHEMA", f"The schema {name} is not installed.", "Install pytest-flamegate again."
    )


@cache
def _validator(kind: Kind) -> Validator:
    # jsonschema takes 90 ms to import: only a process that verifies pays for it.
    from jsonschema import Draft202012Validator, FormatChecker, validators

    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
            "number": lambda _, value: (
                isinstance(value, (int, float))
                and not isinstance(value, bool)
                and math.isfinite(value)
            ),
        }
    )
    formats = FormatChecker(formats=())
    formats.checks("date-time")(lambda value: not isinstance(value, str) or is_timestamp(value))
    extend: Any = validators.extend
    strict = extend(Draft202012Validator, _keywords(_compiler(kind)), type_checker=types)
    strict.check_schema(load(kind))
    return cast("Validator", strict(load(kind), format_checker=formats))


@cache
def _compiler(kind: Kind) -> Compiler:
    return Compiler(load(kind))


def _keywords(compiler: Compiler) -> dict[str, Any]:
    """Return the keywords that lead from a value to its parts, as jsonschema calls them.

    They step into those parts alone that are surely not well-formed, and report the first
    few of each list and of unknown fields: a megabyte of faults is a handful.
    """

    def within(validator: Any, value: Any, parts: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        for step, schema in parts:
            if not compiler.test(schema)(value[step]):
                yield from validator.descend(value[step], schema, path=step)

    def items(validator: Any, entry: Any, value: Any, _: Any) -> Iterator[Any]:
        if isinstance(value, list):
            parts = ((index, entry) for index in range(len(value)))
            yield from islice(within(validator, value, parts), _REPORTED_PER_LIST)

    def properties(validator: Any, known: Any, value: Any, _: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            yield from within(validator, value, ((n, known[n]) for n in known if n in value))

    def additional_properties(validator: Any, other: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            known = schema.get("properties", {})
            parts = ((name, other) for name in value if name not in known)
            yield from islice(within(validator, value, parts), _REPORTED_PER_LIST)

    return {
        "items": items,
        "properties": properties,
        "additionalProperties": additional_properties,
    }


def _faults_of(error: ValidationError, kind: Kind) -> Iterator[Fault]:
    path = [str(step) for step in error.absolute_path]
    if error.validator == "required" and isinstance(error.instance, dict):
        # jsonschema reports each missing name by itself and keeps the name in its message only.
        wanted = cast("list[str]", error.validator_value)
        missing = [name for name in wanted if name not in error.instance]
        named = next((name for name in missing if error.message.startswith(repr(name))), None)
        if named is not None:
            yield _fault([*path, named], "is missing", kind)
            return
    yield _fault(path, _complaint(error), kind)


def _fault(path: list[str], complaint: str, kind: Kind) -> Fault:
    top = path[0] if path else None
    code = _OTHER_CODES[kind]
    if kind == "receipt" and top is not None:
        code = _FIELD_CODES.get(top, code)
    where = quote(".".join(path)) if path else f"The {kind}"
    remedy = f"See the {kind} schema {VERSION} for what belongs there."
    return Fault(top, Refusal(code, f"{where} {complaint}.", remedy))


def _complaint(error: ValidationError) -> str:
    value: object = error.instance
    wanted: Any = error.validator_value
    if error.validator == "type":
        names = wanted if isinstance(wanted, list) else [wanted]
        return f"must be {' or '.join(names)}, and is {quote(value)}"
    if error.validator == "enum":
        return f"must be one of {', '.join(map(quote, wanted))}, and is {quote(value)}"
    if error.validator == "pattern" and isinstance(error.schema, dict):
        alike = ", ".join(map(quote, error.schema.get("examples", [])))
        return f"must look like {alike or 'the schema says'}, and is {quote(value)}"
    template = _TEMPLATES.get(str(error.validator), "does not satisfy the schema: {value}")
    return template.format(value=quote(value), wanted=quote(wanted))


_TEMPLATES = {
    "const": "must be {wanted}, and is {value}",
    "minimum": "must be at least {wanted}, and is {value}",
    "exclusiveMinimum": "must be greater than {wanted}, and is {value}",
    "maximum": "must be at most {wanted}, and is {value}",
    "minItems": "must not be empty, and is {value}",
    "maxItems": "must have at most {wanted} entries, and is {value}",
    "minLength": "must not be empty, and is {value}",
    "maxLength": "must have at most {wanted} characters, and is {value}",
    "minProperties": "must have at least {wanted} fields, and is {value}",
    "format": "must be an RFC 3339 timestamp, and is {value}",
}

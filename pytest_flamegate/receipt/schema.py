"""The published JSON Schemas, applied without jsonschema's own leniencies.

jsonschema takes 128.0 for an integer and NaN for a number, and with no checker
installed any string for a date-time. Its messages quote whole documents. The
vocabulary is 2020-12; only the types, one format and the wording are our own.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pytest_flamegate.errors import ToolError
from pytest_flamegate.receipt.compiled import Compiler
from pytest_flamegate.receipt.findings import Refusal, shown
from pytest_flamegate.receipt.timestamps import is_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

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
    where = shown(".".join(path)) if path else f"The {kind}"
    todo = f"See the {kind} schema {VERSION} for what belongs there."
    return Fault(top, Refusal(code, f"{where} {complaint}.", todo))


def _complaint(error: ValidationError) -> str:
    value: object = error.instance
    wanted: Any = error.validator_value
    if error.validator == "type":
        names = wanted if isinstance(wanted, list) else [wanted]
        return f"must be {' or '.join(names)}, and is {shown(value)}"
    if error.validator == "enum":
        return f"must be one of {', '.join(map(shown, wanted))}, and is {shown(value)}"
    if error.validator == "pattern" and isinstance(error.schema, dict):
        alike = ", ".join(map(shown, error.schema.get("examples", [])))
        return f"must look like {alike or 'the schema says'}, and is {shown(value)}"
    template = _TEMPLATES.get(str(error.validator), "does not satisfy the schema: {value}")
    return template.format(value=shown(value), wanted=shown(wanted))


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

"""``receipt.json`` and ``evidence.json``: typed objects to bytes and back, checked on the way.

``schemas/receipt-1.0.0.schema.json`` is the contract for receipts, which any program may have
written; the other schemas are generated from types. jsonschema takes 128.0 for an integer and NaN
for a number, and its messages quote whole documents, so types, timestamps and wording are our own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from pytest_flamegate.core.errors import ReceiptError, ToolError
from pytest_flamegate.core.json import (
    EVIDENCE_LIMITS,
    RECEIPT_LIMITS,
    Count,
    NonEmpty,
    Positive,
    decode_plain,
    encode_json,
    encode_plain,
    is_timestamp,
    parse_json,
)
from pytest_flamegate.core.text import Refusal, quote
from pytest_flamegate.receipt.types import SCHEMA_VERSION, Evidence, Receipt

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

FIELD_CODES = {
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
"""The fields of schema 1.0.0 in the order in which they are written, and the codes of errors."""
EVIDENCE_CODE = "E_EVIDENCE_SCHEMA"
_MAX_REPORTED = 8
"""Faults of one list or object that are named: a megabyte of them is a handful."""
_REMEDY = f"See the receipt schema {SCHEMA_VERSION} for what belongs there."


@dataclass(frozen=True, slots=True)
class Fault:
    """One departure from the schema, and the top-level field it lies in (None for the whole)."""

    field: str | None
    refusal: Refusal


class _Environment(TypedDict):
    OS: NonEmpty
    FLAMEGATE_ENGINE: NotRequired[NonEmpty]


class _ReceiptModel(TypedDict):
    path: NonEmpty
    sha256: NotRequired[str]


class _Recipe(TypedDict):
    """The fields of a recipe that rules rely on; the rest is the engine's."""

    engine: NonEmpty
    max_tokens: NotRequired[Positive]


class _Model(TypedDict, total=False):
    """The known fields of a model's description; others are text or integers."""

    path: str
    name: str
    architecture: str
    parameters: int
    quantisation: str
    bytes_per_token: Count
    sha256: str
    size_bytes: int


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the bytes of ``receipt.json``.

    Raises:
        ReceiptError: The published schema rejects it; the code is that of the field.
    """
    plain = encode_plain(receipt)
    data = encode_json({name: plain[name] for name in FIELD_CODES})
    _require_none(find_schema_faults(parse_json(data)))
    return data


def decode_receipt(data: bytes) -> Receipt:
    """Return the receipt that ``data`` holds.

    Only its form is checked here; ``verify_receipt`` says whether it is honest. The backend is
    read in any case, and fields beyond schema 1.0.0 are left out.

    Raises:
        ReceiptError: It is not JSON, or the published schema rejects it.
    """
    document = parse_json(data, RECEIPT_LIMITS, subject="The receipt")
    _require_none(find_faults(document))
    document["backend"] = document["backend"].lower()
    return decode_plain(document, Receipt, subject="The receipt")


def _require_none(faults: Sequence[Fault]) -> None:
    for fault in faults:
        raise ReceiptError(fault.refusal.code, fault.refusal.message, fault.refusal.remedy)


def encode_evidence(evidence: Evidence) -> bytes:
    """Return the bytes of ``evidence.json``; ReceiptError for figures that are not finite."""
    return encode_json(evidence)


def decode_evidence(data: bytes) -> Evidence:
    """Return the evidence that ``data`` holds; ReceiptError if it is malformed."""
    document = parse_json(data, EVIDENCE_LIMITS, subject="The evidence")
    evidence = decode_plain(
        document, Evidence, subject="The evidence", code=EVIDENCE_CODE, versioned=True
    )
    # These two are open to other fields, which a dataclass would drop.
    decode_plain(evidence.workload, _Recipe, subject="The evidence's workload", code=EVIDENCE_CODE)
    decode_plain(evidence.model, _Model, subject="The evidence's model", code=EVIDENCE_CODE)
    return evidence


def find_faults(document: object) -> list[Fault]:
    """Return each way in which a parsed ``document`` departs from the schema of receipts."""
    return [] if _is_plain_receipt(document) else find_schema_faults(document)


def find_schema_faults(document: object) -> list[Fault]:
    """Return the faults that jsonschema finds, as for each receipt that is written."""
    found = _validator().iter_errors(cast("Any", document))
    errors = sorted(found, key=lambda error: error.json_path)
    return [_fault(error) for error in errors]


def _is_plain_receipt(document: object) -> bool:
    """Whether ``document`` is like the receipts written here: then the schema accepts it too.

    jsonschema takes a hundred times as long and decides about all others.
    """
    # The type has defaults for two fields, and knows nothing of the fields of version 1.1.0.
    if not isinstance(document, dict) or not FIELD_CODES.keys() <= document.keys():
        return False
    if document["schema_version"] == "1.1.0":
        return False
    try:
        receipt = decode_plain(document, Receipt)
        decode_plain(receipt.environment, _Environment)
        decode_plain(receipt.model, _ReceiptModel)
    except ReceiptError:
        return False
    return True


@cache
def load_schema(kind: str = "receipt") -> dict[str, Any]:
    """Return a published schema as a document; ToolError if the installation lacks it."""
    name = f"{kind}-{SCHEMA_VERSION}.schema.json"
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
def _validator() -> Validator:
    # jsonschema takes 90 ms to import, which only a foreign or malformed receipt costs.
    from jsonschema import Draft202012Validator, FormatChecker, validators

    def is_integer(_: object, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def is_number(_: object, value: object) -> bool:
        return is_integer(_, value) or (isinstance(value, float) and math.isfinite(value))

    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": is_integer, "number": is_number}
    )
    formats = FormatChecker(formats=())
    formats.checks("date-time")(lambda value: not isinstance(value, str) or is_timestamp(value))
    keywords = {
        name: _first_few(Draft202012Validator.VALIDATORS[name])
        for name in ("items", "additionalProperties")
    }
    extend: Any = validators.extend
    strict = extend(Draft202012Validator, keywords, type_checker=types)
    return cast("Validator", strict(load_schema(), format_checker=formats))


def _first_few(keyword: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    return lambda *arguments: islice(keyword(*arguments), _MAX_REPORTED)


def _fault(error: ValidationError) -> Fault:
    path = [str(step) for step in error.absolute_path]
    complaint = _complaint(error)
    if error.validator == "required" and isinstance(error.instance, Mapping):
        # jsonschema reports each missing name by itself and has the name in its message only.
        wanted = cast("list[str]", error.validator_value)
        path.append(next(name for name in wanted if error.message.startswith(repr(name))))
    top = path[0] if path else None
    place = quote(".".join(path)) if path else "The receipt"
    code = FIELD_CODES.get(top or "", "E_SCHEMA")
    return Fault(top, Refusal(code, f"{place} {complaint}.", _REMEDY))


def _complaint(error: ValidationError) -> str:
    value, wanted = quote(error.instance), cast("Any", error.validator_value)
    if error.validator == "type":
        return f"must be {wanted}, and is {value}"
    if error.validator == "enum":
        return f"must be one of {', '.join(map(quote, wanted))}, and is {value}"
    if error.validator == "pattern" and isinstance(error.schema, dict):
        examples = ", ".join(map(quote, error.schema.get("examples", [])))
        return f"must look like {examples}, and is {value}"
    return _COMPLAINTS[str(error.validator)].format(value=value, wanted=quote(wanted))


_COMPLAINTS = {
    "required": "is missing",
    "const": "must be {wanted}, and is {value}",
    "minimum": "must be at least {wanted}, and is {value}",
    "exclusiveMinimum": "must be greater than {wanted}, and is {value}",
    "minItems": "must not be empty, and is {value}",
    "maxItems": "must have at most {wanted} entries, and is {value}",
    "minLength": "must not be empty, and is {value}",
    "maxLength": "must have at most {wanted} characters, and is {value}",
    "format": "must be an RFC 3339 timestamp, and is {value}",
}

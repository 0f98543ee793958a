"""``receipt.json`` and ``evidence.json``: typed objects to bytes and back, checked on the way.

``schemas/receipt-1.0.0.schema.json`` is the contract for receipts, which any program may have
written. ``_KINDS`` states it as types for reading, and a test compares the two; a receipt that is
written here is held to the schema itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import (
    Count,
    NonEmpty,
    Positive,
    convert,
    decode_canonical,
    decode_plain,
    encode_json,
    encode_plain,
)
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS, MAX_DEPTH, RECEIPT_LIMITS, parse_json
from pytest_flamegate.core.text import Refusal, quote
from pytest_flamegate.receipt.types import SCHEMA_VERSION, Evidence, Receipt

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

FIELDS = (
    *("schema_version", "timestamp", "compute_path", "backend", "deterministic"),
    *("tokens_requested", "tokens_generated", "tokens_per_second", "kernels"),
    *("environment", "model"),
)
"""The fields of schema 1.0.0 in the order in which they are written."""
_CODES = {
    "schema_version": "E_SCHEMA_VERSION",
    "compute_path": "E_COMPUTE_PATH",
    "tokens_per_second": "E_TPS",
    "kernels": "E_KERNELS",
}
"""The codes of errors in these fields; in any other it is ``E_SCHEMA``."""
EVIDENCE_CODE = "E_EVIDENCE_SCHEMA"
_CANONICAL_BYTES = 1 << 20
"""Larger evidence is always counted and measured before anything is built from it."""
_VERSION = re.compile(rb'"schema_version"\s*:\s*"1\.0\.0"\s*}\s*\Z')
"""The end of evidence: this field must be there, although its type has a default."""
_VERSION_BYTES = 64
_NINES = bytes.maketrans(b"012345678", b"9" * 9)
_LONG_NUMBER = b"9" * 65
"""Longer than any number that ``parse_json`` accepts, if every digit is a nine."""


class _Environment(TypedDict):
    OS: NonEmpty
    FLAMEGATE_ENGINE: NotRequired[NonEmpty]


class _ReceiptModel(TypedDict):
    path: NonEmpty
    sha256: NotRequired[str]


class _Quantization(TypedDict, total=False):
    types_used: tuple[str, ...]
    fallback_count: Count
    device_aware_selection: bool


_AnyCase = Annotated[
    str,
    Meta(
        pattern=r"^(?:[Cc][Pp][Uu]|[Cc][Uu][Dd][Aa])(?![\s\S])",
        description="cpu or cuda in any case",
    ),
]
_TYPES = {
    **get_type_hints(Receipt, include_extras=True),
    "backend": _AnyCase,
    "model": _ReceiptModel,
}
_KINDS: tuple[tuple[str, Any], ...] = (
    *((name, _TYPES[name]) for name in FIELDS),
    ("environment", _Environment),
)
"""The fields of a receipt; another program may write its backend and model more freely."""
_REQUIRED = msgspec.defstruct("Required", [(name, _TYPES[name]) for name in FIELDS])
_MORE_KINDS: tuple[tuple[str, Any], ...] = (
    ("kernel_path", Literal["native_quantized", "fp32_fallback", "unknown"]),
    ("quantization", _Quantization),
)
"""The optional fields of version 1.1.0."""


class _Recipe(TypedDict):
    """The fields of a recipe that rules rely on; the rest is the engine's."""

    engine: NonEmpty
    max_tokens: NotRequired[Positive]
    prompts: NotRequired[Annotated[tuple[str, ...], Meta(min_length=2)]]


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
    """Return the bytes of ``receipt.json``, which the published schema accepts.

    Raises ReceiptError if a field is at fault (its code) or the schema rejects it (``E_SCHEMA``).
    """
    plain = encode_plain(receipt)
    data = encode_json({name: plain[name] for name in FIELDS})
    _require_no_fault(plain)
    for error in _schema_validator().iter_errors(json.loads(data)):  # noqa: TID251 - an installed schema
        raise ReceiptError(
            "E_SCHEMA",
            f"The receipt departs from its schema at {error.json_path}: {error.message[:200]!a}.",
            "Report this: flamegate may only write receipts that its schema accepts.",
        )
    return data


@cache
def _schema_validator() -> Validator:
    from jsonschema import Draft202012Validator  # 90 ms, which only a written receipt costs

    name = f"receipt-{SCHEMA_VERSION}.schema.json"
    package = Path(str(resources.files("pytest_flamegate")))
    # A wheel carries the schemas inside the package, a checkout beside it.
    inside, beside = (place / "schemas" / name for place in (package, package.parent))
    text = (inside if inside.is_file() else beside).read_text("utf-8")
    return Draft202012Validator(json.loads(text))  # noqa: TID251 - composed here


def decode_receipt(data: bytes) -> Receipt:
    """Return the receipt that ``data`` holds; ReceiptError, with the field's code, for a fault.

    Only its form is checked here; ``verify_receipt`` says whether it is honest. The backend is
    read in any case, and fields beyond schema 1.0.0 are left out.
    """
    document = parse_json(data, RECEIPT_LIMITS, subject="The receipt")
    _require_no_fault(document)
    document["backend"] = document["backend"].lower()
    return decode_plain(document, Receipt, subject="The receipt")


def _require_no_fault(document: object) -> None:
    for refusal in find_faults(document).values():
        raise ReceiptError(refusal.code, refusal.message, refusal.remedy)


def encode_evidence(evidence: Evidence) -> bytes:
    """Return the bytes of ``evidence.json``; ReceiptError for figures that are not finite."""
    return encode_json(evidence)


def decode_evidence(data: bytes) -> Evidence:
    """Return the evidence that ``data`` holds; ReceiptError if it is malformed."""
    evidence = _decode_canonical(data)
    if evidence is None:
        document = parse_json(data, EVIDENCE_LIMITS, subject="The evidence")
        evidence = decode_plain(
            document, Evidence, subject="The evidence", code=EVIDENCE_CODE, versioned=True
        )
    # These two are open to other fields, which a dataclass would drop.
    decode_plain(evidence.workload, _Recipe, subject="The evidence's workload", code=EVIDENCE_CODE)
    decode_plain(evidence.model, _Model, subject="The evidence's model", code=EVIDENCE_CODE)
    return evidence


def _decode_canonical(data: bytes) -> Evidence | None:
    """Return evidence that has all fields once and in order; None for any other document."""
    if len(data) > _CANONICAL_BYTES or not _VERSION.search(data, len(data) - _VERSION_BYTES):
        return None
    found = decode_canonical(data, Evidence)
    if found is None or _LONG_NUMBER in found[1].translate(_NINES):
        return None
    # The types bound the depth of everything but the recipe, and few brackets are never deep.
    recipe = msgspec.json.encode(found[0].workload)
    is_shallow = recipe.count(b"[") + recipe.count(b"{") < MAX_DEPTH
    return found[0] if is_shallow else None


def find_faults(document: object) -> dict[str, Refusal]:
    """Return an error for each field of ``document`` that departs from the schema of receipts.

    The field is "" if the whole document is no object.
    """
    remedy = f"See the receipt schema {SCHEMA_VERSION} for the fields that belong there."
    if not isinstance(document, Mapping):
        problem = f"The receipt must be an object, and is {quote(document)}."
        return {"": Refusal("E_SCHEMA", problem, remedy)}
    has_more = document.get("schema_version") == "1.1.0"
    with suppress(msgspec.ValidationError):
        if not has_more:
            convert(document, _REQUIRED)
            convert(document["environment"], _Environment)
            return {}
    found: dict[str, Refusal] = {}
    for name, kind, is_required in _checks(has_more):
        if name in found or not (is_required or name in document):
            continue
        code = _CODES.get(name, "E_SCHEMA")
        given = {name: document[name]} if name in document else {}
        try:
            decode_plain(given, kind, subject="The receipt", code=code)
        except ReceiptError as error:
            found[name] = Refusal(code, error.problem, remedy)
    return found


@cache
def _checks(has_more: bool) -> tuple[tuple[str, Any, bool], ...]:
    """Return name, type of an object with that one field, and whether it is required."""
    return tuple(
        (name, msgspec.defstruct("Field", [(name, kind)]), name in FIELDS)
        for name, kind in (_KINDS + _MORE_KINDS if has_more else _KINDS)
    )

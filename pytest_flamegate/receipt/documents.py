"""``receipt.json`` and ``evidence.json``: typed objects to bytes and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import (
    EVIDENCE_LIMITS,
    RECEIPT_LIMITS,
    Count,
    NonEmpty,
    Positive,
    decode_plain,
    encode_json,
    encode_plain,
    parse_json,
)
from pytest_flamegate.receipt.schema import Fault, find_faults, find_schema_faults
from pytest_flamegate.receipt.types import Evidence, Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

RECEIPT_FIELDS = (
    "schema_version",
    "timestamp",
    "compute_path",
    "backend",
    "deterministic",
    "tokens_requested",
    "tokens_generated",
    "tokens_per_second",
    "kernels",
    "environment",
    "model",
)
"""Schema 1.0.0, in the order in which its fields are written."""
EVIDENCE_CODE = "E_EVIDENCE_SCHEMA"


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
    data = encode_json({name: plain[name] for name in RECEIPT_FIELDS})
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

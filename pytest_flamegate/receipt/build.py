"""Receipts and evidence as bytes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.errors import ReceiptError
from pytest_flamegate.receipt import schema, strict_json
from pytest_flamegate.receipt.codec import from_plain, to_plain
from pytest_flamegate.receipt.types import Evidence, Receipt

if TYPE_CHECKING:
    from pytest_flamegate.receipt.schema import Kind

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


def receipt_document(receipt: Receipt) -> dict[str, object]:
    """Return ``receipt`` as the document of schema 1.0.0, its fields in their order."""
    plain = to_plain(receipt)
    return {name: plain[name] for name in RECEIPT_FIELDS}


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the bytes of ``receipt.json``; ReceiptError for figures that are not finite."""
    return strict_json.dumps(receipt_document(receipt))


def encode_evidence(evidence: Evidence) -> bytes:
    """Return the bytes of ``evidence.json``; ReceiptError for figures that are not finite."""
    return strict_json.dumps(to_plain(evidence))


def decode_receipt(data: bytes) -> Receipt:
    """Return the receipt that ``data`` holds; ReceiptError where it is malformed.

    Only its form is checked here: whether it is honest, ``verify_receipt`` says. The
    backend is read in any case; fields beyond schema 1.0.0 are left out.
    """
    document = _checked(data, "receipt", strict_json.RECEIPT_MAX_BYTES)
    document["backend"] = str(document["backend"]).lower()
    return from_plain(Receipt, document)


def decode_evidence(data: bytes) -> Evidence:
    """Return the evidence that ``data`` holds; ReceiptError where it is malformed."""
    return from_plain(Evidence, _checked(data, "evidence", strict_json.EVIDENCE_MAX_BYTES))


def _checked(data: bytes, kind: Kind, max_bytes: int) -> dict[str, object]:
    document = strict_json.loads(data, max_bytes=max_bytes)
    refusals = schema.validate(document, kind)
    if refusals:
        first = refusals[0]
        raise ReceiptError(first.code, first.message, first.todo)
    assert isinstance(document, dict)  # the schema says so
    return document

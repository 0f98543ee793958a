"""Attestations: a DSSE envelope (version 1) around an in-toto statement about a receipt's files.

A signature covers the raw bytes of the payload and their type. So nothing is brought into a
canonical form before signing, and bytes signed as one type are never read as another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import EVIDENCE_LIMITS, Limits, decode_json, encode_json
from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.sources import EVIDENCE_NAME, FOLDED_NAME, RECEIPT_NAME

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:pytest-flamegate:evidence:1.0.0"
SUBJECTS = (RECEIPT_NAME, EVIDENCE_NAME, FOLDED_NAME)
PAYLOAD_MAX_BYTES = EVIDENCE_LIMITS.max_bytes + (64 << 10)
ENVELOPE_MAX_BYTES = PAYLOAD_MAX_BYTES // 3 * 4 + (64 << 10)
MAX_SIGNATURES = 64
"""Each signature costs a verification: ten thousand of them would take seconds."""
MAX_SUBJECTS = 64

_URL_SAFE_TO_STANDARD = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True)
class Signature:
    """Raw bytes ``sig``. ``keyid`` is an unverified hint and may be empty."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """The signed bytes ``payload``, their type, and at least one signature."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    @property
    def message(self) -> bytes:
        """The bytes that each signature covers."""
        return encode_message(self.payload_type, self.payload)


class _SignatureFields(msgspec.Struct):
    sig: str
    keyid: str = ""


class _EnvelopeFields(msgspec.Struct, rename="camel"):
    payload: str
    payload_type: str
    signatures: Annotated[
        tuple[_SignatureFields, ...], Meta(min_length=1, max_length=MAX_SIGNATURES)
    ]


class _Digests(msgspec.Struct):
    sha256: str = ""


class _Subject(msgspec.Struct):
    digest: _Digests
    name: str = ""


class Statement(msgspec.Struct, frozen=True, rename={"type": "_type"}):
    """An in-toto statement. Fields that flamegate does not use are ignored."""

    type: str
    subject: Annotated[tuple[_Subject, ...], Meta(min_length=1, max_length=MAX_SUBJECTS)]
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: dict[str, Any] = {}

    @property
    def subjects(self) -> list[tuple[str, str]]:
        """Name and sha256 in hex of each subject, either empty if it is not stated."""
        return [(each.name, each.digest.sha256) for each in self.subject]


def encode_message(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding: type and payload, each after its length."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def encode_envelope(envelope: Envelope) -> bytes:
    """Return ``envelope`` as JSON, in standard base64; equal envelopes give equal bytes."""
    return encode_json(
        {
            "payload": base64.b64encode(envelope.payload).decode("ascii"),
            "payloadType": envelope.payload_type,
            "signatures": [
                {"keyid": each.keyid, "sig": base64.b64encode(each.sig).decode("ascii")}
                for each in envelope.signatures
            ],
        }
    )


def read_envelope(data: bytes, likely: bytes = b"") -> Envelope:
    """Return the envelope that ``data`` holds. Both alphabets of base64 are read.

    ``likely`` is the expected payload: comparing with it takes a quarter of the time of decoding.

    Raises:
        ReceiptError: ``E_SIGNATURE_ENVELOPE``.
    """
    fields = _decode(data, _EnvelopeFields, ENVELOPE_MAX_BYTES)
    return Envelope(
        _decode_base64(fields.payload, "payload", likely),
        fields.payload_type,
        tuple(Signature(each.keyid, _decode_base64(each.sig, "sig")) for each in fields.signatures),
    )


def hash_files(files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Return name and sha256 of the raw bytes of each subject among ``files``, in order."""
    return [(name, hashlib.sha256(files[name]).hexdigest()) for name in SUBJECTS if name in files]


def encode_predicate(files: Mapping[str, bytes]) -> bytes:
    """Return the predicate, which is the evidence word for word, or ``{}`` without evidence."""
    return files.get(EVIDENCE_NAME, b"{}").strip(b" \t\r\n")


def encode_statement(files: Mapping[str, bytes]) -> bytes:
    """Return the statement about ``files`` (name to content)."""
    subjects = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in hash_files(files)]
    head = {"_type": STATEMENT_TYPE, "subject": subjects, "predicateType": PREDICATE_TYPE}
    text = json.dumps(head, separators=(",", ":")).encode("ascii")
    return b'%b,"predicate":%b}' % (text[:-1], encode_predicate(files))


def read_statement(payload: bytes) -> Statement:
    """Return the statement that ``payload`` holds.

    Raises:
        ReceiptError: ``E_SIGNATURE_ENVELOPE``.
    """
    return _decode(payload, Statement, PAYLOAD_MAX_BYTES)


def malformed_error(problem: str) -> ReceiptError:
    """Return the error for an attestation that is not one of flamegate."""
    return ReceiptError(
        "E_SIGNATURE_ENVELOPE",
        f"The attestation is not one of flamegate. {problem}",
        "Sign the receipt again with flamegate sign.",
    )


_T = TypeVar("_T")


def _decode(data: bytes, kind: type[_T], max_bytes: int) -> _T:
    try:
        return decode_json(data, kind, Limits(max_bytes), subject="It")
    except ReceiptError as error:
        raise malformed_error(error.problem) from None


def _decode_base64(text: str, name: str, likely: bytes = b"") -> bytes:
    """Decode base64, only in the form that encoding gives; others could be read in two ways."""
    if text.isascii():
        given = text.encode("ascii")
        if binascii.b2a_base64(likely, newline=False) == given:
            return likely
        if (b"-" in given or b"_" in given) and b"+" not in given and b"/" not in given:
            given = given.translate(_URL_SAFE_TO_STANDARD)
        try:
            data = binascii.a2b_base64(given)
        except binascii.Error:
            data = None
        if data is not None and binascii.b2a_base64(data, newline=False) == given:
            return data
    raise malformed_error(f'"{name}" is not base64: {quote(text)}.')

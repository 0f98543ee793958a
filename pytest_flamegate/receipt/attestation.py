"""DSSE envelopes, version 1: any bytes, what they are, and signatures over both.

A signature covers the payload's raw bytes and its type, so nothing is put into a canonical
form before signing, and bytes signed as one type are never read as another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json as json_
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import json, json_old
from pytest_flamegate.core.json_old import FieldError, list_of, object_of, text_of
from pytest_flamegate.core.text import Refusal, quote
from pytest_flamegate.receipt.sources import EVIDENCE_NAME, FOLDED_NAME, RECEIPT_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping


PAYLOAD_TYPE = "application/vnd.in-toto+json"
PAYLOAD_MAX_BYTES = json_old.EVIDENCE_MAX_BYTES + (64 << 10)
ENVELOPE_MAX_BYTES = PAYLOAD_MAX_BYTES // 3 * 4 + (64 << 10)
MAX_SIGNATURES = 64
"""Each costs a verification: ten thousand of them would buy seconds."""

_STANDARD = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True)
class Signature:
    """``sig`` are raw bytes; ``keyid`` is a hint that nobody vouches for, and may be empty."""

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
        """What each signature is over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding: type and payload, each after its length in bytes."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def encode(envelope: Envelope) -> bytes:
    """Return ``envelope`` as JSON, in standard base64."""
    return json_old.dumps(
        {
            "payload": base64.b64encode(envelope.payload).decode("ascii"),
            "payloadType": envelope.payload_type,
            "signatures": [
                {"keyid": each.keyid, "sig": base64.b64encode(each.sig).decode("ascii")}
                for each in envelope.signatures
            ],
        }
    )


def read(data: bytes, likely: bytes = b"") -> Envelope | Refusal:
    """Return the envelope that ``data`` holds, or why it holds none; never raises.

    Both alphabets of base64 are read. Fields that the format does not know are ignored.
    ``likely`` is what the payload probably is: to see that takes a quarter of decoding it.
    """
    document = json_old.parse(data, max_bytes=ENVELOPE_MAX_BYTES)
    if isinstance(document, Refusal):
        return _refused(document.message)
    try:
        return _envelope(document, likely)
    except FieldError as error:
        return _refused(str(error))


def _envelope(document: object, likely: bytes) -> Envelope:
    fields = object_of(document, "It")
    return Envelope(
        _bytes(fields.get("payload"), "payload", likely),
        text_of(fields.get("payloadType"), '"payloadType"'),
        tuple(map(_signature, list_of(fields.get("signatures"), '"signatures"', MAX_SIGNATURES))),
    )


def _signature(document: object) -> Signature:
    fields = object_of(document, "A signature")
    return Signature(text_of(fields.get("keyid", ""), '"keyid"'), _bytes(fields.get("sig"), "sig"))


def _bytes(text: object, name: str, likely: bytes = b"") -> bytes:
    """Decode base64 in the one form that encoding gives back: anything else has two readings."""
    if isinstance(text, str) and text.isascii():
        given = text.encode("ascii")
        if binascii.b2a_base64(likely, newline=False) == given:
            return likely
        if (b"-" in given or b"_" in given) and b"+" not in given and b"/" not in given:
            given = given.translate(_STANDARD)
        try:
            data = binascii.a2b_base64(given)
        except binascii.Error:
            data = None
        if data is not None and binascii.b2a_base64(data, newline=False) == given:
            return data
    raise FieldError(f'"{name}" is not base64: {quote(text)}.')


def _refused(message: str) -> Refusal:
    return Refusal(
        "E_SIGNATURE_ENVELOPE",
        f"The attestation is no DSSE envelope. {message}",
        "Sign the receipt again with flamegate sign.",
    )


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:pytest-flamegate:evidence:1.0.0"
SUBJECTS = (RECEIPT_NAME, EVIDENCE_NAME, FOLDED_NAME)
MAX_SUBJECTS = 64


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it was read.

    ``subjects`` are pairs of a name and a sha256 in hex, either empty where it was not given.
    """

    type: str
    subjects: tuple[tuple[str, str], ...]
    predicate_type: str
    predicate: Mapping[str, object]


def digests(files: Mapping[str, bytes]) -> tuple[tuple[str, str], ...]:
    """Return name and sha256 of the raw bytes of each subject among ``files``, in order."""
    return tuple(
        (name, hashlib.sha256(files[name]).hexdigest()) for name in SUBJECTS if name in files
    )


def predicate(files: Mapping[str, bytes]) -> bytes:
    """Return what is stated about the subjects: the evidence as it stands, or ``{}``."""
    return files.get(EVIDENCE_NAME, b"{}").strip(b" \t\r\n")


def encode_statement(files: Mapping[str, bytes]) -> bytes:
    """Return the statement about ``files`` (name to content); the evidence stands as it is."""
    head = json_.dumps(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in digests(files)
            ],
            "predicateType": PREDICATE_TYPE,
        },
        separators=(",", ":"),
    )
    return b'%b,"predicate":%b}' % (head[:-1].encode("ascii"), predicate(files))


def read_statement(payload: bytes) -> Statement | Refusal:
    """Return the statement that ``payload`` holds, or why it holds none; never raises.

    Fields that the format does not know are ignored.
    """
    # The evidence, as deep as it may be, stands one level down.
    depth = json.MAX_DEPTH + 1
    document = json_old.parse(payload, max_bytes=PAYLOAD_MAX_BYTES, max_depth=depth)
    if isinstance(document, Refusal):
        return _refused_statement(document.message)
    try:
        return _statement(document)
    except FieldError as error:
        return _refused_statement(str(error))


def _statement(document: object) -> Statement:
    fields = object_of(document, "It")
    return Statement(
        text_of(fields.get("_type"), '"_type"'),
        tuple(map(_subject, list_of(fields.get("subject"), '"subject"', MAX_SUBJECTS))),
        text_of(fields.get("predicateType"), '"predicateType"'),
        object_of(fields.get("predicate", {}), '"predicate"'),
    )


def _subject(document: object) -> tuple[str, str]:
    fields = object_of(document, "A subject")
    digest = object_of(fields.get("digest"), '"digest"')
    return text_of(fields.get("name", ""), '"name"'), text_of(digest.get("sha256", ""), '"sha256"')


def _refused_statement(message: str) -> Refusal:
    return Refusal(
        "E_SIGNATURE_STATEMENT",
        f"What was signed is no in-toto statement. {message}",
        "Sign the receipt again with flamegate sign.",
    )

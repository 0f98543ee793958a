"""DSSE envelopes, version 1: any bytes, what they are, and signatures over both.

A signature covers the payload's raw bytes and its type, so nothing is put into a canonical
form before signing, and bytes signed as one type are never read as another.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from pytest_flamegate.receipt import strict_json
from pytest_flamegate.receipt.fields import FieldError, list_of, object_of, text_of
from pytest_flamegate.receipt.findings import Refusal, shown

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PAYLOAD_MAX_BYTES = strict_json.EVIDENCE_MAX_BYTES + (64 << 10)
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
    return strict_json.dumps(
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
    document = strict_json.parse(data, max_bytes=ENVELOPE_MAX_BYTES)
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
    raise FieldError(f'"{name}" is not base64: {shown(text)}.')


def _refused(message: str) -> Refusal:
    return Refusal(
        "E_SIGNATURE_ENVELOPE",
        f"The attestation is no DSSE envelope. {message}",
        "Sign the receipt again with flamegate sign.",
    )

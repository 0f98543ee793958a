"""Sign the files of a receipt, and check who signed them.

An attestation is a DSSE envelope (version 1) around an in-toto statement about the files. A
signature covers the raw bytes of the payload and their type, so nothing is brought into a canonical
form before signing, and bytes signed as one type are never read as another. A signature is verified
before its payload is parsed: the payload of an unknown signer is never parsed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.json import decode_canonical, decode_json, encode_json
from pytest_flamegate.core.json_parser import EVIDENCE_LIMITS, Limits, parse_json
from pytest_flamegate.core.text import Notice, Refusal, quote
from pytest_flamegate.receipt import sources
from pytest_flamegate.receipt.baseline import EVIDENCE, FOLDED, RECEIPT

if TYPE_CHECKING:
    # cryptography is an extra: importing it here would fail without it.
    from pytest_flamegate.receipt.keys import PrivateKey, PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:pytest-flamegate:evidence:1.0.0"
SUBJECTS = (RECEIPT, EVIDENCE, FOLDED)
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


class _SignatureFields(msgspec.Struct, kw_only=True):
    keyid: str = ""
    sig: str


class _EnvelopeFields(msgspec.Struct, rename="camel"):
    payload: str
    payload_type: str
    signatures: Annotated[
        tuple[_SignatureFields, ...], Meta(min_length=1, max_length=MAX_SIGNATURES)
    ]


class _FileDigest(msgspec.Struct):
    sha256: str = ""


class _SignedFile(msgspec.Struct):
    digest: _FileDigest
    name: str = ""


class Statement(msgspec.Struct, frozen=True, rename={"type": "_type"}):
    """An in-toto statement. Fields that flamegate does not use are ignored."""

    type: str
    subject: Annotated[tuple[_SignedFile, ...], Meta(min_length=1, max_length=MAX_SUBJECTS)]
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
    """Return the envelope that ``data`` holds; ReceiptError ``E_SIGNATURE_ENVELOPE``.

    Both alphabets of base64 are read. ``likely`` is the expected payload: comparing with it takes a
    quarter of the time of decoding.
    """
    found = decode_canonical(data, _EnvelopeFields) if len(data) <= ENVELOPE_MAX_BYTES else None
    fields = found[0] if found else _decode(data, _EnvelopeFields, ENVELOPE_MAX_BYTES)
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
    return files.get(EVIDENCE, b"{}").strip(b" \t\r\n")


def encode_statement(files: Mapping[str, bytes]) -> bytes:
    """Return the statement about ``files`` (name to content)."""
    subjects = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in hash_files(files)]
    head = {"_type": STATEMENT_TYPE, "subject": subjects, "predicateType": PREDICATE_TYPE}
    text = json.dumps(head, separators=(",", ":")).encode("ascii")
    return b'%b,"predicate":%b}' % (text[:-1], encode_predicate(files))


def malformed_error(problem: str) -> ReceiptError:
    """Return the error for an attestation that is not one of flamegate."""
    return ReceiptError(
        "E_SIGNATURE_ENVELOPE", f"The attestation is not one of flamegate. {problem}"
    )


_T = TypeVar("_T")


def _decode(data: bytes, kind: type[_T], max_bytes: int) -> _T:
    try:
        return decode_json(data, kind, Limits(max_bytes), subject="Its content")
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


OTHER_FILES = "E_SIGNATURE_SUBJECT"
"""A trusted key signed other files than these, so they were changed. All other codes only mean
that the signature which the reader wants is missing, which says nothing about honesty."""

_UNCHECKED = Notice("W_SIGNATURE_UNCHECKED", "The receipt has a signature, which was not checked.")
_MISSING = Refusal("E_SIGNATURE_MISSING", "A key was given, but the receipt has no signature.")


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """The result of a check. ``signed_by`` is a keyid if everything holds, else None."""

    signed_by: str | None = None
    refusals: tuple[Refusal, ...] = ()
    notices: tuple[Notice, ...] = ()


def check_signature(
    source: sources.Source | None, trusted: Sequence[sources.Source], files: Mapping[str, bytes]
) -> SignatureCheck:
    """Check whether one of the ``trusted`` keys signed exactly ``files``; never raises.

    ``source`` is the attestation, ``trusted`` are public keys in PEM. Without any key, nothing is
    checked.
    """
    if not trusted:
        return SignatureCheck() if source is None else SignatureCheck(notices=(_UNCHECKED,))
    refusals: list[Refusal] = []
    keys: list[PublicKey] = []
    for key in trusted:
        try:
            from pytest_flamegate.receipt.keys import load_public_key, read_key_file

            keys.append(load_public_key(read_key_file(key)))
        except FlamegateError as error:
            refusals.append(sources.make_refusal(error))
    raw = _MISSING if source is None else sources.read_source(source, ENVELOPE_MAX_BYTES)
    if isinstance(raw, Refusal):
        refusals.append(raw)
        return SignatureCheck(refusals=tuple(refusals))
    expected = encode_statement(files)
    try:
        envelope = read_envelope(raw, expected)
        if refusals:
            return SignatureCheck(refusals=tuple(refusals))
        signed_by = _find_signer(envelope, keys)
        if (envelope.payload_type, envelope.payload) != (PAYLOAD_TYPE, expected):
            differences = _compare(_statement_of(envelope), files)
            refusals += (Refusal(OTHER_FILES, each) for each in differences)
    except ReceiptError as error:
        refusals.append(sources.make_refusal(error))
    return SignatureCheck(None if refusals else signed_by, tuple(refusals))


def _find_signer(envelope: Envelope, trusted: Sequence[PublicKey]) -> str:
    """Return the keyid of a trusted key that signed; ReceiptError if none did."""
    message = envelope.message
    for key in trusted:
        # The keyids in the envelope are hints: they say which signature to try first.
        for each in sorted(envelope.signatures, key=lambda each: each.keyid != key.keyid):
            if key.verify(each.sig, message):
                return key.keyid
    claimed = ", ".join(quote(each.keyid) for each in envelope.signatures[:3])
    raise ReceiptError(
        "E_SIGNATURE_MISSING",
        f"None of the given keys signed this. It claims to be signed by {claimed}.",
    )


def _statement_of(envelope: Envelope) -> Statement:
    """Return the signed statement; ReceiptError if it is not one of flamegate."""
    if envelope.payload_type != PAYLOAD_TYPE:
        raise malformed_error(f"The type of its payload is {quote(envelope.payload_type)}.")
    statement = _decode(envelope.payload, Statement, PAYLOAD_MAX_BYTES)
    for part, value, expected in (
        ("statement", statement.type, STATEMENT_TYPE),
        ("predicate", statement.predicate_type, PREDICATE_TYPE),
    ):
        if value != expected:
            raise malformed_error(f"The type of its {part} is {quote(value)}.")
    return statement


def _compare(statement: Statement, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield each difference between the signed files and ``files``."""
    named, present = sorted(statement.subjects), dict(hash_files(files))
    for name in sorted(present.keys() - dict(named)):
        yield f"The signature does not cover {name}."
    for name, sha256 in named:
        if name not in present:
            yield f"The signature covers {quote(name)}, which is missing here."
        elif sha256 != present[name]:
            yield f"The signature covers another {name}."
    if len(dict(named)) != len(named):
        yield "The signature covers one file twice."
    try:
        evidence = parse_json(encode_predicate(files), EVIDENCE_LIMITS)
    except ReceiptError:
        evidence = None
    if not _equal(statement.predicate, evidence):
        yield "The evidence in the signed statement differs from the evidence file."


def _equal(one: object, other: object) -> bool:
    """Whether two documents are equal as JSON: 1 equals 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def sign_files(files: Mapping[str, bytes], key: PrivateKey, present: bytes | None = None) -> bytes:
    """Return the envelope in which ``key`` signs ``files`` (name to raw bytes).

    Equal files and keys give equal bytes. The other signatures of ``present``, the existing
    envelope, are included; ReceiptError ``E_OTHER_ATTESTATION`` if one cannot be added to it.
    """
    payload = encode_statement(files)
    others: tuple[Signature, ...] = ()
    if present is not None:
        try:
            envelope = read_envelope(present)
        except ReceiptError as error:
            raise _cannot_add(error.problem) from None
        if (envelope.payload_type, envelope.payload) != (PAYLOAD_TYPE, payload):
            raise _cannot_add("It covers other files than these.")
        others = tuple(each for each in envelope.signatures if each.keyid != key.public.keyid)
    if len(others) >= MAX_SIGNATURES:
        raise _cannot_add(f"It has {len(others)} signatures; at most {MAX_SIGNATURES} are read.")
    own = Signature(key.public.keyid, key.sign(encode_message(PAYLOAD_TYPE, payload)))
    return encode_envelope(Envelope(payload, PAYLOAD_TYPE, (*others, own)))


def _cannot_add(why: str) -> ReceiptError:
    return ReceiptError(
        "E_OTHER_ATTESTATION", f"No signature can be added to the existing attestation. {why}"
    )

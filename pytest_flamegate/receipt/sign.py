"""Sign the files of a receipt, and check who signed them.

A signature is verified before its payload is parsed, so the payload of an unknown signer is
never parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.json import EVIDENCE_LIMITS, parse_json
from pytest_flamegate.core.text import Notice, Refusal, quote
from pytest_flamegate.receipt.attestation import (
    ENVELOPE_MAX_BYTES,
    MAX_SIGNATURES,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Envelope,
    Signature,
    Statement,
    encode_envelope,
    encode_message,
    encode_predicate,
    encode_statement,
    hash_files,
    malformed_error,
    read_envelope,
    read_statement,
)
from pytest_flamegate.receipt.sources import Source, read_source

if TYPE_CHECKING:
    # cryptography is an extra: importing it here would fail without it.
    from pytest_flamegate.receipt.keys import PrivateKey, PublicKey

OTHER_FILES = "E_SIGNATURE_SUBJECT"
"""A trusted key signed other files than these, so they were changed. All other codes only mean
that the signature which the reader wants is missing, which says nothing about honesty."""

_UNCHECKED = Notice(
    "W_SIGNATURE_UNCHECKED",
    "The receipt has a signature, which was not checked.",
    "Give the signer's public key: verify-receipt --key PUB.",
)
_MISSING = Refusal(
    "E_SIGNATURE_MISSING",
    "A key was given, but the receipt has no signature.",
    "Have it signed with flamegate sign, or omit the key.",
)


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """The result of a check. ``signed_by`` is a keyid if everything holds, else None."""

    signed_by: str | None = None
    refusals: tuple[Refusal, ...] = ()
    notices: tuple[Notice, ...] = ()


def check_signature(
    source: Source | None, trusted: Sequence[Source], files: Mapping[str, bytes]
) -> SignatureCheck:
    """Check whether one of the ``trusted`` keys signed exactly ``files``; never raises.

    Args:
        source: the attestation, None if there is none.
        trusted: public keys in PEM, as bytes or paths. Without any, nothing is checked.
        files: the receipt and the files that belong to it, by name.
    """
    if not trusted:
        return SignatureCheck() if source is None else SignatureCheck(notices=(_UNCHECKED,))
    refusals: list[Refusal] = []
    keys: list[PublicKey] = []
    for key in trusted:
        try:
            keys.append(_load_key(key))
        except FlamegateError as error:
            refusals.append(_refusal(error))
    raw = _MISSING if source is None else read_source(source, ENVELOPE_MAX_BYTES)
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
            refusals += (_other_files(each) for each in _compare(_statement_of(envelope), files))
    except ReceiptError as error:
        refusals.append(_refusal(error))
    return SignatureCheck(None if refusals else signed_by, tuple(refusals))


def _load_key(source: Source) -> PublicKey:
    from pytest_flamegate.receipt.keys import load_public_key, read_key_file

    return load_public_key(read_key_file(source))


def _refusal(error: FlamegateError) -> Refusal:
    return Refusal(error.code, error.problem, error.remedy)


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
        "E_SIGNATURE_UNTRUSTED",
        f"None of the given keys signed this. It claims to be signed by {claimed}.",
        "Give the signer's public key, or have it signed with a key that you trust.",
    )


def _statement_of(envelope: Envelope) -> Statement:
    """Return the signed statement; ReceiptError if it is not one of flamegate."""
    if envelope.payload_type != PAYLOAD_TYPE:
        raise malformed_error(f"The type of its payload is {quote(envelope.payload_type)}.")
    statement = read_statement(envelope.payload)
    if statement.type != STATEMENT_TYPE:
        raise malformed_error(f"The type of its statement is {quote(statement.type)}.")
    if statement.predicate_type != PREDICATE_TYPE:
        raise malformed_error(f"The type of its predicate is {quote(statement.predicate_type)}.")
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


def _other_files(message: str) -> Refusal:
    return Refusal(OTHER_FILES, message, "Find out which files are right, then sign them again.")


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

    Equal files and keys give equal bytes.

    Args:
        files: the receipt and the files that belong to it, by name.
        key: the signer's key.
        present: the existing envelope, whose other signatures are included.

    Raises:
        ReceiptError: ``E_OTHER_ATTESTATION`` if a signature cannot be added to ``present``.
    """
    payload = encode_statement(files)
    others = () if present is None else _signatures(present, payload)
    others = tuple(each for each in others if each.keyid != key.public.keyid)
    if len(others) >= MAX_SIGNATURES:
        raise _cannot_add(f"It has {len(others)} signatures; at most {MAX_SIGNATURES} are read.")
    own = Signature(key.public.keyid, key.sign(encode_message(PAYLOAD_TYPE, payload)))
    return encode_envelope(Envelope(payload, PAYLOAD_TYPE, (*others, own)))


def _signatures(present: bytes, payload: bytes) -> tuple[Signature, ...]:
    try:
        envelope = read_envelope(present)
    except ReceiptError as error:
        raise _cannot_add(error.problem) from None
    if (envelope.payload_type, envelope.payload) != (PAYLOAD_TYPE, payload):
        raise _cannot_add("It covers other files than these.")
    return envelope.signatures


def _cannot_add(why: str) -> ReceiptError:
    return ReceiptError(
        "E_OTHER_ATTESTATION",
        f"No signature can be added to the existing attestation. {why}",
        "Move it to another directory, and sign again.",
    )

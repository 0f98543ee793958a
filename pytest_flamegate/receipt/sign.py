"""Whether somebody whose key is trusted put their name to exactly these files.

The signature is checked before what it covers is read: bytes of a stranger are not parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import json_old
from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.core.text import Notice, Refusal, quote
from pytest_flamegate.receipt import attestation
from pytest_flamegate.receipt.attestation import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Envelope,
    Signature,
    Statement,
)
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook
from pytest_flamegate.receipt.sources import read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_flamegate.receipt.keys import PrivateKey, PublicKey
    from pytest_flamegate.receipt.sources import Source


_SIGN_AGAIN = (
    "Sign the receipt again with flamegate sign, once it is sure that it is the right one."
)


@dataclass(frozen=True, slots=True)
class Attestation:
    """An envelope beside the ``files`` (name to raw bytes) that it should be about.

    ``signed_by`` is the keyid of a trusted key that signed it, None if none did.
    ``statement`` is None where it need not be read: nobody trusted signed it, or it is byte
    for byte what flamegate states about these files.
    """

    envelope: Envelope
    signed_by: str | None
    statement: Statement | Refusal | None
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Attested:
    """The answer: ``signed_by`` is None unless everything holds."""

    signed_by: str | None = None
    refusals: tuple[Refusal, ...] = ()
    notices: tuple[Notice, ...] = ()


RULES: Rulebook[Attestation] = Rulebook()
"""Broken: the signature is not one of a trusted key over these very files."""
CONTRADICTIONS = frozenset({"E_SIGNATURE_SUBJECT", "E_SIGNATURE_PREDICATE"})
"""A trusted key signed other files than these. All else only says that the reader's wish for a
signature is not met, and nothing about honesty."""


@RULES.rule(
    "E_SIGNATURE_UNTRUSTED",
    "One of the signatures is by one of the keys given.",
    remedy="Give the signer's public key, or have somebody sign whose key you trust.",
    protects=Grade.ATTESTED,
)
def _by_a_trusted_key(found: Attestation) -> Iterator[str]:
    if found.signed_by is None:
        signers = ", ".join(quote(each.keyid) for each in found.envelope.signatures[:3])
        yield f"None of the keys given signed this; it says that it was signed by {signers}."


@RULES.rule(
    "E_SIGNATURE_PAYLOAD_TYPE",
    "What is signed is an in-toto statement by its type.",
    remedy=_SIGN_AGAIN,
    protects=Grade.ATTESTED,
)
def _of_the_payload_type(found: Attestation) -> Iterator[str]:
    if found.envelope.payload_type != attestation.PAYLOAD_TYPE:
        yield f"The signature is over a {quote(found.envelope.payload_type)}."


@RULES.rule(
    "E_SIGNATURE_STATEMENT",
    "What is signed is an in-toto statement, version 1.",
    remedy=_SIGN_AGAIN,
    protects=Grade.ATTESTED,
)
def _a_statement(found: Attestation) -> Iterator[str]:
    if isinstance(found.statement, Refusal):
        yield found.statement.message
    elif found.statement is not None and found.statement.type != STATEMENT_TYPE:
        yield f"The statement is of the type {quote(found.statement.type)}."


@RULES.rule(
    "E_SIGNATURE_PREDICATE_TYPE",
    "The statement holds evidence of flamegate by its type.",
    remedy=_SIGN_AGAIN,
    protects=Grade.ATTESTED,
)
def _of_the_predicate_type(found: Attestation) -> Iterator[str]:
    if isinstance(found.statement, Statement) and found.statement.predicate_type != PREDICATE_TYPE:
        yield f"The statement holds a {quote(found.statement.predicate_type)}."


@RULES.rule(
    "E_SIGNATURE_SUBJECT",
    "The statement names the receipt, its evidence and its profile, and nothing else.",
    remedy=_SIGN_AGAIN,
    protects=Grade.ATTESTED,
)
def _about_these_files(found: Attestation) -> Iterator[str]:
    if not isinstance(found.statement, Statement):
        return
    named, present = sorted(found.statement.subjects), dict(attestation.digests(found.files))
    for name in sorted(present.keys() - dict(named)):
        yield f"The signer did not name {name}."
    for name, digest in named:
        if name not in present:
            yield f"The signer named {quote(name)}, which is not here."
        elif digest != present[name]:
            yield f"{name} is not the one that was signed."
    if len(dict(named)) != len(named):
        yield "The signer named one file twice."


@RULES.rule(
    "E_SIGNATURE_PREDICATE",
    "The evidence within the statement is the evidence beside the receipt.",
    remedy=_SIGN_AGAIN,
    protects=Grade.ATTESTED,
)
def _with_this_evidence(found: Attestation) -> Iterator[str]:
    if isinstance(found.statement, Statement):
        evidence = json_old.parse(
            attestation.predicate(found.files), max_bytes=json_old.EVIDENCE_MAX_BYTES
        )
        if not _alike(found.statement.predicate, evidence):
            yield "The statement holds other evidence than the one beside the receipt."


def judge(source: Source | None, trusted: Sequence[Source], files: Mapping[str, bytes]) -> Attested:
    """Say whether ``source`` is an envelope in which one of the ``trusted`` keys signed ``files``.

    ``trusted`` are public keys in PEM, as bytes or paths. Without any, a signature is only
    said to be there. Never raises on bad input.
    """
    if not trusted:
        return Attested() if source is None else Attested(notices=(_UNCHECKED,))
    refusals = []
    loaded = []
    for key in trusted:
        try:
            loaded.append(_public_key(key))
        except FlamegateError as error:
            refusals.append(Refusal(error.code, error.problem, error.remedy))
    raw = read_source(source, attestation.ENVELOPE_MAX_BYTES) if source is not None else _MISSING
    ours = attestation.encode_statement(files)
    envelope = raw if isinstance(raw, Refusal) else attestation.read(raw, ours)
    if isinstance(envelope, Refusal):
        refusals.append(envelope)
    if refusals or isinstance(envelope, Refusal):
        return Attested(refusals=tuple(refusals))
    signed_by = _signer(envelope, loaded)
    said = None
    if signed_by is not None and envelope.payload != ours:
        said = attestation.read_statement(envelope.payload)
    found = Attestation(envelope, signed_by, said, files)
    broken = tuple(
        Refusal(each.code, each.message, each.remedy) for each in RULES.find_breaches(found)
    )
    return Attested(None if broken else signed_by, broken)


def _public_key(source: Source) -> PublicKey:
    from pytest_flamegate.receipt.keys import load_public, read_pem

    return load_public(read_pem(source))


def _signer(envelope: Envelope, trusted: Sequence[PublicKey]) -> str | None:
    """Return the keyid of a trusted key that signed; the keyids in the envelope are hints."""
    message = envelope.message
    for key in trusted:
        for each in sorted(envelope.signatures, key=lambda each: each.keyid != key.keyid):
            if key.verifies(each.sig, message):
                return key.keyid
    return None


def _alike(one: object, other: object) -> bool:
    """Whether two documents are equal as JSON, where 1 and 1.0 are one number and true is none."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other


_UNCHECKED = Notice(
    "W_SIGNATURE_UNCHECKED",
    "There is a signature beside the receipt, and it was not checked.",
    "Give the signer's public key: verify-receipt --key PUB.",
)
_MISSING = Refusal(
    "E_SIGNATURE_MISSING",
    "A key was given, and there is no signature beside the receipt.",
    "Have it signed with flamegate sign, or leave the key out.",
)


def sign(files: Mapping[str, bytes], key: PrivateKey, present: bytes | None = None) -> bytes:
    """Return the envelope in which ``key`` signs ``files`` (name to raw bytes).

    ``present`` is the envelope that stands there already: its other signatures are kept.
    ReceiptError ``E_OTHER_ATTESTATION`` where it is not about exactly these files.
    """
    payload = attestation.encode_statement(files)
    others = () if present is None else _signatures(present, payload)
    others = tuple(each for each in others if each.keyid != key.public.keyid)
    if len(others) >= attestation.MAX_SIGNATURES:
        raise ReceiptError(
            "E_TOO_MANY_SIGNATURES",
            f"There are {len(others)} signatures already, and no more are read.",
            "Move the attestation away, and have those sign again who still count.",
        )
    message = attestation.pae(attestation.PAYLOAD_TYPE, payload)
    own = Signature(key.public.keyid, key.sign(message))
    return attestation.encode(Envelope(payload, attestation.PAYLOAD_TYPE, (*others, own)))


def _signatures(present: bytes, payload: bytes) -> tuple[Signature, ...]:
    envelope = attestation.read(present)
    if isinstance(envelope, Refusal):
        raise _other(envelope.message)
    if (envelope.payload_type, envelope.payload) != (attestation.PAYLOAD_TYPE, payload):
        raise _other("What was signed there are other files than these.")
    return envelope.signatures


def _other(why: str) -> ReceiptError:
    return ReceiptError(
        "E_OTHER_ATTESTATION",
        f"An attestation stands there already, and no signature can be added to it. {why}",
        "Move it away, and sign again.",
    )

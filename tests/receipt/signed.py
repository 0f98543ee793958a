"""Keys from fixed seeds, and envelopes in which anything at all is signed."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from pytest_flamegate.receipt import attestation, keys
from pytest_flamegate.receipt.attestation import Envelope, Signature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.receipt.keys import PrivateKey


_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_SPKI = bytes.fromhex("302a300506032b6570032100")


def private_pem(seed: bytes) -> bytes:
    """The PEM file of the private key that grows from 32 bytes."""
    return pem("PRIVATE KEY", _PKCS8 + seed)


def public_pem(raw: bytes) -> bytes:
    """The PEM file of the public key that has these 32 bytes."""
    return pem("PUBLIC KEY", _SPKI + raw)


def pem(label: str, der: bytes) -> bytes:
    text = base64.encodebytes(der).decode("ascii")
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode("ascii")


def key(number: int = 1) -> PrivateKey:
    return keys.load_private(private_pem(bytes([number]) * 32))


ALICE, BOB = key(1), key(2)


def enveloped(
    payload: bytes, *signers: PrivateKey, payload_type: str = attestation.PAYLOAD_TYPE
) -> bytes:
    """An envelope in which ``signers`` (Alice alone where none is named) sign ``payload``."""
    message = attestation.pae(payload_type, payload)
    signatures = (Signature(each.public.keyid, each.sign(message)) for each in signers or (ALICE,))
    return attestation.encode(Envelope(payload, payload_type, tuple(signatures)))


def stated(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The statement about ``files`` as a document, to be spoilt."""
    document: dict[str, Any] = json.loads(attestation.encode_statement(files))
    return document

"""Keys from fixed seeds, signed files, and attestations that must be rejected."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pytest_flamegate.receipt import keys, sign
from pytest_flamegate.receipt.keys import PrivateKey
from tests.made import bundle

_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_SPKI = bytes.fromhex("302a300506032b6570032100")


def pem(label: str, der: bytes) -> bytes:
    text = base64.encodebytes(der).decode("ascii")
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode("ascii")


def private_pem(seed: bytes) -> bytes:
    """The PEM file of the private key that is derived from 32 bytes."""
    return pem("PRIVATE KEY", _PKCS8 + seed)


def public_pem(raw: bytes) -> bytes:
    """The PEM file of the public key that has these 32 bytes."""
    return pem("PUBLIC KEY", _SPKI + raw)


ALICE, BOB, CAROL = (keys.load_private_key(private_pem(bytes([n]) * 32)) for n in (1, 2, 3))
FILES = bundle(timed=1, profiled=1, blocks=1, sequences=2).files
OTHER = bundle(timed=1, profiled=1, blocks=1, sequences=2, seed=7).files
SIGNED = sign.sign_files(FILES, ALICE)
STATEMENT = sign.encode_statement(FILES)
RECODED = json.dumps(json.loads(STATEMENT)).encode()
"""The same statement with other spaces."""


def envelope_of(
    payload: bytes, *signers: PrivateKey, payload_type: str = sign.PAYLOAD_TYPE
) -> bytes:
    """An envelope in which ``signers`` (by default Alice) sign ``payload``."""
    message = sign.encode_message(payload_type, payload)
    signatures = (
        sign.Signature(each.public.keyid, each.sign(message)) for each in signers or (ALICE,)
    )
    return sign.encode_envelope(sign.Envelope(payload, payload_type, tuple(signatures)))


def statement_document(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The statement about ``files`` as a document that can be changed."""
    document: dict[str, Any] = json.loads(sign.encode_statement(files))
    return document


def with_signatures(*signatures: sign.Signature, **changes: Any) -> bytes:
    """The envelope of ``SIGNED`` with other signatures and fields."""
    return sign.encode_envelope(
        replace(sign.read_envelope(SIGNED), signatures=signatures, **changes)
    )


def _envelope(**changes: object) -> bytes:
    return json.dumps({**json.loads(SIGNED), **changes}).encode()


def _with_sig(sig: bytes) -> bytes:
    return with_signatures(sign.Signature(ALICE.public.keyid, sig))


def _stating(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Alice signs a changed statement about these files."""
    document = statement_document(FILES)
    change(document)
    return envelope_of(json.dumps(document).encode())


def _field(name: str, value: object) -> bytes:
    return _stating(lambda document: document.__setitem__(name, value))


def _subject(index: int, **changes: object) -> bytes:
    return _stating(lambda document: document["subject"][index].update(changes))


def _predicate(change: Callable[[dict[str, Any]], object]) -> bytes:
    return _stating(lambda document: change(document["predicate"]))


_BY_ALICE = sign.read_envelope(SIGNED).signatures

UNTRUSTED = {
    "signed by Bob": sign.sign_files(FILES, BOB),
    "Bob's signature under Alice's keyid": _with_sig(
        sign.read_envelope(sign.sign_files(FILES, BOB)).signatures[0].sig
    ),
    "zeros": _with_sig(bytes(64)),
    "over the payload without its type": _with_sig(ALICE.sign(STATEMENT)),
    "payload with other spaces": with_signatures(*_BY_ALICE, payload=RECODED),
    "of another receipt": with_signatures(
        *sign.read_envelope(sign.sign_files(OTHER, ALICE)).signatures
    ),
}
MALFORMED = {
    "no signature": with_signatures(),
    "10,000 signatures": with_signatures(*_BY_ALICE * 10_000),
    "two payloads": SIGNED.replace(b'  "payloadType"', b'  "payload": "e30=",\n  "payloadType"'),
    "a signature without bytes": _envelope(signatures=[{}]),
    "a keyid that is null": _envelope(signatures=[{"sig": "AA==", "keyid": None}]),
    "payload type with a space": envelope_of(STATEMENT, payload_type=sign.PAYLOAD_TYPE + " "),
    "the evidence alone": envelope_of(FILES["evidence.json"]),
    "two predicates": envelope_of(STATEMENT[:-1] + b',"predicate":{}}'),
    "deep": _field("predicate", json.loads(100 * "[" + 100 * "]")),
    "no subjects": _field("subject", []),
    "many subjects": _stating(
        lambda document: document["subject"].extend(document["subject"] * 99)
    ),
    "no digest": _stating(lambda document: document["subject"][0].pop("digest")),
    "statement 0.1": _field("_type", "https://in-toto.io/Statement/v0.1"),
    "a later predicate type": _field("predicateType", sign.PREDICATE_TYPE + ".1"),
}
OTHER_SUBJECTS = {
    "another receipt": _subject(0, digest=statement_document(OTHER)["subject"][0]["digest"]),
    "another profile": _subject(2, digest={"sha256": "0" * 64}),
    "a digest in capitals": _subject(0, digest={"sha256": "A" * 64}),
    "no evidence": _stating(lambda document: document["subject"].pop(1)),
    "an extra subject": _stating(
        lambda d: d["subject"].append({**d["subject"][0], "name": "model.gguf"})
    ),
    "one subject twice": _stating(lambda d: d["subject"].append(d["subject"][0])),
    "no name": _stating(lambda document: document["subject"][0].pop("name")),
    "another predicate": _field("predicate", statement_document(OTHER)["predicate"]),
    "one figure changed": _predicate(lambda evidence: evidence["metrics"][0].update(value=1e9)),
    "true for 1": _predicate(lambda evidence: evidence["runs"][0].update(threads=True)),
    "one field more": _predicate(lambda evidence: evidence.update(approved_by="the boss")),
}
FORGED = {
    **{name: (data, "E_SIGNATURE_MISSING") for name, data in UNTRUSTED.items()},
    **{name: (data, "E_SIGNATURE_ENVELOPE") for name, data in MALFORMED.items()},
    **{name: (data, "E_SIGNATURE_SUBJECT") for name, data in OTHER_SUBJECTS.items()},
}

"""Attestations that do not hold, each with the code by which it is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from pytest_flamegate.receipt import attestation
from pytest_flamegate.receipt.attestation import Envelope, Signature
from pytest_flamegate.receipt.sign import sign
from tests.made import bundle
from tests.receipt.signed import ALICE, BOB, enveloped, stated

FILES = bundle(timed=1, profiled=1, blocks=1, sequences=2).files
OTHER = bundle(timed=1, profiled=1, blocks=1, sequences=2, seed=7).files
SIGNED = sign(FILES, ALICE)


def read(data: bytes) -> Envelope:
    envelope = attestation.read(data)
    assert isinstance(envelope, Envelope)
    return envelope


Spoil = Callable[[dict[str, Any]], object]


def a_statement(spoil: Spoil) -> bytes:
    """Alice signs another statement about these files."""
    document = stated(FILES)
    spoil(document)
    return enveloped(json.dumps(document).encode())


def subject(number: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: cast("dict[str, Any]", document["subject"][number])


def changed(name: str, value: object) -> Spoil:
    return lambda document: document.__setitem__(name, value)


def nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


def signature(sig: bytes) -> bytes:
    """The right envelope with this signature in Alice's name."""
    own = Signature(ALICE.public.keyid, sig)
    return attestation.encode(replace(read(SIGNED), signatures=(own,)))


STATEMENT = attestation.encode_statement(FILES)
RECODED = json.dumps(json.loads(STATEMENT)).encode()
FORGED: dict[str, tuple[bytes, str]] = {
    # the signature
    "by-bob": (sign(FILES, BOB), "E_SIGNATURE_UNTRUSTED"),
    "by-bob-as-alice": (
        signature(read(sign(FILES, BOB)).signatures[0].sig),
        "E_SIGNATURE_UNTRUSTED",
    ),
    "zeros": (signature(bytes(64)), "E_SIGNATURE_UNTRUSTED"),
    "over-the-payload-alone": (signature(ALICE.sign(STATEMENT)), "E_SIGNATURE_UNTRUSTED"),
    "over-the-base64": (
        signature(
            ALICE.sign(attestation.pae(attestation.PAYLOAD_TYPE, base64.b64encode(STATEMENT)))
        ),
        "E_SIGNATURE_UNTRUSTED",
    ),
    "over-the-payload-encoded-again": (
        signature(ALICE.sign(attestation.pae(attestation.PAYLOAD_TYPE, RECODED))),
        "E_SIGNATURE_UNTRUSTED",
    ),
    "payload-encoded-again": (
        attestation.encode(replace(read(SIGNED), payload=RECODED)),
        "E_SIGNATURE_UNTRUSTED",
    ),
    "of-another-receipt": (
        attestation.encode(replace(read(SIGNED), signatures=read(sign(OTHER, ALICE)).signatures)),
        "E_SIGNATURE_UNTRUSTED",
    ),
    # the envelope
    "no-envelope": (b"{}", "E_SIGNATURE_ENVELOPE"),
    "no-signature": (
        attestation.encode(replace(read(SIGNED), signatures=())),
        "E_SIGNATURE_ENVELOPE",
    ),
    "ten-thousand-signatures": (
        attestation.encode(replace(read(SIGNED), signatures=read(SIGNED).signatures * 10_000)),
        "E_SIGNATURE_ENVELOPE",
    ),
    "two-payloads": (
        SIGNED.replace(b'  "payloadType"', b'  "payload": "e30=",\n  "payloadType"'),
        "E_SIGNATURE_ENVELOPE",
    ),
    "two-lists-of-signatures": (
        SIGNED.rstrip()[:-1] + b', "signatures": [{"sig": ""}]}',
        "E_SIGNATURE_ENVELOPE",
    ),
    "two-keyids": (SIGNED.replace(b'"sig"', b'"keyid": "", "sig"'), "E_SIGNATURE_ENVELOPE"),
    # what is signed
    "another-payload-type": (
        enveloped(STATEMENT, payload_type="application/json"),
        "E_SIGNATURE_PAYLOAD_TYPE",
    ),
    "payload-type-with-a-space": (
        enveloped(STATEMENT, payload_type=attestation.PAYLOAD_TYPE + " "),
        "E_SIGNATURE_PAYLOAD_TYPE",
    ),
    "no-statement": (enveloped(b"hello"), "E_SIGNATURE_STATEMENT"),
    "nothing": (enveloped(b""), "E_SIGNATURE_STATEMENT"),
    "a-list": (enveloped(b"[]"), "E_SIGNATURE_STATEMENT"),
    "the-evidence-alone": (enveloped(FILES["evidence.json"]), "E_SIGNATURE_STATEMENT"),
    "two-types": (
        enveloped(STATEMENT[:-1] + b',"_type":"https://in-toto.io/Statement/v1"}'),
        "E_SIGNATURE_STATEMENT",
    ),
    "two-predicates": (
        enveloped(STATEMENT[:-1] + b',"predicate":{}}'),
        "E_SIGNATURE_STATEMENT",
    ),
    "deep": (a_statement(changed("predicate", nested(1, 100))), "E_SIGNATURE_STATEMENT"),
    "no-subjects": (a_statement(changed("subject", [])), "E_SIGNATURE_STATEMENT"),
    "many-subjects": (
        a_statement(lambda d: d["subject"].extend(d["subject"] * 100)),
        "E_SIGNATURE_STATEMENT",
    ),
    "subject-is-text": (a_statement(changed("subject", ["x"])), "E_SIGNATURE_STATEMENT"),
    "name-is-a-number": (
        a_statement(lambda d: subject(0)(d).update(name=1)),
        "E_SIGNATURE_STATEMENT",
    ),
    "no-digest": (a_statement(lambda d: subject(0)(d).pop("digest")), "E_SIGNATURE_STATEMENT"),
    "digest-is-a-number": (
        a_statement(lambda d: subject(0)(d).update(digest={"sha256": 1})),
        "E_SIGNATURE_STATEMENT",
    ),
    "predicate-is-null": (a_statement(changed("predicate", None)), "E_SIGNATURE_STATEMENT"),
    "statement-0.1": (
        a_statement(changed("_type", "https://in-toto.io/Statement/v0.1")),
        "E_SIGNATURE_STATEMENT",
    ),
    "another-predicate-type": (
        a_statement(changed("predicateType", "https://slsa.dev/provenance/v1")),
        "E_SIGNATURE_PREDICATE_TYPE",
    ),
    "a-later-predicate-type": (
        a_statement(changed("predicateType", attestation.PREDICATE_TYPE + ".1")),
        "E_SIGNATURE_PREDICATE_TYPE",
    ),
    # about what
    "another-receipt": (
        a_statement(lambda d: subject(0)(d).update(digest=stated(OTHER)["subject"][0]["digest"])),
        "E_SIGNATURE_SUBJECT",
    ),
    "other-evidence": (
        a_statement(lambda d: subject(1)(d).update(digest=stated(OTHER)["subject"][1]["digest"])),
        "E_SIGNATURE_SUBJECT",
    ),
    "another-profile": (
        a_statement(lambda d: subject(2)(d).update(digest={"sha256": "0" * 64})),
        "E_SIGNATURE_SUBJECT",
    ),
    "digest-in-capitals": (
        a_statement(lambda d: subject(0)(d)["digest"].update(sha256="A" * 64)),
        "E_SIGNATURE_SUBJECT",
    ),
    "another-algorithm": (
        a_statement(lambda d: subject(0)(d).update(digest={"sha1": "0" * 40})),
        "E_SIGNATURE_SUBJECT",
    ),
    "no-receipt": (a_statement(lambda d: d["subject"].pop(0)), "E_SIGNATURE_SUBJECT"),
    "no-evidence": (a_statement(lambda d: d["subject"].pop(1)), "E_SIGNATURE_SUBJECT"),
    "no-profile": (a_statement(lambda d: d["subject"].pop(2)), "E_SIGNATURE_SUBJECT"),
    "an-extra-subject": (
        a_statement(lambda d: d["subject"].append({**subject(0)(d), "name": "model.gguf"})),
        "E_SIGNATURE_SUBJECT",
    ),
    "one-subject-twice": (
        a_statement(lambda d: d["subject"].append(subject(0)(d))),
        "E_SIGNATURE_SUBJECT",
    ),
    "one-subject-twice-and-different": (
        a_statement(
            lambda d: d["subject"].append({"name": "receipt.json", "digest": {"sha256": "0"}})
        ),
        "E_SIGNATURE_SUBJECT",
    ),
    "named-differently": (
        a_statement(lambda d: subject(0)(d).update(name="./receipt.json")),
        "E_SIGNATURE_SUBJECT",
    ),
    "names-exchanged": (
        a_statement(
            lambda d: (
                subject(0)(d).update(name="evidence.json"),
                subject(1)(d).update(name="receipt.json"),
            )
        ),
        "E_SIGNATURE_SUBJECT",
    ),
    "unnamed": (a_statement(lambda d: subject(0)(d).pop("name")), "E_SIGNATURE_SUBJECT"),
    # with what
    "another-predicate": (
        a_statement(changed("predicate", stated(OTHER)["predicate"])),
        "E_SIGNATURE_PREDICATE",
    ),
    "no-predicate": (a_statement(lambda d: d.pop("predicate")), "E_SIGNATURE_PREDICATE"),
    "one-figure-changed": (
        a_statement(lambda d: d["predicate"]["metrics"][0].update(value=1e9)),
        "E_SIGNATURE_PREDICATE",
    ),
    "true-for-one": (
        a_statement(lambda d: d["predicate"]["runs"][0].update(threads=True)),
        "E_SIGNATURE_PREDICATE",
    ),
    "one-field-more": (
        a_statement(lambda d: d["predicate"].update(approved_by="the boss")),
        "E_SIGNATURE_PREDICATE",
    ),
    "one-run-less": (
        a_statement(lambda d: d["predicate"]["runs"].pop()),
        "E_SIGNATURE_PREDICATE",
    ),
}

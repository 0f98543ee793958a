"""Envelopes: the vectors of the DSSE specification, and one reading of each document."""

import base64
import json
from typing import Any

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.receipt import keys
from pytest_flamegate.receipt.sign import (
    MAX_SIGNATURES,
    Envelope,
    Signature,
    encode_envelope,
    encode_message,
    read_envelope,
)
from tests.receipt.attestations import public_pem

IN_TOTO = "application/vnd.in-toto+json"
STATEMENT = b'{"_type":"https://in-toto.io/Statement/v1"}'
KEYS = {
    "A": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "B": "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
}
BY_A = "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
BY_B = "c1+67/aT0yqEpwx8PsVY3MLHsj9D0CZ014/Fv/QlG59P+9CobUZ7xECJ/V3USG0Ob9CiE5LjReEZUzNF2l7eBw=="
URL_SAFE = (
    "P-_KHICeR7tI6S_YyejJTRtrXhcQyQ2LYPaL8h90KjC9qN8HU_svOQ6TuDOT1HIrsGW886DbWNWcCmX5twLrAw=="
)
NON_ASCII = (
    "xmSk/ug66ysT7ayhkCIjhAq42zgZXSsEWuzUaNL7w2eGAdF/NU6/fRXPtmfN+5DNSAs5/i2lUnHjbbjPsu0tAw=="
)
EMPTY = "gSggCAaTLTYyRH6FIDBem6meyIynsYy8RTHVzwx9tnTb7Bg/1jMWnuVgI/gffqmbsC2VX5/jHfkkDqsj7CDbDg=="
BODY = base64.b64encode(STATEMENT).decode()
VECTORS = {
    "single-signature": (BODY, IN_TOTO, {"A": BY_A}),
    "two-signatures": (BODY, IN_TOTO, {"A": BY_A, "B": BY_B}),
    "url-safe-base64": ("-_-_Pj8=", IN_TOTO, {"A": URL_SAFE}),
    "non-ascii-payload-type": (BODY, "application/vnd.exämple+json", {"A": NON_ASCII}),
    "empty-payload": ("", IN_TOTO, {"A": EMPTY}),
}
"""The vectors of the specification: payload, type, and each signature with its key."""


def document(**changes: Any) -> dict[str, Any]:
    signatures = [{"keyid": "A", "sig": BY_A}]
    return {"payload": BODY, "payloadType": IN_TOTO, "signatures": signatures, **changes}


def read(data: object) -> Envelope:
    return read_envelope(data if isinstance(data, bytes) else json.dumps(data).encode())


@pytest.mark.parametrize(
    ("payload_type", "payload", "encoded"),
    [
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        ("", b"", b"DSSEv1 0  0 "),
        ("\N{LATIN SMALL LETTER A WITH DIAERESIS}", b"\xff\0", b"DSSEv1 2 \xc3\xa4 2 \xff\0"),
    ],
)
def test_the_signed_message_is_that_of_the_specification(
    payload_type: str, payload: bytes, encoded: bytes
) -> None:
    assert encode_message(payload_type, payload) == encoded


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_the_specification(name: str) -> None:
    payload, payload_type, signatures = VECTORS[name]
    entries = [{"keyid": by, "sig": sig} for by, sig in signatures.items()]
    envelope = read(document(payload=payload, payloadType=payload_type, signatures=entries))
    public = {by: keys.load_public_key(public_pem(bytes.fromhex(raw))) for by, raw in KEYS.items()}
    assert len(envelope.signatures) == len(signatures)
    for each in envelope.signatures:
        assert public[each.keyid].verify(each.sig, envelope.message)
        assert not public["AB".replace(each.keyid, "")].verify(each.sig, envelope.message)


def test_a_written_envelope_is_read_back() -> None:
    envelope = Envelope(b"\0\xff?>", IN_TOTO, (Signature("x", bytes(64)), Signature("", b"")))
    assert read_envelope(encode_envelope(envelope)) == envelope


def test_unknown_fields_are_ignored_and_the_keyid_may_be_missing() -> None:
    signatures = [{"sig": BY_A, "extension": {"kind": "x"}}]
    envelope = read(document(signatures=signatures, comment=1))
    assert envelope.signatures == (Signature("", base64.b64decode(BY_A)),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 1000,
        b'{"payload":"","payload":"","payloadType":"","signatures":[{"sig":""}]}',
        None,
        [],
        {},
        document(payload=None),
        document(payload=7),
        document(payloadType=None),
        document(payloadType=["x"]),
        document(signatures=None),
        document(signatures=[]),
        document(signatures={"sig": BY_A}),
        document(signatures=["x"]),
        document(signatures=[{}]),
        document(signatures=[{"sig": None}]),
        document(signatures=[{"sig": BY_A, "keyid": None}]),
        document(signatures=[{"sig": BY_A, "keyid": 1}]),
        document(signatures=[{"sig": BY_A}] * (MAX_SIGNATURES + 1)),
        document(signatures=[{"sig": BY_A}] * 10_000),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_malformed_envelope_is_an_error(data: object) -> None:
    with pytest.raises(ReceiptError, match="E_SIGNATURE_ENVELOPE") as raised:
        read(data)
    assert raised.value.remedy
    assert len(raised.value.problem) < 400


@pytest.mark.parametrize(
    "text",
    [
        "QQ",  # no padding
        "QQ=",
        "QQ===",
        "QR==",  # bits after the last byte
        "QQ==\n",
        "Q Q==",
        "QQ==QQ==",
        "=QQ=",
        "+/-_",  # both alphabets
        "Q\N{FULLWIDTH LATIN CAPITAL LETTER Q}==",
        "QQ==\0",
        "\ud800",
        "%%%%",
    ],
)
def test_base64_has_one_form(text: str) -> None:
    for changes in ({"payload": text}, {"signatures": [{"sig": text}]}):
        with pytest.raises(ReceiptError, match="E_SIGNATURE_ENVELOPE"):
            read(document(**changes))


def test_both_alphabets_of_base64_are_read() -> None:
    for text in ("-_8=", "+/8="):
        assert read(document(payload=text)).payload == b"\xfb\xff"

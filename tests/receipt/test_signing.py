"""Signed receipts: who signed them, which signatures count, and how signatures are added."""

import base64
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_json
from pytest_flamegate.receipt import Grade, Verification, sign, verify_receipt
from pytest_flamegate.receipt.baseline import ATTESTATION
from tests.made import bundle
from tests.receipt.attestations import (
    ALICE,
    BOB,
    CAROL,
    FILES,
    FORGED,
    OTHER,
    RECODED,
    SIGNED,
    STATEMENT,
    envelope_of,
    statement_document,
    with_signatures,
)
from tests.receipt.rules.changes import NOW, rejected
from tests.receipt.test_fuzz import change_bytes, find_tokens, mutate

A, B, C = (each.public.pem for each in (ALICE, BOB, CAROL))


def verify(
    attestation: bytes | Path | None,
    *trusted: bytes | Path,
    files: dict[str, bytes] = FILES,
    **options: Any,
) -> Verification:
    return verify_receipt(
        files["receipt.json"],
        evidence=files.get("evidence.json"),
        profile_folded=files.get("profile.folded"),
        attestation=attestation,
        keys=trusted,
        now=NOW,
        **options,
    )


@pytest.mark.parametrize(
    ("attestation", "trusted", "code"),
    [
        (None, A, "E_SIGNATURE_MISSING"),
        (SIGNED, B, "E_SIGNATURE_MISSING"),
        (SIGNED, b"no key", "E_BAD_KEY"),
    ],
)
def test_a_missing_signature_is_no_dishonesty(
    attestation: bytes | None, trusted: bytes, code: str
) -> None:
    answer = verify(attestation, trusted)
    assert code in rejected(answer)
    assert (answer.ok, answer.honest, answer.grade) == (False, True, Grade.OBSERVED)


def test_files_of_one_directory(tmp_path: Path) -> None:
    path = bundle().write(tmp_path)
    (tmp_path / ATTESTATION).write_bytes(sign.sign_files(bundle().files, ALICE))
    (tmp_path / "alice.pub").write_bytes(A)
    trusted = [tmp_path / "alice.pub"]
    assert verify_receipt(path, keys=trusted, now=NOW, require_grade=Grade.ATTESTED).ok
    elsewhere = tmp_path / "elsewhere.json"
    (tmp_path / ATTESTATION).rename(elsewhere)
    assert rejected(verify_receipt(path, keys=trusted, now=NOW)) == ["E_SIGNATURE_MISSING"]
    assert verify_receipt(path, attestation=elsewhere, keys=trusted, now=NOW).ok


def test_one_trusted_key_and_one_signature_are_enough() -> None:
    both = sign.sign_files(FILES, BOB, SIGNED)
    signers = [each.keyid for each in sign.read_envelope(both).signatures]
    assert signers == [ALICE.public.keyid, BOB.public.keyid]
    for envelope, trusted in ((SIGNED, (B, A)), (both, (A,)), (both, (B,)), (both, (C, B))):
        assert verify(envelope, *trusted).grade is Grade.ATTESTED
    answer = verify(both, B, A)
    assert (answer.ok, answer.warnings, answer.signed_by) == (True, (), BOB.public.keyid)
    assert "who said it, not that it happened" in answer.ceiling
    assert rejected(verify(both, C)) == ["E_SIGNATURE_MISSING"]


@pytest.mark.parametrize("keyid", [BOB.public.keyid, "x" * 5000 + "\x1b[2J"])
def test_the_keyid_in_an_envelope_is_only_a_hint(keyid: str) -> None:
    hinted = with_signatures(sign.Signature(keyid, sign.read_envelope(SIGNED).signatures[0].sig))
    assert verify(hinted, A).signed_by == ALICE.public.keyid
    answer = verify(hinted, B)
    assert rejected(answer) == ["E_SIGNATURE_MISSING"]
    assert answer.refusals[0].message.isprintable()


def test_the_same_statement_may_be_written_with_other_bytes() -> None:
    """Another tool may order, space and round its JSON as it likes."""
    document = statement_document(FILES)
    document["comment"] = "not known"
    document["subject"].reverse()
    document["subject"][0]["digest"]["sha512"] = "00"
    payload = json.dumps(document, indent=1, sort_keys=True).replace(": 100.0", ": 100").encode()
    assert payload != sign.encode_statement(FILES)
    answer = verify(envelope_of(payload), A)
    assert answer.grade is Grade.ATTESTED, answer.refusals


def test_a_receipt_without_evidence_may_be_signed_but_is_not_observed() -> None:
    alone = {"receipt.json": FILES["receipt.json"]}
    answer = verify(sign.sign_files(alone, ALICE), A, files=alone)
    assert (answer.ok, answer.grade) == (True, Grade.CONSISTENT)
    assert answer.signed_by == ALICE.public.keyid
    lower = verify(sign.sign_files(alone, ALICE), A, files=alone, require_grade=Grade.ATTESTED)
    assert rejected(lower) == ["E_GRADE"]
    assert "flamegate sign" in lower.refusals[0].remedy


def test_without_a_key_a_signature_is_mentioned_and_not_read(tmp_path: Path) -> None:
    for envelope in (SIGNED, b"\xff{", sign.sign_files(OTHER, BOB)):
        answer = verify(envelope)
        assert (answer.ok, answer.grade, answer.signed_by) == (True, Grade.OBSERVED, None)
        assert [notice.code for notice in answer.warnings] == ["W_SIGNATURE_UNCHECKED"]
    path = bundle().write(tmp_path)
    (tmp_path / ATTESTATION).symlink_to("nowhere")
    assert [n.code for n in verify_receipt(path, now=NOW).warnings] == ["W_SIGNATURE_UNCHECKED"]
    assert verify(None).warnings == ()


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_attestation_is_rejected(name: str) -> None:
    envelope, code = FORGED[name]
    answer = verify(envelope, A)
    assert set(rejected(answer)) == {code}
    assert (answer.grade, answer.signed_by) == (Grade.OBSERVED, None)
    assert answer.honest is (code != "E_SIGNATURE_SUBJECT")
    assert all(each.remedy and len(each.message) < 400 for each in answer.refusals)


def test_a_signature_does_not_make_a_receipt_honest() -> None:
    files = bundle().with_receipt(tokens_per_second=9000.0).files
    answer = verify(sign.sign_files(files, ALICE), A, files=files)
    assert answer.grade < Grade.OBSERVED
    assert "E_TPS_MISMATCH" in rejected(answer)
    assert not any(code.startswith("E_SIGNATURE") for code in rejected(answer))


@pytest.mark.parametrize("bad", [b"", ALICE.pem(None), Path("/nonexistent")])
def test_one_bad_key_is_an_error_even_next_to_a_good_one(bad: bytes | Path) -> None:
    assert rejected(verify(SIGNED, A, bad)) == ["E_BAD_KEY"]
    assert rejected(verify(SIGNED, bad)) == ["E_BAD_KEY"]


@pytest.mark.parametrize("bad", [Path("/nonexistent"), Path("/dev/zero")])
def test_an_unreadable_attestation_is_an_error(bad: Path) -> None:
    answer = verify(bad, A)
    assert not answer.ok
    assert "E_INTERNAL" not in rejected(answer)


def test_equal_files_give_equal_bytes_and_a_wrong_signature_is_replaced() -> None:
    assert sign.sign_files(FILES, ALICE) == SIGNED == sign.sign_files(FILES, ALICE, SIGNED)
    wrong = with_signatures(sign.Signature(ALICE.public.keyid, bytes(64)))
    assert sign.sign_files(FILES, ALICE, wrong) == SIGNED


@pytest.mark.parametrize(
    "present",
    [
        b"{}",
        envelope_of(STATEMENT, payload_type="text/plain"),
        envelope_of(RECODED),
    ],
)
def test_another_attestation_is_never_overwritten(present: bytes) -> None:
    with pytest.raises(ReceiptError, match="E_OTHER_ATTESTATION"):
        sign.sign_files(FILES, ALICE, present)


def test_no_signature_is_added_that_would_not_be_read() -> None:
    def strangers(count: int) -> bytes:
        return with_signatures(*(sign.Signature(f"{number}", bytes(64)) for number in range(count)))

    full = sign.sign_files(FILES, ALICE, strangers(sign.MAX_SIGNATURES - 1))
    assert verify(full, A).grade is Grade.ATTESTED
    with pytest.raises(ReceiptError, match="E_OTHER_ATTESTATION"):
        sign.sign_files(FILES, ALICE, strangers(sign.MAX_SIGNATURES))
    assert sign.encode_envelope(sign.read_envelope(full)) == full


BODY = base64.b64encode(STATEMENT).decode()


def test_both_alphabets_are_read_and_unknown_fields_are_ignored() -> None:
    for text in ("-_8=", "+/8="):
        fields = {"payload": text, "payloadType": "ä", "signatures": [{"sig": text, "x": 1}]}
        envelope = sign.read_envelope(json.dumps({**fields, "comment": 1}).encode())
        assert envelope == sign.Envelope(b"\xfb\xff", "ä", (sign.Signature("", b"\xfb\xff"),))
        assert sign.read_envelope(sign.encode_envelope(envelope)) == envelope


@pytest.mark.parametrize(
    "text",
    [
        *("QQ", "QQ=", "QQ===", "QQ==\n", "Q Q==", "QQ==QQ==", "=QQ=", "QQ==\0", "%%%%"),
        "QR==",  # bits after the last byte
        "+/-_",  # both alphabets
        "Q\N{FULLWIDTH LATIN CAPITAL LETTER Q}==",
        "\ud800",
    ],
)
def test_base64_has_one_form(text: str) -> None:
    good = {"payload": BODY, "payloadType": "", "signatures": [{"sig": BODY}]}
    for changes in ({"payload": text}, {"signatures": [{"sig": text}]}):
        with pytest.raises(ReceiptError, match="E_SIGNATURE_ENVELOPE"):
            sign.read_envelope(json.dumps({**good, **changes}).encode())


ENVELOPES = (SIGNED, envelope_of(STATEMENT, ALICE, BOB), *(each for each, _ in FORGED.values()))
SMALL = [find_tokens(each) for each in ENVELOPES if len(each) < 100_000]
PEMS = (A, ALICE.pem(None), ALICE.pem(b"secret"))


def answers(seed: int, count: int) -> Iterator[str]:
    """Yield the code of the answer to each of ``count`` mutations, or ``good``."""
    rng = random.Random(seed)
    for number in range(count):
        trusted, envelope = (A,), SIGNED
        if number % 3 == 0:
            envelope = mutate(rng, rng.choice(SMALL), SMALL)
        elif number % 3 == 1:  # signed, so that the statement is read
            envelope = envelope_of(mutate(rng, find_tokens(STATEMENT), SMALL))
        else:
            trusted = (change_bytes(rng, rng.choice(PEMS)),)
        found = sign.check_signature(envelope, trusted, FILES)
        assert (found.signed_by is None) is bool(found.refusals)
        for refusal in found.refusals:
            assert refusal.message.isascii()
            assert refusal.message.isprintable()
            assert len(refusal.message) < 1000
        if found.signed_by is not None:
            read = sign.read_envelope(envelope)
            assert any(ALICE.public.verify(each.sig, read.message) for each in read.signatures)
            statement = decode_json(read.payload, sign.Statement)
            assert sorted(statement.subjects) == sorted(sign.hash_files(FILES))
        yield found.refusals[0].code if found.refusals else "good"


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 300), pytest.param(1, 20_000, marks=pytest.mark.nightly)]
)
def test_mutated_attestations_and_keys_get_an_answer(seed: int, count: int) -> None:
    found = Counter(answers(seed, count))
    expected = {"E_SIGNATURE_ENVELOPE", "E_SIGNATURE_MISSING", "E_SIGNATURE_SUBJECT", "E_BAD_KEY"}
    assert expected <= found.keys() <= {"good", *expected}

"""Who signed what: every way in which a signature is not one of a trusted key over these files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import json_old
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.receipt import Grade, Verification, attestation, verify_receipt
from pytest_flamegate.receipt import sign as receipt_sign
from pytest_flamegate.receipt.attestation import SUBJECTS, Signature
from pytest_flamegate.receipt.rules.rule import Rulebook
from pytest_flamegate.receipt.sign import sign
from pytest_flamegate.receipt.sources import ATTESTATION_NAME
from tests.made import bundle
from tests.receipt.forged_attestations import FILES, FORGED, OTHER, RECODED, SIGNED, STATEMENT, read
from tests.receipt.signed import ALICE, BOB, enveloped, key, stated

NOW = datetime(2025, 10, 13, 13, 0, tzinfo=UTC)
A, B = ALICE.public.pem, BOB.public.pem


def verified(
    attestation: bytes | None,
    *trusted: bytes,
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


def codes(answer: Verification) -> list[str]:
    return [refusal.code for refusal in answer.refusals]


# What holds


def test_signed_and_observed_is_attested() -> None:
    answer = verified(SIGNED, A)
    assert answer.ok
    assert answer.grade is Grade.ATTESTED
    assert answer.signed_by == ALICE.public.keyid
    assert answer.warnings == ()
    assert "who said it, not that it happened" in answer.ceiling
    assert "--max-age" in answer.ceiling


def test_a_signature_is_no_replay() -> None:
    answer = verified(SIGNED, A, require_grade=Grade.REPLAYED)
    assert answer.grade is Grade.ATTESTED
    assert codes(answer) == ["E_GRADE"]
    assert "--replay" in (answer.refusals[0].remedy or "")


@pytest.mark.parametrize(
    ("attestation", "trusted", "code", "honest"),
    [
        (None, A, "E_SIGNATURE_MISSING", True),
        (SIGNED, B, "E_SIGNATURE_UNTRUSTED", True),
        (SIGNED, b"no key", "E_BAD_KEY", True),
        (SIGNED, A, "E_SIGNATURE_SUBJECT", False),
    ],
)
def test_whose_name_is_wanted_is_no_matter_of_honesty(
    attestation: bytes | None, trusted: bytes, code: str, honest: bool
) -> None:
    files = FILES if honest else {**FILES, "receipt.json": FILES["receipt.json"] + b"\n"}
    answer = verified(attestation, trusted, files=files)
    assert not answer.ok
    assert code in codes(answer)
    assert answer.honest is honest


def test_files_that_stand_together(tmp_path: Path) -> None:
    path = bundle().write(tmp_path)
    (tmp_path / ATTESTATION_NAME).write_bytes(sign(bundle().files, ALICE))
    (tmp_path / "alice.pub").write_bytes(A)
    trusted = [tmp_path / "alice.pub"]
    answer = verify_receipt(path, keys=trusted, now=NOW, require_grade=Grade.ATTESTED)
    assert (answer.ok, answer.grade) == (True, Grade.ATTESTED)
    elsewhere = tmp_path / "elsewhere.json"
    (tmp_path / ATTESTATION_NAME).rename(elsewhere)
    assert codes(verify_receipt(path, keys=trusted, now=NOW)) == ["E_SIGNATURE_MISSING"]
    assert verify_receipt(path, attestation=elsewhere, keys=trusted, now=NOW).ok


def test_one_of_several_keys_and_one_of_several_signatures() -> None:
    both = sign(FILES, BOB, SIGNED)
    assert [each.keyid for each in read(both).signatures] == [
        ALICE.public.keyid,
        BOB.public.keyid,
    ]
    carol = key(3).public.pem
    for envelope, trusted in (
        (SIGNED, (B, A)),
        (both, (A,)),
        (both, (B,)),
        (both, (carol, B)),
    ):
        assert verified(envelope, *trusted).grade is Grade.ATTESTED
    assert verified(both, B, A).signed_by == BOB.public.keyid
    assert codes(verified(both, carol)) == ["E_SIGNATURE_UNTRUSTED"]


@pytest.mark.parametrize("keyid", ["", "nonsense", BOB.public.keyid, "x" * 5000, "\x1b[2J"])
def test_a_keyid_is_only_a_hint(keyid: str) -> None:
    envelope = read(SIGNED)
    hinted = replace(envelope, signatures=(Signature(keyid, envelope.signatures[0].sig),))
    answer = verified(attestation.encode(hinted), A)
    assert answer.signed_by == ALICE.public.keyid
    answer = verified(attestation.encode(hinted), B)
    assert codes(answer) == ["E_SIGNATURE_UNTRUSTED"]
    assert answer.refusals[0].message.isprintable()


def test_signatures_of_kinds_that_are_not_known_stand_beside() -> None:
    envelope = read(SIGNED)
    strange = (Signature("ecdsa", b"0E\x02!" + bytes(67)), Signature("", b""))
    mixed = replace(envelope, signatures=(*strange, *envelope.signatures))
    assert verified(attestation.encode(mixed), A).grade is Grade.ATTESTED


def test_other_bytes_for_the_same_statement_hold() -> None:
    """Another tool may order, space and round its JSON as it likes: what it says counts."""
    document = stated(FILES)
    document["comment"] = "not known"
    document["subject"].reverse()
    document["subject"][0]["digest"]["sha512"] = "00"
    payload = json.dumps(document, indent=1, sort_keys=True).replace(": 100.0", ": 100").encode()
    assert payload != attestation.encode_statement(FILES)
    answer = verified(enveloped(payload), A)
    assert answer.grade is Grade.ATTESTED, answer.refusals


def test_a_receipt_alone_is_signed_but_not_observed() -> None:
    alone = {"receipt.json": FILES["receipt.json"]}
    answer = verified(sign(alone, ALICE), A, files=alone)
    assert answer.ok
    assert answer.grade is Grade.CONSISTENT
    assert answer.signed_by == ALICE.public.keyid
    refused = verified(sign(alone, ALICE), A, files=alone, require_grade=Grade.ATTESTED)
    assert codes(refused) == ["E_GRADE"]
    assert "flamegate sign" in refused.refusals[0].remedy


def test_an_age_bounds_what_a_signature_does_not() -> None:
    assert verified(SIGNED, A, max_age_s=7200.0).ok
    old = verified(SIGNED, A, max_age_s=60.0)
    assert not old.ok
    assert old.grade is Grade.ATTESTED  # it was observed and signed, a while ago


# What is not looked at


def test_without_a_key_a_signature_is_only_said_to_be_there(tmp_path: Path) -> None:
    for envelope in (SIGNED, b"", b"\xff{", sign(OTHER, BOB)):
        answer = verified(envelope)
        assert answer.ok
        assert answer.grade is Grade.OBSERVED
        assert answer.signed_by is None
        assert [notice.code for notice in answer.warnings] == ["W_SIGNATURE_UNCHECKED"]
    path = bundle().write(tmp_path)
    (tmp_path / ATTESTATION_NAME).symlink_to("nowhere")
    assert [n.code for n in verify_receipt(path, now=NOW).warnings] == ["W_SIGNATURE_UNCHECKED"]
    assert verified(None).warnings == ()


def test_nothing_of_cryptography_is_imported_without_a_key(tmp_path: Path) -> None:
    path = bundle().write(tmp_path)
    (tmp_path / ATTESTATION_NAME).write_bytes(sign(bundle().files, ALICE))
    program = (
        "import sys; from pathlib import Path; from pytest_flamegate.receipt import verify_receipt;"
        "from pytest_flamegate import cli; cli._parser();"
        "keys = [sys.argv[2].encode()] if len(sys.argv) > 2 else [];"
        "answer = verify_receipt(Path(sys.argv[1]), keys=keys);"
        "print(answer.grade.name, 'cryptography' in sys.modules)"
    )
    for given, told in (((), "OBSERVED False"), ((A.decode(),), "ATTESTED True")):
        done = subprocess.run(
            [sys.executable, "-c", program, str(path), *given],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == told


# What does not hold


@pytest.mark.parametrize("name", FORGED)
def test_what_alice_did_not_sign_like_this(name: str) -> None:
    envelope, code = FORGED[name]
    answer = verified(envelope, A)
    assert set(codes(answer)) == {code}
    assert not answer.ok
    assert answer.grade is Grade.OBSERVED
    assert answer.signed_by is None
    assert all(refusal.message and refusal.remedy for refusal in answer.refusals)


@pytest.mark.parametrize("code", [rule.code for rule in receipt_sign.RULES])
def test_without_any_one_rule_a_forgery_gets_through(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer: Rulebook[receipt_sign.Attestation] = Rulebook()
    fewer.rules = tuple(rule for rule in receipt_sign.RULES if rule.code != code)
    monkeypatch.setattr(receipt_sign, "RULES", fewer)
    assert any(verified(envelope, A).ok for envelope, kept in FORGED.values() if kept == code)


def test_every_rule_says_what_holds() -> None:
    assert len({rule.code for rule in receipt_sign.RULES}) == len(list(receipt_sign.RULES)) == 6
    for rule in receipt_sign.RULES:
        assert rule.code.startswith("E_SIGNATURE_")
        assert rule.sentence.endswith(".")
        assert rule.remedy
        assert rule.protects is Grade.ATTESTED


@pytest.mark.parametrize("name", SUBJECTS)
def test_signed_files_are_bound_byte_by_byte(name: str) -> None:
    files = {**FILES, name: FILES[name] + b"\n"}
    answer = verified(SIGNED, A, files=files)
    assert "E_SIGNATURE_SUBJECT" in codes(answer)
    assert not answer.honest
    assert answer.grade < Grade.ATTESTED


def test_a_file_that_was_signed_is_missing() -> None:
    files = {name: data for name, data in FILES.items() if name != "profile.folded"}
    answer = verified(SIGNED, A, files=files)
    assert "profile.folded" in next(
        each.message for each in answer.refusals if each.code == "E_SIGNATURE_SUBJECT"
    )
    # And one that was not signed is there.
    assert "E_SIGNATURE_SUBJECT" in codes(verified(sign(files, ALICE), A))


def test_a_dishonest_receipt_is_refused_whoever_signed() -> None:
    files = bundle().with_receipt(tokens_per_second=9000.0).files
    answer = verified(sign(files, ALICE), A, files=files)
    assert not answer.ok
    assert answer.grade < Grade.OBSERVED
    assert not any(code.startswith("E_SIGNATURE") for code in codes(answer))


def test_a_key_and_no_signature() -> None:
    answer = verified(None, A)
    assert codes(answer) == ["E_SIGNATURE_MISSING"]
    assert answer.grade is Grade.OBSERVED
    assert codes(verified(None, b"no key")) == ["E_BAD_KEY", "E_SIGNATURE_MISSING"]


@pytest.mark.parametrize("bad", [b"", ALICE.pem(None), None, 7, Path("/nonexistent"), object()])
def test_a_bad_key_is_refused_even_beside_a_good_one(bad: Any) -> None:
    assert codes(verified(SIGNED, A, bad)) == ["E_BAD_KEY"]
    for odd in (bad, [bad]):
        answer = verify_receipt(FILES["receipt.json"], attestation=SIGNED, keys=odd, now=NOW)
        assert not answer.ok or not odd


@pytest.mark.parametrize("bad", [7, object(), Path("/nonexistent"), [], Path("/dev/zero")])
def test_an_attestation_that_cannot_be_read(bad: Any) -> None:
    assert not verified(bad, A).ok
    assert "E_INTERNAL" not in codes(verified(bad, A))


# Signing


def test_the_same_files_give_the_same_statement() -> None:
    assert sign(FILES, ALICE) == SIGNED == sign(FILES, ALICE, SIGNED)
    assert read(sign(FILES, BOB)).payload == read(SIGNED).payload


def test_the_evidence_stands_in_the_statement_as_it_is() -> None:
    assert FILES["evidence.json"].strip() in read(SIGNED).payload
    document = json_old.loads(read(SIGNED).payload)
    assert isinstance(document, dict)
    assert document["predicate"] == json.loads(FILES["evidence.json"])


def test_a_false_signature_in_our_name_is_replaced() -> None:
    envelope = read(SIGNED)
    false = attestation.encode(
        replace(envelope, signatures=(Signature(ALICE.public.keyid, bytes(64)),))
    )
    assert sign(FILES, ALICE, false) == SIGNED


@pytest.mark.parametrize(
    "present",
    [
        b"",
        b"{}",
        sign(OTHER, BOB),
        enveloped(STATEMENT, payload_type="text/plain"),
        enveloped(RECODED),
    ],
)
def test_another_attestation_is_never_overwritten(present: bytes) -> None:
    with pytest.raises(ReceiptError, match="E_OTHER_ATTESTATION"):
        sign(FILES, ALICE, present)


def test_no_more_signatures_than_are_read() -> None:
    def padded(count: int) -> bytes:
        strangers = (Signature(f"{number}", bytes(64)) for number in range(count))
        return attestation.encode(replace(read(SIGNED), signatures=tuple(strangers)))

    full = sign(FILES, ALICE, padded(attestation.MAX_SIGNATURES - 1))
    assert verified(full, A).grade is Grade.ATTESTED
    with pytest.raises(ReceiptError, match="E_TOO_MANY_SIGNATURES"):
        sign(FILES, ALICE, padded(attestation.MAX_SIGNATURES))


def test_the_cost_of_false_signatures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def counting(_: object, signature: bytes, message: bytes) -> bool:
        tried.append(signature)
        return False

    monkeypatch.setattr("pytest_flamegate.receipt.keys.PublicKey.verifies", counting)
    trusted: Sequence[bytes] = (A, B)
    full = replace(
        read(SIGNED), signatures=(Signature("", bytes(64)),) * attestation.MAX_SIGNATURES
    )
    assert not verified(attestation.encode(full), *trusted).ok
    assert len(tried) == len(trusted) * attestation.MAX_SIGNATURES


def test_an_unsigned_receipt_is_no_less_honest() -> None:
    unsigned = verify_receipt(FILES["receipt.json"], keys=[ALICE.public.pem])
    assert not unsigned.ok
    assert unsigned.honest

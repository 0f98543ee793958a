"""Other implementations read what we sign, and we read what they sign."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf.json_format import Parse
from in_toto_attestation.v1.statement import (  # type: ignore[import-untyped]
    STATEMENT_TYPE_URI,
    Statement,
)
from in_toto_attestation.v1.statement_pb2 import (  # type: ignore[import-untyped]
    Statement as Message,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import (  # type: ignore[attr-defined]
    CryptoSigner,
    Signer,
    SSlibKey,
)

from pytest_flamegate.receipt import Grade, verify_receipt
from pytest_flamegate.receipt.keys import (
    PrivateKey,
    generate_key,
    load_private_key,
)
from pytest_flamegate.receipt.sign import (
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    SUBJECTS,
    encode_statement,
    sign_files,
)
from tests.receipt.attestations import ALICE, BOB, FILES
from tests.receipt.test_verify import NOW


def theirs(key: PrivateKey) -> SSlibKey:
    return SSlibKey.from_crypto(load_pem_public_key(key.public.pem))


def test_they_verify_ours() -> None:
    envelope = Envelope.from_dict(json.loads(sign_files(FILES, BOB, sign_files(FILES, ALICE))))
    for key in (ALICE, BOB):
        assert set(envelope.verify([theirs(key)], 1)) == {key.public.keyid}
    assert len(envelope.verify([theirs(ALICE), theirs(BOB)], 2)) == 2
    with pytest.raises(VerificationError):
        envelope.verify([theirs(generate_key())], 1)
    envelope.payload += b" "
    with pytest.raises(VerificationError):
        envelope.verify([theirs(ALICE)], 1)


def test_we_verify_theirs() -> None:
    signers = [CryptoSigner.generate_ed25519() for _ in range(2)]
    envelope = Envelope(encode_statement(FILES), PAYLOAD_TYPE, {})
    for signer in signers:
        envelope.sign(signer)
    data = json.dumps(envelope.to_dict()).encode()
    for signer in signers:
        public = load_private_key(signer.private_bytes).public
        assert public.keyid == signer.public_key.keyid
        answer = verify_receipt(
            FILES["receipt.json"],
            evidence=FILES["evidence.json"],
            profile_folded=FILES["profile.folded"],
            attestation=data,
            keys=[public.pem],
            now=NOW,
        )
        assert (answer.grade, answer.signed_by) == (Grade.ATTESTED, public.keyid)


def test_they_sign_with_our_key_file_and_we_with_theirs(tmp_path: Path) -> None:
    key = generate_key()
    (tmp_path / "ours").write_bytes(key.pem(None))
    signer = Signer.from_priv_key_uri(f"file2:{tmp_path / 'ours'}", theirs(key))
    assert bytes.fromhex(signer.sign(b"said").signature) == key.sign(b"said")
    made = CryptoSigner.generate_ed25519()
    loaded = load_private_key(made.private_bytes)
    assert bytes.fromhex(made.sign(b"said").signature) == loaded.sign(b"said")


def test_the_statement_is_one_for_in_toto() -> None:
    message = Parse(encode_statement(FILES), Message())
    read = Statement.copy_from_pb(message)
    read.validate()
    assert STATEMENT_TYPE == STATEMENT_TYPE_URI
    assert [each.name for each in message.subject] == list(SUBJECTS)
    assert all(len(each.digest["sha256"]) == 64 for each in message.subject)
    assert message.predicate["nonce"] == json.loads(FILES["evidence.json"])["nonce"]

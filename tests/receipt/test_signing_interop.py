"""Other implementations read what we sign, and we read what they sign."""

import json

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
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]

from pytest_flamegate.receipt import Grade, sign
from pytest_flamegate.receipt.keys import PrivateKey, generate_key, load_private_key
from tests.receipt.attestations import ALICE, BOB, FILES
from tests.receipt.test_signing import verify


def theirs(key: PrivateKey) -> SSlibKey:
    return SSlibKey.from_crypto(load_pem_public_key(key.public.pem))


def test_they_verify_ours() -> None:
    envelope = Envelope.from_dict(
        json.loads(sign.sign_files(FILES, BOB, sign.sign_files(FILES, ALICE)))
    )
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
    envelope = Envelope(sign.encode_statement(FILES), sign.PAYLOAD_TYPE, {})
    for signer in signers:
        envelope.sign(signer)
    data = json.dumps(envelope.to_dict()).encode()
    for signer in signers:
        public = load_private_key(signer.private_bytes).public
        assert public.keyid == signer.public_key.keyid
        answer = verify(data, public.pem)
        assert (answer.grade, answer.signed_by) == (Grade.ATTESTED, public.keyid)


def test_the_statement_is_one_for_in_toto() -> None:
    message = Parse(sign.encode_statement(FILES), Message())
    read = Statement.copy_from_pb(message)
    read.validate()
    assert sign.STATEMENT_TYPE == STATEMENT_TYPE_URI
    assert [each.name for each in message.subject] == list(sign.SUBJECTS)
    assert all(len(each.digest["sha256"]) == 64 for each in message.subject)
    assert message.predicate["nonce"] == json.loads(FILES["evidence.json"])["nonce"]

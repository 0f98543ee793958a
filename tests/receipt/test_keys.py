"""Keys: a vector of RFC 8032 through our files, and every file that is no key of ours."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, ed448
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.receipt import keys
from tests.receipt.attestations import ALICE, BOB, pem, private_pem, public_pem

PKCS8 = forms.PrivateFormat.PKCS8


def private_file(key: PrivateKeyTypes, form: forms.PrivateFormat) -> bytes:
    return key.private_bytes(forms.Encoding.PEM, form, forms.NoEncryption())


def public_file(key: PrivateKeyTypes) -> bytes:
    info = forms.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(forms.Encoding.PEM, info)


def test_a_vector_of_rfc_8032() -> None:
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    raw = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    private = keys.load_private_key(private_pem(seed))
    assert private.public.pem == public_pem(raw)
    assert private.sign(b"\x72") == signature
    loaded = keys.load_public_key(private.public.pem)
    assert loaded.keyid == private.public.keyid
    assert loaded.verify(signature, b"\x72")
    assert not loaded.verify(signature, b"\x73")


def test_an_encrypted_key() -> None:
    sealed = ALICE.pem(b"secret")
    assert keys.is_encrypted(sealed)
    assert not keys.is_encrypted(ALICE.pem(None))
    assert keys.load_private_key(sealed, b"secret").public.keyid == ALICE.public.keyid
    assert keys.load_private_key(ALICE.pem(None), b"not needed").public.keyid == ALICE.public.keyid
    for wrong in (None, b"", b"Secret"):
        with pytest.raises(UsageError, match="E_KEY_PASSPHRASE"):
            keys.load_private_key(sealed, wrong)


BAD = {
    "empty": b"",
    "noise": bytes(range(256)),
    "no-key": b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
    "cut": ALICE.public.pem[:60],
    "short": pem("PUBLIC KEY", bytes.fromhex("302a300506032b6570032100") + bytes(31)),
    "two": ALICE.public.pem + BOB.public.pem,
    "both": ALICE.public.pem + ALICE.pem(None),
    "certificate": pem("CERTIFICATE", bytes(40)),
    "openssh": private_file(ALICE.key, forms.PrivateFormat.OpenSSH),
    "traditional": private_file(
        ec.generate_private_key(ec.SECP256R1()), forms.PrivateFormat.TraditionalOpenSSL
    ),
    "raw": ALICE.key.public_key().public_bytes_raw(),
}
for other in (ec.generate_private_key(ec.SECP256R1()), ed448.Ed448PrivateKey.generate()):
    name = type(other).__name__
    BAD |= {name: private_file(other, PKCS8), f"{name}-public": public_file(other)}


@pytest.mark.parametrize("name", BAD)
def test_other_files_are_no_keys(name: str) -> None:
    for load in (keys.load_public_key, keys.load_private_key):
        with pytest.raises(UsageError, match="E_BAD_KEY") as raised:
            load(BAD[name])
        assert raised.value.remedy
        assert "BEGIN" not in str(raised.value)


def test_a_private_key_is_not_taken_for_a_public_one_nor_shown() -> None:
    for given in (ALICE.pem(None), ALICE.pem(b"secret")):
        with pytest.raises(UsageError, match="It is a private key") as raised:
            keys.load_public_key(given)
        assert given.splitlines()[1].decode() not in str(raised.value)
    with pytest.raises(UsageError, match="It is a public key"):
        keys.load_private_key(ALICE.public.pem)


def test_a_key_is_a_small_regular_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(ALICE.public.pem)
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(ALICE.public.pem + bytes(keys.KEY_MAX_BYTES))
    assert keys.read_key_file(tmp_path / "real") == ALICE.public.pem
    for entry in ("nothing", "link", "", "pipe", "large"):
        with pytest.raises(UsageError, match="E_BAD_KEY"):
            keys.read_key_file(tmp_path / entry)

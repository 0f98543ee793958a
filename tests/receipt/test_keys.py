"""Keys: the vectors of RFC 8032 through our files, and every file that is no key of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.receipt import keys
from tests.made import bundle
from tests.receipt.attestations import ALICE, BOB, pem, private_pem, public_pem

# RFC 8032, section 7.1: seed, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


def private_file(key: PrivateKeyTypes, form: forms.PrivateFormat) -> bytes:
    return key.private_bytes(forms.Encoding.PEM, form, forms.NoEncryption())


def public_file(key: PrivateKeyTypes) -> bytes:
    info = forms.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(forms.Encoding.PEM, info)


RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED448 = ed448.Ed448PrivateKey.generate()
PKCS8, TRADITIONAL = forms.PrivateFormat.PKCS8, forms.PrivateFormat.TraditionalOpenSSL
OPENSSH = forms.PrivateFormat.OpenSSH


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    private = keys.load_private_key(private_pem(bytes.fromhex(seed)))
    assert private.public.pem == public_pem(bytes.fromhex(public))
    said = bytes.fromhex(message)
    assert private.sign(said).hex() == signature
    loaded = keys.load_public_key(private.public.pem)
    assert loaded.keyid == private.public.keyid
    assert loaded.verify(bytes.fromhex(signature), said)
    assert not loaded.verify(bytes.fromhex(signature), said + b"x")


def test_a_signature_has_one_form() -> None:
    """The second half of a signature counts modulo the group's order: only one form counts."""
    order = 2**252 + 27742317777372353535851937790883648493
    good = ALICE.sign(b"said")
    twin = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
    assert ALICE.public.verify(good, b"said")
    for bad in (twin, good[:-1], good + b"\0", b"", bytes(64), b"\xff" * 64, bytes(3000)):
        assert not ALICE.public.verify(bad, b"said")
    assert not BOB.public.verify(good, b"said")


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
    "no-private-key": b"-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
    "cut": ALICE.public.pem[:60],
    "short": pem("PUBLIC KEY", bytes.fromhex("302a300506032b6570032100") + bytes(31)),
    "two": ALICE.public.pem + BOB.public.pem,
    "two-private": ALICE.pem(None) + BOB.pem(None),
    "both": ALICE.public.pem + ALICE.pem(None),
    "certificate": pem("CERTIFICATE", bytes(40)),
    "rsa": private_file(RSA, PKCS8),
    "rsa-public": public_file(RSA),
    "rsa-traditional": private_file(RSA, TRADITIONAL),
    "ec": private_file(EC, PKCS8),
    "ec-public": public_file(EC),
    "ec-traditional": private_file(EC, TRADITIONAL),
    "ed448": private_file(ED448, PKCS8),
    "ed448-public": public_file(ED448),
    "openssh": private_file(ALICE.key, OPENSSH),
    "raw": ALICE.key.public_key().public_bytes_raw(),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_key_of_ours(name: str) -> None:
    for load in (keys.load_public_key, keys.load_private_key):
        with pytest.raises(UsageError, match="E_BAD_KEY") as refused:
            load(BAD[name])
        assert refused.value.remedy
        assert "BEGIN" not in str(refused.value)


def test_a_private_key_is_not_taken_for_a_public_one_nor_shown() -> None:
    for given in (ALICE.pem(None), ALICE.pem(b"secret")):
        with pytest.raises(UsageError, match="It is a private key") as refused:
            keys.load_public_key(given)
        assert given.splitlines()[1].decode() not in str(refused.value)
    with pytest.raises(UsageError, match="It is a public key"):
        keys.load_private_key(ALICE.public.pem)


@pytest.mark.parametrize("what", ["nothing", "link", "directory", "pipe", "large"])
def test_a_key_is_a_small_regular_file(tmp_path: Path, what: str) -> None:
    path = tmp_path / "key"
    if what == "link":
        (tmp_path / "real").write_bytes(ALICE.public.pem)
        path.symlink_to("real")
    elif what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "large":
        path.write_bytes(ALICE.public.pem + bytes(keys.KEY_MAX_BYTES))
    with pytest.raises(UsageError, match="E_BAD_KEY"):
        keys.read_key_file(path)


def test_without_cryptography(tmp_path: Path) -> None:
    path = bundle().write(tmp_path)
    program = (
        "import sys; sys.modules['cryptography'] = None; from pathlib import Path;"
        "from pytest_flamegate.receipt import verify_receipt;"
        "answer = verify_receipt(Path(sys.argv[1]), keys=[b'key']);"
        "print(answer.grade.name, *(each.code for each in answer.refusals))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["OBSERVED", "E_NO_SIGNING", "E_SIGNATURE_MISSING"]

"""Ed25519 keys: generate, read from PEM, sign, verify.

Only this module needs ``cryptography``, and it is imported only if there is a key. If the package
is missing, the import raises ToolError ``E_NO_SIGNING``.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.core.text import Refusal
from pytest_flamegate.receipt.sources import Source, read_source

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )
except ImportError as error:
    raise ToolError(
        "E_NO_SIGNING", "Signatures need the package cryptography, which cannot be imported."
    ) from error

KEY_MAX_BYTES = 16 << 10

_LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_KEYID = b'{"keytype":"ed25519","keyval":{"public":"%b"},"scheme":"ed25519"}'


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Verifies signatures. ``keyid``: sha256, in hex, of the canonical JSON, as in in-toto."""

    keyid: str
    key: Ed25519PublicKey

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` over ``message`` was made with the private half of this key."""
        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    @property
    def pem(self) -> bytes:
        """The key as SubjectPublicKeyInfo in PEM."""
        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """Signs."""

    public: PublicKey
    key: Ed25519PrivateKey

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of the signature over ``message``."""
        return self.key.sign(message)

    def pem(self, passphrase: bytes | None) -> bytes:
        """Return the key as PKCS8 in PEM, encrypted if there is a passphrase."""
        encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def generate_key() -> PrivateKey:
    """Return a new random key."""
    return _private(Ed25519PrivateKey.generate())


def read_key_file(source: Source) -> bytes:
    """Return the bytes of a key's file, or the bytes given; UsageError ``E_BAD_KEY``."""
    raw = read_source(source, KEY_MAX_BYTES)
    if isinstance(raw, Refusal):
        raise UsageError("E_BAD_KEY", f"The key cannot be used. {raw.message}", raw.remedy)
    return raw


@lru_cache(maxsize=64)
def load_public_key(pem: bytes) -> PublicKey:
    """Return the key that ``pem`` holds as SubjectPublicKeyInfo; UsageError ``E_BAD_KEY``."""
    label = _read_label(pem)
    if label.endswith("PRIVATE KEY"):
        raise _bad_key("It is a private key", "Give its public half; keep the private one secret.")
    if label != "PUBLIC KEY":
        raise _bad_key(f"It contains a {label}")
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise _bad_key("It cannot be read") from None
    if not isinstance(key, Ed25519PublicKey):
        raise _other_kind(key)
    return _public(key)


def is_encrypted(pem: bytes) -> bool:
    """Whether the private key in ``pem`` needs a passphrase."""
    return _read_label(pem) == "ENCRYPTED PRIVATE KEY"


def load_private_key(pem: bytes, passphrase: bytes | None = None) -> PrivateKey:
    """Return a key as PKCS8; UsageError ``E_BAD_KEY`` or ``E_KEY_PASSPHRASE``."""
    label, encrypted = _read_label(pem), is_encrypted(pem)
    if label == "PUBLIC KEY":
        raise _bad_key("It is a public key", "Give its private half.")
    if label != "PRIVATE KEY" and not encrypted:
        raise _bad_key(f"It contains a {label}")
    if encrypted and not passphrase:
        raise passphrase_error("The key is encrypted, but no passphrase was given.")
    try:
        key = load_pem_private_key(pem, passphrase if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise passphrase_error("The key cannot be read with this passphrase.") from None
        raise _bad_key("It cannot be read") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _other_kind(key)
    return _private(key)


def passphrase_error(problem: str) -> UsageError:
    """Return the error that says how to give a passphrase."""
    return UsageError("E_KEY_PASSPHRASE", problem)


def _public(key: Ed25519PublicKey) -> PublicKey:
    canonical = _KEYID % key.public_bytes_raw().hex().encode("ascii")
    return PublicKey(hashlib.sha256(canonical).hexdigest(), key)


def _private(key: Ed25519PrivateKey) -> PrivateKey:
    return PrivateKey(_public(key.public_key()), key)


def _read_label(pem: bytes) -> str:
    """Return the label of the one PEM block in ``pem``."""
    labels = _LABEL.findall(pem)
    if len(labels) != 1 or pem.count(b"-----BEGIN") != 1:
        raise _bad_key("It is not exactly one key in PEM form")
    return str(labels[0], "ascii")


def _other_kind(key: object) -> UsageError:
    return _bad_key(f"It is another kind of key ({type(key).__name__.lstrip('_')})")


def _bad_key(problem: str, remedy: str = "") -> UsageError:
    return UsageError("E_BAD_KEY", f"The key cannot be used. {problem}.", remedy)

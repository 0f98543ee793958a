"""Mutated attestations, statements and keys: each gets an answer, and none a failure."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from pytest_flamegate.core.errors import FlamegateError, ReceiptError
from pytest_flamegate.receipt import keys
from pytest_flamegate.receipt.sign import check_signature, hash_files, read_envelope, read_statement
from tests.receipt.attestations import ALICE, BOB, FILES, FORGED, SIGNED, STATEMENT, envelope_of

WORDS = (
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\ud800", b"\0", b"\xff", b"\n", b" "),
    *(b"null", b"true", b"-0", b"1e999", b"9" * 70, b'"payload"', b'"sig":""', b"==", b"-_"),
    *(b'"subject":[]', b'"_type"', b"-----BEGIN PUBLIC KEY-----", b"-----END PRIVATE KEY-----"),
)
ENVELOPES = (SIGNED, envelope_of(STATEMENT, ALICE, BOB), *(each for each, _ in FORGED.values()))
SMALL = tuple(each for each in ENVELOPES if len(each) < 100_000)
PEMS = (ALICE.public.pem, ALICE.pem(None), ALICE.pem(b"secret"))


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Cut, double, replace or overwrite in one to four places."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((0, 1, 2, 8, 64, 4096)))
        middle = rng.choice(
            (b"", data[start:end] * 2, rng.choice(WORDS), rng.randbytes(rng.randint(1, 8)))
        )
        data = data[:start] + middle + data[end:]
    return data


def answers(seed: int, count: int) -> Iterator[str]:
    """Yield the code of the answer to each of ``count`` mutations, or ``good``."""
    rng = random.Random(seed)
    for number in range(count):
        trusted = (ALICE.public.pem,)
        envelope = SIGNED
        if number % 3 == 0:
            envelope = mutate(rng, rng.choice(SMALL))
        elif number % 3 == 1:  # signed, so that the statement is read
            envelope = envelope_of(mutate(rng, STATEMENT))
        else:
            trusted = (mutate(rng, rng.choice(PEMS)),)
        found = check_signature(envelope, trusted, FILES)
        assert (found.signed_by is None) is bool(found.refusals)
        for refusal in found.refusals:
            assert refusal.message.isascii()
            assert refusal.message.isprintable()
            assert len(refusal.message) < 1000
        if found.signed_by is not None:
            read = read_envelope(envelope)
            assert any(ALICE.public.verify(each.sig, read.message) for each in read.signatures)
            assert sorted(read_statement(read.payload).subjects) == sorted(hash_files(FILES))
        yield found.refusals[0].code if found.refusals else "good"


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 300), pytest.param(1, 20_000, marks=pytest.mark.nightly)]
)
def test_mutations(seed: int, count: int) -> None:
    codes = Counter(answers(seed, count))
    expected = {"E_SIGNATURE_ENVELOPE", "E_SIGNATURE_UNTRUSTED", "E_SIGNATURE_SUBJECT", "E_BAD_KEY"}
    assert expected <= codes.keys() <= {"good", *expected}


@pytest.mark.parametrize("length", [0, 1, 7, 64, 4096])
def test_noise_is_an_error(length: int) -> None:
    rng = random.Random(length)
    for _ in range(20):
        noise = rng.randbytes(length)
        for read in (read_envelope, read_statement):
            with pytest.raises(ReceiptError, match="E_SIGNATURE_ENVELOPE"):
                read(noise)
        with pytest.raises(FlamegateError, match="E_BAD_KEY"):
            keys.load_private_key(noise, b"secret")

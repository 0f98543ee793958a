"""Whatever stands where an attestation, a statement or a key should be: an answer comes out."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.text import Refusal
from pytest_flamegate.receipt import attestation, keys, sign
from pytest_flamegate.receipt.attestation import Envelope
from tests.receipt.forged_attestations import FILES, FORGED, SIGNED, STATEMENT, read
from tests.receipt.signed import ALICE, BOB, enveloped

WORDS = (
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\ud800", b"\0", b"\xff", b"\n", b" "),
    *(b"null", b"true", b"-0", b"1e999", b"9" * 70, b'"payload"', b'"sig":""', b"==", b"-_"),
    *(b'"subject":[]', b'"_type"', b"-----BEGIN PUBLIC KEY-----", b"-----END PRIVATE KEY-----"),
)
ENVELOPES = (SIGNED, enveloped(STATEMENT, ALICE, BOB), *(each for each, _ in FORGED.values()))
SMALL = tuple(each for each in ENVELOPES if len(each) < 100_000)
PEMS = (ALICE.public.pem, ALICE.pem(None), ALICE.pem(b"secret"))
TRUSTED = (ALICE.public.pem,)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Cut, doubled, patched and overwritten in one to four places."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((0, 1, 2, 8, 64, 4096)))
        middle = rng.choice(
            (b"", data[start:end] * 2, rng.choice(WORDS), rng.randbytes(rng.randint(1, 8)))
        )
        data = data[:start] + middle + data[end:]
    return data


def answers(seed: int, count: int) -> Iterator[tuple[str, float]]:
    """Yield what came out of ``count`` mutations (a code, or ``good``), and after how long."""
    rng = random.Random(seed)
    for number in range(count):
        if number % 3 == 0:
            envelope = mutated(rng, rng.choice(SMALL))
        elif number % 3 == 1:  # past the signature, and so to what reads statements
            envelope = enveloped(mutated(rng, STATEMENT))
        else:
            envelope = SIGNED
        trusted = (mutated(rng, rng.choice(PEMS)),) if number % 3 == 2 else TRUSTED
        began_s = time.perf_counter()
        found = sign.judge(envelope, trusted, FILES)
        took_s = time.perf_counter() - began_s
        assert (found.signed_by is None) is bool(found.refusals)
        for refusal in found.refusals:
            assert refusal.message.isascii()
            assert refusal.message.isprintable()
            assert len(refusal.message) < 1000
        if found.signed_by is not None:
            only_said_otherwise(envelope)
        yield (found.refusals[0].code if found.refusals else "good"), took_s


def only_said_otherwise(envelope: bytes) -> None:
    """What is still good is Alice's signature over a statement of the same content."""
    kept = read(envelope)
    assert any(ALICE.public.verifies(each.sig, kept.message) for each in kept.signatures)
    said = attestation.read_statement(kept.payload)
    assert isinstance(said, attestation.Statement)
    assert sorted(said.subjects) == sorted(attestation.digests(FILES))


def test_mutations() -> None:
    seen = Counter(code for code, _ in answers(0, 900))
    assert seen.keys() >= {
        "E_SIGNATURE_ENVELOPE",
        "E_SIGNATURE_UNTRUSTED",
        "E_SIGNATURE_STATEMENT",
        "E_SIGNATURE_SUBJECT",
        "E_SIGNATURE_PREDICATE",
        "E_BAD_KEY",
    }
    known = seen.keys() - {"good", "E_BAD_KEY"}
    assert all(code.startswith("E_SIGNATURE_") for code in known)


@pytest.mark.parametrize("length", [0, 1, 7, 64, 4096])
def test_noise(length: int) -> None:
    rng = random.Random(length)
    for _ in range(40):
        noise = rng.randbytes(length)
        assert isinstance(attestation.read(noise), Refusal)
        assert isinstance(attestation.read_statement(noise), Refusal)
        with pytest.raises(FlamegateError, match="E_BAD_KEY"):
            keys.load_private(noise, b"secret")


def test_every_cut_of_an_envelope_is_refused() -> None:
    whole = attestation.encode(
        Envelope(b"{}", attestation.PAYLOAD_TYPE, read(SIGNED).signatures)
    ).strip()
    for length in range(len(whole)):
        assert isinstance(attestation.read(whole[:length]), Refusal)


def main(count: int) -> None:
    """Print how many mutations got which answer, and the slowest."""
    seen: Counter[str] = Counter()
    slowest_s = 0.0
    for code, took_s in answers(1, count):
        seen[code] += 1
        slowest_s = max(slowest_s, took_s)
    for code, times in seen.most_common():
        print(f"{code:<32} {times:>10,}")
    print(f"{'slowest':<32} {slowest_s * 1e3:>7.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]))

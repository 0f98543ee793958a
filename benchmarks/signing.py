"""The time that a signature adds to verifying a receipt: ``python -m benchmarks.signing``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from benchmarks.tables import Table, as_text
from pytest_flamegate.core.json import parse_timestamp
from pytest_flamegate.receipt import Grade, keys, verify_receipt
from pytest_flamegate.receipt.sign import check_signature, sign_files
from tests.made import CREATED, bundle

RECEIPTS = 10_000
DISTINCT = 200
NOW = parse_timestamp(CREATED) + timedelta(hours=1)

Files = dict[str, bytes]


def table(receipts: int = RECEIPTS, distinct: int = DISTINCT) -> Table:
    """Verify so many receipts unsigned and signed in turn, and time the parts of the second."""
    files = [bundle(seed=number).files for number in range(distinct)]
    key = keys.generate_key()
    trusted = [key.public.pem]
    signed = [sign_files(each, key) for each in files]
    works: dict[str, Callable[[Files, bytes], bool]] = {
        "verified, unsigned": lambda each, _: grade(each) is Grade.OBSERVED,
        "verified, signed": lambda each, envelope: grade(each, envelope, trusted) is Grade.ATTESTED,
        "of which the signature": lambda each, envelope: (
            check_signature(envelope, trusted, each).signed_by is not None
        ),
        "signing": lambda each, _: bool(sign_files(each, key)),
    }
    took_s = dict.fromkeys(works, 0.0)
    for number in range(receipts):
        each, envelope = files[number % distinct], signed[number % distinct]
        for name, work in works.items():
            began_s = time.process_time()
            done = work(each, envelope)
            took_s[name] += time.process_time() - began_s
            if not done:
                raise SystemExit(f"{name}: not the expected answer")
    sizes = sum(sum(map(len, each.values())) for each in files) / distinct
    rows = tuple((name, f"{s:.2f}", f"{s / receipts * 1e6:.0f}") for name, s in took_s.items())
    what = f"{receipts:,} receipts of {sizes / 1e3:.0f} kB with evidence and profile"
    return Table(what, ("", "CPU s", "µs each"), rows)


def grade(files: Files, envelope: bytes | None = None, trusted: Sequence[bytes] = ()) -> Grade:
    """Return the grade of one receipt."""
    return verify_receipt(
        files["receipt.json"],
        evidence=files["evidence.json"],
        profile_folded=files["profile.folded"],
        attestation=envelope,
        keys=trusted,
        now=NOW,
    ).grade


if __name__ == "__main__":
    print(as_text(table(int(sys.argv[1]) if len(sys.argv) > 1 else RECEIPTS)))

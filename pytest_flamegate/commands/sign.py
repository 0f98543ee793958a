"""``flamegate keygen`` and ``flamegate sign``: sign a receipt, its evidence and its profile."""

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from getpass import getpass
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.commands.verify import find_receipt
from pytest_flamegate.core.errors import ReceiptError, UsageError
from pytest_flamegate.core.files import create_file, read_bounded
from pytest_flamegate.core.locks import lock_directory
from pytest_flamegate.receipt import Grade, Refusal, Verification, store, verify_receipt
from pytest_flamegate.receipt import sign as statement
from pytest_flamegate.receipt.baseline import ATTESTATION, EVIDENCE, FOLDED, RECEIPT, StoredRun
from pytest_flamegate.receipt.sources import read_sources
from pytest_flamegate.receipt.store import LOCK_TIMEOUT_S

NAME = "flamegate.key"
PASSPHRASE = "FLAMEGATE_KEY_PASSPHRASE"


def run_keygen(parsed: argparse.Namespace) -> int:
    """Make the pair."""
    from pytest_flamegate.receipt import keys

    private = Path(parsed.output)
    if parsed.output.endswith("/") or private.is_dir():
        private /= NAME
    public = private.with_name(f"{private.name}.pub")
    for path in (private, public):
        if os.path.lexists(path):
            raise UsageError(
                "E_NOT_OVERWRITTEN",
                f"{str(path)!a} exists, and no key is overwritten.",
                "Name another path with -o PATH, or move that file away.",
            )
    secret = passphrase(twice=True) if parsed.passphrase else _from_environment()
    key = keys.generate_key()
    create_file(private, key.pem(secret), mode=0o600)
    try:
        create_file(public, key.public.pem, mode=0o644)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    sealed = "encrypted" if secret else "not encrypted"
    common.print_text(f"private key  {private} ({sealed}; keep it secret, and out of git)")
    common.print_text(f"public key   {public} (for verify-receipt --key)")
    common.print_text(f"keyid        {key.public.keyid}")
    return 0


def passphrase(*, twice: bool = False) -> bytes:
    """Return the passphrase from the environment, or ask for it at the terminal."""
    from pytest_flamegate.receipt.keys import passphrase_error

    given = _from_environment()
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise passphrase_error("A passphrase is needed, and there is no terminal to ask for it.")
    typed = getpass("Passphrase of the key: ")
    if not typed:
        raise passphrase_error("The passphrase is empty.")
    if twice and getpass("Once more: ") != typed:
        raise passphrase_error("The two passphrases differ.")
    return os.fsencode(typed)


def _from_environment() -> bytes | None:
    return os.environb.get(os.fsencode(PASSPHRASE)) or None


def run(parsed: argparse.Namespace) -> int:
    """Sign the receipt, or only write the predicate."""
    grade = Grade.parse(parsed.require_grade)
    parsed.receipt = find_receipt(parsed.receipt)
    if parsed.key is None:
        files = _read_honest(parsed.receipt, grade).files
        _write_predicate(parsed.receipt, files, parsed.predicate)
        return 0
    from pytest_flamegate.receipt import keys  # the predicate needs no cryptography

    pem = keys.read_key_file(parsed.key)
    key = keys.load_private_key(pem, passphrase() if keys.is_encrypted(pem) else None)
    if parsed.key.stat().st_mode & 0o077:
        common.print_text(
            f"note: other users of this machine may read {parsed.key}; run: chmod 600 {parsed.key}"
        )
    directory = parsed.receipt.parent
    # Runs and other signers of this directory hold the same lock.
    above = directory.resolve().parent
    with lock_directory(above, LOCK_TIMEOUT_S) if above.is_dir() else nullcontext():
        head = _read_honest(parsed.receipt, grade)
        signed = {directory / ATTESTATION: head.files}
        is_pair = head.evidence is not None and head.evidence.side == "head"
        base = StoredRun(directory).base
        if is_pair and base.has(RECEIPT):
            # The verdict of a comparison with a revision rests on both sides.
            receipt, *near = map(base.path, (RECEIPT, EVIDENCE, FOLDED))
            signed[base.path(ATTESTATION)] = _read_honest(receipt, grade, *near).files
        for path, files in signed.items():
            present = (
                read_bounded(path, statement.ENVELOPE_MAX_BYTES) if os.path.lexists(path) else None
            )
            store.write_atomic(path, statement.sign_files(files, key, present))
    common.print_text("\n".join(map(str, signed)) + f"\nsigned by {key.public.keyid}")
    return 0


def _read_honest(
    path: Path, grade: Grade, evidence: Path | None = None, folded: Path | None = None
) -> Verification:
    """Read files once and verify them; raises ``E_NOT_SIGNED`` below ``grade``."""
    sources = read_sources(path, evidence, folded)
    for part in (sources.receipt, sources.evidence, sources.folded):
        if isinstance(part, Refusal):
            raise ReceiptError(part.code, part.message, part.remedy)
    found = verify_receipt(sources, require_grade=grade)
    if not found.ok:
        first = found.refusals[0]
        raise ReceiptError(
            "E_NOT_SIGNED",
            f"{str(path)!a} is not signed: {first.code}: {first.message}",
            first.remedy or "Run it again, and sign the new files.",
        )
    return found


def _write_predicate(receipt: Path, files: Mapping[str, bytes], output: Path) -> None:
    """Write the predicate and print the inputs of an attestation, a line each: name=value."""
    is_same_directory = output.parent.resolve() == receipt.parent.resolve()
    if is_same_directory and output.name in {receipt.name, *statement.SUBJECTS, ATTESTATION}:
        raise UsageError(
            "E_NOT_OVERWRITTEN",
            f"{str(output)!a} is part of the receipt, and the predicate must not overwrite it.",
            "Name another file: --predicate predicate.json.",
        )
    store.write_atomic(output, statement.encode_predicate(files) + b"\n")
    # A receipt may have another name; the other files have their own.
    names = [receipt, *(receipt.with_name(name) for name, _ in statement.hash_files(files)[1:])]
    common.print_text(f"subject-path={','.join(map(str, names))}")
    common.print_text(f"predicate-type={statement.PREDICATE_TYPE}")
    common.print_text(f"predicate-path={output}")

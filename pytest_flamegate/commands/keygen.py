"""``flamegate keygen``: a key pair to sign receipts with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.errors import UsageError

if TYPE_CHECKING:
    import argparse

NAME = "flamegate.key"
PASSPHRASE = "FLAMEGATE_KEY_PASSPHRASE"


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "keygen",
        help="make a key pair to sign receipts with",
        description="Writes an Ed25519 key pair: the private key (PKCS8 in PEM, for its owner's "
        "eyes only) and beside it the public one (.pub). Nothing is overwritten. The private key "
        f"is encrypted if {PASSPHRASE} is set or --passphrase is given.",
    )
    parser.add_argument(
        "-o",
        "--output",
        default=NAME,
        metavar="PATH",
        help=f"the private key, or a directory for {NAME} (default: here)",
    )
    parser.add_argument("--passphrase", action="store_true", help="ask for a passphrase")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Make the pair."""
    from pytest_flamegate.receipt import disk, keys

    private = Path(parsed.output)
    if parsed.output.endswith("/") or private.is_dir():
        private /= NAME
    public = private.with_name(f"{private.name}.pub")
    for path in (private, public):
        if os.path.lexists(path):
            raise UsageError(
                "E_KEY_EXISTS",
                f"{str(path)!a} stands there already, and no key is overwritten.",
                "Name another place with -o PATH, or move that one away.",
            )
    secret = passphrase(twice=True) if parsed.passphrase else _from_environment()
    key = keys.generate()
    disk.create(private, key.pem(secret), mode=0o600)
    try:
        disk.create(public, key.public.pem, mode=0o644)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    sealed = "encrypted" if secret else "not encrypted"
    common.say(f"private key  {private} ({sealed}; keep it secret, and out of git)")
    common.say(f"public key   {public} (for verify-receipt --key)")
    common.say(f"keyid        {key.public.keyid}")
    return 0


def passphrase(*, twice: bool = False) -> bytes:
    """Return the passphrase from the environment, or from whoever sits at the terminal."""
    from getpass import getpass

    from pytest_flamegate.receipt.keys import bad_passphrase

    given = _from_environment()
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise bad_passphrase("A passphrase is wanted, and nobody can be asked for it here.")
    typed = getpass("Passphrase of the key: ")
    if not typed:
        raise bad_passphrase("The passphrase is empty.")
    if twice and getpass("Once more: ") != typed:
        raise bad_passphrase("The two passphrases differ.")
    return os.fsencode(typed)


def _from_environment() -> bytes | None:
    return os.environb.get(os.fsencode(PASSPHRASE)) or None

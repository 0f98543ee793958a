"""``flamegate verify-receipt PATH…``: whether these numbers may be believed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.commands import common, replay
from pytest_flamegate.errors import ReceiptError, UsageError

if TYPE_CHECKING:
    import argparse

    from pytest_flamegate.commands.replay import Answer
    from pytest_flamegate.receipt import Verification

_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "verify-receipt", help="check that a receipt is honest, with its evidence if it has any"
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--require-gpu-kernels", action="store_true", help="refuse CPU-only claims")
    parser.add_argument("--require-grade", metavar="GRADE", help="refuse a lower grade")
    parser.add_argument("--max-age", metavar="24h", help="refuse an older receipt (s, m, h, d)")
    parser.add_argument("--kernel-policy", metavar="NAME", help="read kernel names by this policy")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="PUB",
        help="refuse what was not signed with this key (may be repeated: with one of these)",
    )
    replay.add_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Verify each receipt; 0 where all hold, 3 where one is refused.

    With ``--replay`` 4 or 5 where one could not be run again, or that showed too little.
    """
    from pytest_flamegate.receipt import Grade, verify_receipt
    from pytest_flamegate.receipt.policies import policy_for
    from pytest_flamegate.report import verification_text

    grade = None if parsed.require_grade is None else Grade.parse(parsed.require_grade)
    max_age_s = _seconds(parsed.max_age) if parsed.max_age is not None else None
    # A name that there is not is the caller's mistake, not the receipt's.
    policy_for(parsed.kernel_policy)
    if grade is Grade.ATTESTED and not parsed.key:
        raise UsageError(
            "E_NO_KEY",
            "The grade ATTESTED says who signed, and no key was given to check that with.",
            "Give the signer's public key: --key PUB.",
        )
    trusted = [_public_key(path) for path in parsed.key]
    replay.checked(parsed)

    def verify(data: bytes | Path, **parts: Any) -> Verification:
        asked: dict[str, Any] = {
            "policy": parsed.kernel_policy,
            "require_gpu_kernels": parsed.require_gpu_kernels,
            "require_grade": grade,
            "max_age_s": max_age_s,
            "keys": trusted,
        }
        return verify_receipt(data, **{**asked, **parts})

    plain = ((path, replay.Answer(verify(path))) for path in parsed.paths)
    results = []
    # Each is told at once: who interrupts this keeps the answers that there are.
    for path, each in replay.answers(parsed, verify) if parsed.replay else plain:
        results.append((path, each))
        if parsed.format == "text":
            common.say(
                verification_text(
                    each.verification,
                    path=str(path),
                    required=parsed.require_grade,
                    colour=sys.stdout.isatty(),
                    error=each.error,
                )
            )
    if parsed.format == "json":
        told = [{"path": str(path), **_document(each)} for path, each in results]
        common.say(json.dumps(told, indent=2))
    elif len(results) > 1:
        codes = [each.exit_code(replay=parsed.replay) for _, each in results]
        refused = codes.count(ReceiptError.exit_code)
        undecided = len(codes) - codes.count(0) - refused
        open_ones = f", {undecided} not replayed" if undecided else ""
        common.say(f"{codes.count(0)} accepted, {refused} refused{open_ones}")
    return replay.worst([each for _, each in results], replay=parsed.replay)


def _public_key(path: Path) -> bytes:
    """Return the file of a key; one that holds none is the caller's mistake, too."""
    from pytest_flamegate.receipt import keys

    pem = keys.read_pem(path)
    keys.load_public(pem)
    return pem


def _seconds(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(
            "E_BAD_AGE", f"{text!r} is no age.", "Write a figure and a unit: 90s, 15m, 24h, 7d."
        )
    return float(match[1]) * _SECONDS[match[2]]


def _document(answer: Answer) -> dict[str, object]:
    from pytest_flamegate.report.replay import replay_document

    found = answer.verification
    document: dict[str, object] = {
        "ok": found.ok,
        "honest": found.honest,
        "fit": found.fit,
        "grade": found.grade.name,
        "policy": found.policy,
        "refusals": [{"code": each.code, "message": each.message} for each in found.refusals],
        "warnings": [{"code": each.code, "message": each.message} for each in found.warnings],
        "signed_by": found.signed_by,
        "unfit": [{"code": each.code, "message": each.message} for each in found.unfit],
        "ceiling": found.ceiling,
    }
    if (replayed := replay_document(found)) is not None:
        document["replayed"] = replayed
    if answer.error is not None:
        message = f"{answer.error.what} {answer.error.todo}"
        document["not_replayed"] = {"code": answer.error.code, "message": message}
    return document

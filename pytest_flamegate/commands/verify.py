"""``flamegate verify-receipt PATH…``: check receipts, and replay their workloads if asked."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flamegate.commands import common
from pytest_flamegate.core.errors import (
    FlamegateError,
    ReceiptError,
    UndecidedError,
    UsageError,
    system_errors,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from pytest_flamegate.receipt import Verification
    from pytest_flamegate.receipt.rules.replay import Replayed
    from pytest_flamegate.receipt.sources import Sources
    from pytest_flamegate.run.replay import Replaying


_ONLY_WITH = ("replay_untrusted", "model", "budget", "config")
_SEVERITY = (ReceiptError.exit_code, 2, 5, 4, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for one receipt; ``error`` is the reason why its workload was not replayed."""

    verification: Verification
    error: FlamegateError | None = None

    def exit_code(self, *, replay: bool) -> int:
        """Return 0 if all requirements hold; a replay that confirmed nothing is undecided."""
        if not self.verification.ok:
            return ReceiptError.exit_code
        if self.error is not None:
            return self.error.exit_code
        if replay and not self.verification.obtained_again:
            return UndecidedError.exit_code
        return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare ``--replay`` and its options."""
    parser.add_argument(
        "--replay",
        action="store_true",
        help="run the workload again here; needs the embedded engine, or the same workload "
        "declared here",
    )
    parser.add_argument(
        "--replay-untrusted",
        action="store_true",
        help="with --replay: run whatever program the receipt names",
    )
    parser.add_argument("--model", type=Path, metavar="PATH", help="with --replay: the model file")
    common.add_options(parser, "budget", "config")


def require_replay(parsed: argparse.Namespace) -> None:
    """Raise ``E_REPLAY_OPTION`` for an option that has no effect without ``--replay``."""
    for name in _ONLY_WITH:
        if getattr(parsed, name) and not parsed.replay:
            raise UsageError(
                "E_REPLAY_OPTION",
                f"--{name.replace('_', '-')} has no effect without --replay.",
                "Add --replay, or leave it out.",
            )


def replay_all(
    parsed: argparse.Namespace, verify: Callable[..., Verification]
) -> Iterator[tuple[Path, Answer]]:
    """Verify each receipt, replay it if it is honest, and yield the result at once.

    ``verify(data, **parts)`` checks the requirements of the command line; ``parts`` may replace
    ``require_grade``.
    """
    from pytest_flamegate.core.progress import stream_progress
    from pytest_flamegate.engines.embedded import embedded_workloads
    from pytest_flamegate.run.replay import Replaying

    settings = common.read_settings(parsed)
    progress = stream_progress(sys.stderr)
    replaying = Replaying(
        root=settings.root,
        declared=(*common.read_workloads(settings), *embedded_workloads(settings.root)),
        budget_s=settings.budget_s,
        progress=progress,
        model=parsed.model,
        untrusted=parsed.replay_untrusted,
    )
    try:
        for path in parsed.paths:
            yield path, _answer(path, verify, replaying)
    finally:
        progress.stop()


def worst(answers: Sequence[Answer], *, replay: bool) -> int:
    """Return the exit code of the worst result."""
    codes = {answer.exit_code(replay=replay) for answer in answers}
    return next(code for code in _SEVERITY if code in codes)


def _answer(path: Path, verify: Callable[..., Verification], replaying: Replaying) -> Answer:
    from pytest_flamegate.receipt.sources import read_sources

    # Read once: the same bytes are verified, run and compared.
    sources = read_sources(path, None, None)
    read = {"evidence": sources.evidence, "profile_folded": sources.folded}
    if not isinstance(sources.receipt, bytes) or not all(
        part is None or isinstance(part, bytes) for part in read.values()
    ):
        return Answer(verify(path))
    parts = {**read, "attestation": sources.attestation}
    first = verify(sources.receipt, **parts, require_grade=None)
    if not first.ok:
        return Answer(verify(sources.receipt, **parts))
    try:
        with system_errors():
            replayed = _replayed(sources, replaying)
    except FlamegateError as error:
        return Answer(verify(sources.receipt, **parts), error)
    return Answer(verify(sources.receipt, **parts, replay=replayed))


def _replayed(sources: Sources, replaying: Replaying) -> Replayed:
    from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt

    if not isinstance(sources.evidence, bytes):
        raise UndecidedError(
            "E_REPLAY_NO_EVIDENCE",
            "There is no evidence next to the receipt, so the workload is unknown.",
            "Put evidence.json and profile.folded next to the receipt.",
        )
    assert isinstance(sources.receipt, bytes)  # it has been verified
    claimed = decode_receipt(sources.receipt)
    return replaying.replay(
        hashlib.sha256(sources.receipt).hexdigest(),
        claimed.tokens_per_second,
        decode_evidence(sources.evidence),
    )


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
    add_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Verify each receipt; 0 if all hold, 3 if one is rejected.

    With ``--replay`` 4 or 5 if one could not be replayed, or the replay was undecided.
    """
    from pytest_flamegate.receipt import Grade, verify_receipt
    from pytest_flamegate.receipt.policies import policy_for
    from pytest_flamegate.report.answers import verification_text

    grade = None if parsed.require_grade is None else Grade.parse(parsed.require_grade)
    max_age_s = _seconds(parsed.max_age) if parsed.max_age is not None else None
    # An unknown policy is a mistake of the caller, not of the receipt.
    policy_for(parsed.kernel_policy)
    if grade is Grade.ATTESTED and not parsed.key:
        raise UsageError(
            "E_BAD_KEY",
            "The grade ATTESTED needs a signature, and no key was given to check it.",
            "Give the signer's public key: --key PUB.",
        )
    trusted = [_public_key(path) for path in parsed.key]
    require_replay(parsed)

    def verify(data: bytes | Path, **parts: Any) -> Verification:
        asked: dict[str, Any] = {
            "policy": parsed.kernel_policy,
            "require_gpu_kernels": parsed.require_gpu_kernels,
            "require_grade": grade,
            "max_age_s": max_age_s,
            "keys": trusted,
        }
        return verify_receipt(data, **{**asked, **parts})

    plain = ((path, Answer(verify(path))) for path in parsed.paths)
    results = []
    # Each is printed at once, so that an interrupted command has printed its results so far.
    for path, each in replay_all(parsed, verify) if parsed.replay else plain:
        results.append((path, each))
        if parsed.format == "text":
            common.print_text(
                verification_text(
                    each.verification,
                    path=str(path),
                    required=parsed.require_grade,
                    colour=sys.stdout.isatty(),
                    error=each.error,
                )
            )
    if parsed.format == "json":
        documents = [{"path": str(path), **_document(each)} for path, each in results]
        common.print_text(json.dumps(documents, indent=2))
    elif len(results) > 1:
        codes = [each.exit_code(replay=parsed.replay) for _, each in results]
        refused = codes.count(ReceiptError.exit_code)
        undecided = len(codes) - codes.count(0) - refused
        open_ones = f", {undecided} not replayed" if undecided else ""
        common.print_text(f"{codes.count(0)} accepted, {refused} refused{open_ones}")
    return worst([each for _, each in results], replay=parsed.replay)


def _public_key(path: Path) -> bytes:
    """Return the content of a key file; raises ``E_BAD_KEY`` if it holds no public key."""
    from pytest_flamegate.receipt import keys

    pem = keys.read_key_file(path)
    keys.load_public_key(pem)
    return pem


def _seconds(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(
            "E_BAD_AGE", f"{text!r} is no age.", "Write a number and a unit: 90s, 15m, 24h, 7d."
        )
    return float(match[1]) * _SECONDS[match[2]]


def _document(answer: Answer) -> dict[str, object]:
    from pytest_flamegate.report.answers import replay_document

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
        message = f"{answer.error.problem} {answer.error.remedy}"
        document["not_replayed"] = {"code": answer.error.code, "message": message}
    return document

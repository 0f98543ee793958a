"""``flamegate verify-receipt PATH…``: check receipts, and replay their workloads if asked."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.core import errors
from pytest_flamegate.core.text import Finding
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.documents import decode_evidence, decode_receipt
from pytest_flamegate.receipt.policies import policy_for
from pytest_flamegate.receipt.sources import read_sources
from pytest_flamegate.report.terminal import replay_document, verification_text

if TYPE_CHECKING:  # heavy, and needed only for a replay
    from pytest_flamegate.run.replay import Replaying

_REPLAY_OPTIONS = ("replay_untrusted", "model", "budget", "config")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for one receipt; ``error`` is the reason why its workload was not replayed."""

    path: Path
    verification: Verification
    error: errors.FlamegateError | None = None

    def exit_code(self, *, replay: bool) -> int:
        """Return 0 if all requirements hold; a replay that confirmed nothing is undecided."""
        if not self.verification.ok:
            return errors.ReceiptError.exit_code
        if self.error is not None:
            return self.error.exit_code
        if replay and not self.verification.obtained_again:
            return errors.UndecidedError.exit_code
        return 0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``verify-receipt``."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--require-gpu-kernels", action="store_true", help="reject CPU-only claims")
    parser.add_argument("--require-grade", metavar="GRADE", help="reject a lower grade")
    parser.add_argument("--max-age", metavar="24h", help="reject an older receipt (s, m, h, d)")
    parser.add_argument("--commit", metavar="HASH", help="reject a run of another commit")
    parser.add_argument("--workload", metavar="NAME", help="reject a run of another workload")
    parser.add_argument("--kernel-policy", metavar="NAME", help="read kernel names by this policy")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="PUB",
        help="reject a receipt that was not signed with this key (or with one of several)",
    )
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
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Verify each receipt; 0 if all hold, 3 if one is rejected.

    With ``--replay`` 4 or 5 if one could not be replayed, or the replay was undecided.
    """
    verify = _make_verify(parsed)
    plain = (Answer(path, verify(path)) for path in parsed.paths)
    answers = []
    # Each is printed at once, so that an interrupted command has printed its results so far.
    for answer in _replay_all(parsed, verify) if parsed.replay else plain:
        answers.append(answer)
        if parsed.format == "text":
            common.print_text(
                verification_text(
                    answer.verification,
                    path=str(answer.path),
                    required=parsed.require_grade,
                    colour=sys.stdout.isatty(),
                    error=answer.error,
                )
            )
    codes = [answer.exit_code(replay=parsed.replay) for answer in answers]
    if parsed.format == "json":
        common.print_text(json.dumps([_document(answer) for answer in answers], indent=2))
    elif len(codes) > 1:
        rejected = codes.count(errors.ReceiptError.exit_code)
        undecided = len(codes) - codes.count(0) - rejected
        not_replayed = f", {undecided} not replayed" if undecided else ""
        common.print_text(f"{codes.count(0)} accepted, {rejected} rejected{not_replayed}")
    return errors.worst_code(codes)


def _make_verify(parsed: argparse.Namespace) -> Callable[..., Verification]:
    """Return ``verify(receipt, **parts)`` with the requirements of the command line.

    ``parts`` may replace a requirement. Raises UsageError for a wrong option.
    """
    for name in _REPLAY_OPTIONS:
        if getattr(parsed, name) and not parsed.replay:
            raise errors.UsageError(
                "E_REPLAY_OPTION",
                f"--{name.replace('_', '-')} has no effect without --replay.",
                "Add --replay, or leave it out.",
            )
    grade = None if parsed.require_grade is None else Grade.parse(parsed.require_grade)
    # An unknown policy is a mistake of the caller, not of the receipt.
    policy_for(parsed.kernel_policy)
    if grade is Grade.ATTESTED and not parsed.key:
        raise errors.UsageError(
            "E_BAD_KEY",
            "The grade ATTESTED needs a signature, and no key was given to check it.",
            "Give the signer's public key: --key PUB.",
        )
    return partial(
        verify_receipt,
        policy=parsed.kernel_policy,
        require_gpu_kernels=parsed.require_gpu_kernels,
        require_grade=grade,
        commit=parsed.commit,
        workload=parsed.workload,
        max_age_s=common.parse_age_s(parsed.max_age),
        keys=[_read_public_key(path) for path in parsed.key],
    )


def _read_public_key(path: Path) -> bytes:
    """Return the content of a key file; raises ``E_BAD_KEY`` if it holds no public key."""
    from pytest_flamegate.receipt import keys

    pem = keys.read_key_file(path)
    keys.load_public_key(pem)
    return pem


def _replay_all(
    parsed: argparse.Namespace, verify: Callable[..., Verification]
) -> Iterator[Answer]:
    """Verify each receipt, replay it if it is honest, and yield the result at once."""
    from pytest_flamegate.core.progress import stream_progress
    from pytest_flamegate.engines.gguf import embedded_workloads
    from pytest_flamegate.run.replay import Replaying

    settings = common.read_settings(parsed)
    progress = stream_progress(sys.stderr)
    replaying = Replaying(
        settings,
        entries=(*common.read_declarations(settings)[1], *embedded_workloads(settings.root)),
        progress=progress,
        model=parsed.model,
        untrusted=parsed.replay_untrusted,
    )
    try:
        for path in parsed.paths:
            yield _verify_and_replay(path, verify, replaying)
    finally:
        progress.stop()


def _verify_and_replay(
    path: Path, verify: Callable[..., Verification], replaying: Replaying
) -> Answer:
    # Read once: the same bytes are verified, run and compared.
    sources = read_sources(path, None, None)
    read = {"evidence": sources.evidence, "profile_folded": sources.folded}
    if not isinstance(sources.receipt, bytes) or not all(
        part is None or isinstance(part, bytes) for part in read.values()
    ):
        return Answer(path, verify(path))
    parts = {**read, "attestation": sources.attestation}
    if not verify(sources.receipt, **parts, require_grade=None).ok:
        return Answer(path, verify(sources.receipt, **parts))
    try:
        with errors.system_errors():
            if not isinstance(sources.evidence, bytes):
                raise errors.UndecidedError(
                    "E_REPLAY_NO_EVIDENCE",
                    "There is no evidence next to the receipt, so the workload is unknown.",
                    "Put evidence.json and profile.folded next to the receipt.",
                )
            replayed = replaying.replay(
                hashlib.sha256(sources.receipt).hexdigest(),
                decode_receipt(sources.receipt).tokens_per_second,
                decode_evidence(sources.evidence),
            )
    except errors.FlamegateError as error:
        return Answer(path, verify(sources.receipt, **parts), error)
    return Answer(path, verify(sources.receipt, **parts, replay=replayed))


def _document(answer: Answer) -> dict[str, object]:
    found = answer.verification

    def listed(findings: Sequence[Finding]) -> list[dict[str, str]]:
        return [{"code": each.code, "message": each.message} for each in findings]

    document: dict[str, object] = {
        "path": str(answer.path),
        "ok": found.ok,
        "honest": found.honest,
        "fit": found.fit,
        "grade": found.grade.name,
        "policy": found.policy,
        "refusals": listed(found.refusals),
        "warnings": listed(found.warnings),
        "signed_by": found.signed_by,
        "unfit": listed(found.unfit),
        "ceiling": found.ceiling,
    }
    if (replayed := replay_document(found)) is not None:
        document["replayed"] = replayed
    if answer.error is not None:
        message = f"{answer.error.problem} {answer.error.remedy}"
        document["not_replayed"] = {"code": answer.error.code, "message": message}
    return document

"""``flamegate verify-receipt PATH…``: check receipts, and replay their workloads if asked."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.core import errors, git
from pytest_flamegate.core.files import is_directory
from pytest_flamegate.core.text import Finding, Refusal
from pytest_flamegate.receipt import Verification, verify_receipt
from pytest_flamegate.receipt.baseline import (
    RECEIPT,
    VERDICT,
    StoredRun,
)
from pytest_flamegate.receipt.documents import decode_receipt
from pytest_flamegate.receipt.sources import read_sources
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.report.terminal import replay_document, verification_text

if TYPE_CHECKING:  # heavy, and needed only for a replay
    from pytest_flamegate.run.replay import Replaying

_SOURCE_REF = "refs/heads/main"
_HASH = re.compile("[0-9a-f]{1,64}")
_SHORTEST = 7
"""Digits of a hash; a shorter name may be that of a tag."""
_REPLAY_OPTIONS = ("replay_untrusted", "model", "budget", "config")


@dataclass(frozen=True, slots=True)
class ReceiptAnswer:
    """The result for one receipt.

    Attributes:
        error: The reason why its workload was not replayed.
        verdict_code: The exit code of the run's own verdict, if that alone rejects it.
    """

    path: Path
    verification: Verification
    error: errors.FlamegateError | None = None
    verdict_code: int = 0

    def exit_code(self, *, replay: bool) -> int:
        """Return 0 if all requirements hold; a replay that confirmed nothing is undecided."""
        if not self.verification.ok:
            return self.verdict_code or errors.ReceiptError.exit_code
        if self.error is not None:
            return self.error.exit_code
        if replay and not self.verification.obtained_again:
            return errors.UndecidedError.exit_code
        return 0


def run(parsed: argparse.Namespace) -> int:
    """Verify each receipt; 0 if all hold, 2 if there is no such file, 3 if one is rejected.

    A run that only its verdict rejects has the exit code of that verdict: 1 if it was slower.
    With ``--replay`` 4 or 5 if one could not be replayed, or the replay was undecided.
    """
    verify = _make_verify(parsed)
    parsed.paths = [find_receipt(each) for each in parsed.paths]
    plain = (_verify(path, verify) for path in parsed.paths)
    answers = []
    # Each is printed at once, so that an interrupted command has printed its results so far.
    for found in _replay_all(parsed, verify) if parsed.replay else plain:
        answer = _require_verdict(found) if parsed.require_verdict else found
        if parsed.repository is not None:
            answer = _require_repository(answer, parsed.repository)
        if parsed.signer_workflow is not None:
            # Imported here: verifying alone needs no rule of a check.
            from pytest_flamegate.commands.attestation import find_attestation_problem

            problem = find_attestation_problem(
                answer.path,
                answer.verification,
                parsed.signer_workflow,
                parsed.source_ref or _SOURCE_REF,
            )
            if problem is not None:
                answer = _reject(answer, Refusal("E_NOT_ATTESTED", problem))
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
        common.print_document([_document(answer) for answer in answers])
    elif len(codes) > 1:
        rejected = sum(not answer.verification.ok for answer in answers)
        undecided = len(codes) - codes.count(0) - rejected
        not_replayed = f", {undecided} not replayed" if undecided else ""
        common.print_text(f"{codes.count(0)} accepted, {rejected} rejected{not_replayed}")
    return errors.worst_code(codes)


def find_receipt(path: Path) -> Path:
    """Return the receipt of a run's directory, or ``path``, which may be anything that exists.

    Raises ``UsageError`` ``E_NO_RUN`` for a name of nothing: a mistyped path is no dishonest file.
    """
    found = path / RECEIPT if is_directory(path) else path
    if not os.path.lexists(found):
        problem = f"There is no file {str(found)!a}."
        raise errors.UsageError("E_NO_RUN", problem, "Give a receipt, or the directory of a run.")
    return found


def _make_verify(parsed: argparse.Namespace) -> Callable[..., Verification]:
    """Return ``verify(receipt, **parts)`` with the requirements of the command line.

    ``parts`` may replace a requirement. Raises UsageError for a wrong option.
    """
    needed_by = {**dict.fromkeys(_REPLAY_OPTIONS, "replay"), "source_ref": "signer_workflow"}
    for name, needed in needed_by.items():
        if getattr(parsed, name) and not getattr(parsed, needed):
            options = (f"--{each.replace('_', '-')}" for each in (name, needed))
            raise errors.UsageError("E_BAD_OPTION", " has no effect without ".join(options) + ".")
    repository = parsed.repository
    if repository is not None and git.query(repository, "rev-parse", "--git-dir") is None:
        raise errors.UsageError(
            "E_BAD_OPTION",
            f"--repository is {str(repository)!a}, and git finds no repository there.",
        )
    return partial(
        verify_receipt,
        require_gpu_kernels=parsed.require_gpu_kernels,
        commit=parsed.commit if parsed.commit is None else _find_commit(parsed.commit, repository),
        workload=parsed.workload and common.get_workload_name(parsed.workload),
        **common.read_requirements(parsed),
    )


def _find_commit(name: str, repository: Path | None) -> str:
    """Return the hash of the commit ``name``: itself, or what it names in ``repository``.

    Raises ``UsageError`` ``E_BAD_OPTION`` for a name that git cannot resolve there.
    """
    found = None if repository is None else git.resolve(repository, name)
    if _HASH.fullmatch(name.lower()) and not (found and len(name) < _SHORTEST):
        return name.lower()  # no branch or tag of that name
    if found is not None:
        return found
    if repository is None:
        raise errors.UsageError(
            "E_BAD_OPTION",
            f"--commit is {name!r}, and a receipt names its commit by the hash.",
            "Give the hash (git rev-parse HEAD), or add --repository DIR, which knows the name.",
        )
    raise errors.UsageError(
        "E_BAD_OPTION",
        f"--commit is {name!r}, which names no commit of the repository at {str(repository)!a}.",
        "Give the full hash.",
    )


def _require_verdict(answer: ReceiptAnswer) -> ReceiptAnswer:
    """Reject a run unless the verdict next to its receipt says that it passed.

    The file is believed: any program that can write it can write another verdict.
    """
    # Imported here: the rules of receipts need nothing of the gate.
    from pytest_flamegate.gate.document import read_verdict

    try:
        sentence, verdict = read_verdict(StoredRun(answer.path.parent).read(VERDICT))
    except errors.FlamegateError as error:
        problem = f"The run's verdict is unknown: {error.problem}"
        return _reject(answer, Refusal("E_VERDICT", problem))
    if verdict.kind.passes:
        return answer
    rejected = _reject(answer, Refusal("E_VERDICT", f"The run did not pass: {sentence}"))
    code = verdict.exit_code or errors.UndecidedError.exit_code
    return replace(rejected, verdict_code=code) if answer.verification.ok else rejected


def _require_repository(answer: ReceiptAnswer, repository: Path) -> ReceiptAnswer:
    """Reject a run unless it measured a commit of the repository, with nothing uncommitted."""
    evidence = answer.verification.evidence
    found = evidence.commit if evidence is not None else None
    if found is not None and git.resolve(repository, found.revision) == found.revision:
        here = git.code_digest(repository, found.revision)
        if here and here == found.tree and not found.uncommitted:
            return answer
    name = "an unknown commit" if found is None else revision_note(found)
    refusal = Refusal(
        "E_OTHER_COMMIT",
        f"The run is of {name}, which the repository at {str(repository)!a} does not have.",
    )
    return _reject(answer, refusal)


def _reject(answer: ReceiptAnswer, refusal: Refusal) -> ReceiptAnswer:
    """Return the answer with another refusal, which its exit code then stands for."""
    found = answer.verification
    refused = replace(found, ok=False, refusals=(*found.refusals, refusal))
    return replace(answer, verification=refused, verdict_code=0)


def _replay_all(
    parsed: argparse.Namespace, verify: Callable[..., Verification]
) -> Iterator[ReceiptAnswer]:
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
    for path in parsed.paths:
        yield _verify(path, verify, replaying)


def _verify(
    path: Path, verify: Callable[..., Verification], replaying: Replaying | None = None
) -> ReceiptAnswer:
    """Verify a receipt, and replay it if that is asked for and it is honest."""
    # Read once: the same bytes are verified, run and compared.
    sources = read_sources(path, side=StoredRun.of_file(path)[0].side)
    if replaying is None:
        return ReceiptAnswer(path, verify(sources))
    found = verify(sources, require_grade=None)
    if not found.ok:
        return ReceiptAnswer(path, verify(sources))
    try:
        with errors.system_errors():
            if found.evidence is None:
                raise errors.UndecidedError(
                    "E_REPLAY_NO_EVIDENCE",
                    "There is no evidence next to the receipt, so the workload is unknown.",
                )
            receipt = found.files[RECEIPT]
            replayed = replaying.replay(
                hashlib.sha256(receipt).hexdigest(),
                decode_receipt(receipt).tokens_per_second,
                found.evidence,
            )
    except errors.FlamegateError as error:
        return ReceiptAnswer(path, verify(sources), error)
    return ReceiptAnswer(path, verify(sources, replay=replayed))


def _document(answer: ReceiptAnswer) -> dict[str, object]:
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

"""What ``verify-receipt --replay`` adds: its options, and the run between two verifications."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.errors import (
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
    from pytest_flamegate.receipt.replayed import Replayed
    from pytest_flamegate.receipt.sources import Sources
    from pytest_flamegate.replaying import Replaying

_ONLY_WITH = ("replay_untrusted", "model", "budget", "config")
_SEVERITY = (ReceiptError.exit_code, 2, 5, 4, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer on one receipt; ``error`` is why its workload could not be run again."""

    verification: Verification
    error: FlamegateError | None = None

    def exit_code(self, *, replay: bool) -> int:
        """Return 0 where all that was asked for holds.

        A replay that was asked for and showed nothing is undecided, whatever else is well.
        """
        if not self.verification.ok:
            return ReceiptError.exit_code
        if self.error is not None:
            return self.error.exit_code
        if replay and not self.verification.obtained_again:
            return UndecidedError.exit_code
        return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare ``--replay`` and what belongs to it."""
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
    common.add_knobs(parser, "budget", "config")


def checked(parsed: argparse.Namespace) -> None:
    """Refuse options that mean nothing without ``--replay``."""
    for name in _ONLY_WITH:
        if getattr(parsed, name) and not parsed.replay:
            raise UsageError(
                "E_REPLAY_OPTION",
                f"--{name.replace('_', '-')} does nothing without --replay.",
                "Say --replay too, or drop it.",
            )


def answers(
    parsed: argparse.Namespace, verify: Callable[..., Verification]
) -> Iterator[tuple[Path, Answer]]:
    """Verify each receipt, run it again if it is honest, and yield the answer at once.

    ``verify(data, **parts)`` asks for all that the reader wants but for ``require_grade``,
    which is among the parts.
    """
    from pytest_flamegate.embedded.workloads import embedded_workloads
    from pytest_flamegate.progress import NoProgress, StreamProgress
    from pytest_flamegate.replaying import Replaying

    settings = common.settings_of(parsed)
    line = StreamProgress(sys.stderr)
    replaying = Replaying(
        root=settings.root,
        declared=(*common.declared(settings), *embedded_workloads(settings.root)),
        budget_s=settings.budget_s,
        progress=line if sys.stderr.isatty() else NoProgress(),
        tell=line.tell,
        model=parsed.model,
        untrusted=parsed.replay_untrusted,
    )
    try:
        for path in parsed.paths:
            yield path, _answer(path, verify, replaying)
    finally:
        line.end()


def worst(answers: Sequence[Answer], *, replay: bool) -> int:
    """Return the exit code that says most of all answers."""
    codes = {answer.exit_code(replay=replay) for answer in answers}
    return next(code for code in _SEVERITY if code in codes)


def _answer(path: Path, verify: Callable[..., Verification], replaying: Replaying) -> Answer:
    from pytest_flamegate.receipt.sources import read_sources

    # Read once: what is verified, what is run and what is compared are the same bytes.
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
    from pytest_flamegate.receipt.build import decode_evidence, decode_receipt

    if not isinstance(sources.evidence, bytes):
        raise UndecidedError(
            "E_REPLAY_NO_EVIDENCE",
            "There is no evidence beside the receipt, and so no recipe to run again.",
            "Keep evidence.json and profile.folded beside the receipt.",
        )
    assert isinstance(sources.receipt, bytes)  # it has been verified
    claimed = decode_receipt(sources.receipt)
    return replaying.replay(
        hashlib.sha256(sources.receipt).hexdigest(),
        claimed.tokens_per_second,
        decode_evidence(sources.evidence),
    )

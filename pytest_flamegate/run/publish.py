"""What a baseline rests on: this run alone, or the same code measured on several occasions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import FlamegateError, ReceiptError, UndecidedError, system_errors
from pytest_flamegate.core.json_old import dumps
from pytest_flamegate.gate import compare, read_measurement, verdict_document
from pytest_flamegate.gate.statistics import mean
from pytest_flamegate.receipt import verify_receipt
from pytest_flamegate.receipt.artifacts import (
    BASELINE_FILES,
    RECEIPT,
    VERDICT,
    ArtifactStore,
    Baseline,
    StoredPath,
)
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.receipt.types import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.receipt.types import Evidence


MOST = 24
"""The oldest batches leave: a machine changes over the years."""


def batch_of(evidence: Evidence) -> Batch:
    """Return the means of one measurement. Raises UndecidedError where it cannot be judged."""
    timed = read_measurement(evidence).timed
    return Batch(
        nonce=evidence.nonce,
        created=evidence.created,
        processes=len(timed),
        log_time=mean([process.log_time for process in timed]),
        log_time_ratio=mean([process.log_time_ratio for process in timed]),
    )


def joined(
    accepted: Evidence | None, batches: Sequence[Batch], fresh: Evidence
) -> tuple[Batch, ...]:
    """Return the batches of the baseline once ``fresh`` is accepted too.

    What was accepted before stays where it was the very same code, clean on both
    occasions, and comparable in all else; then ``fresh`` is one more batch of it. Any other
    baseline begins anew. There are none where ``fresh`` cannot be judged.
    """
    try:
        new = batch_of(fresh)
    except UndecidedError:
        return ()
    if accepted is None or not _same_code(accepted, fresh):
        return (new,)
    kept = [batch for batch in batches if batch.nonce != new.nonce]
    return (*kept, new)[-MOST:]


def _same_code(one: Evidence, other: Evidence) -> bool:
    if one.commit is None or other.commit is None:
        return False
    return one.commit.same_code(other.commit) and compare(one, other).comparable


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a run's files stand, and as what it was accepted.

    ``error`` says why it was not accepted though it should have been; ``warnings`` what
    else could not be done, one sentence each.
    """

    directory: Path
    accepted: Path | None = None
    error: FlamegateError | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps runs made on the machine class ``machine_id`` in one artifact directory."""

    artifacts: ArtifactStore
    machine_id: str

    def baseline(self, workload: str) -> Baseline | None:
        """Read what was accepted and verify it; None where nothing was."""
        baseline = self.artifacts.read_baseline(self.machine_id, workload)
        if baseline is not None:
            _verify(baseline)
        return baseline

    def keep(
        self,
        workload: str,
        files: Mapping[str, bytes],
        verdict: Verdict,
        evidence: Evidence,
        *,
        accept: bool,
    ) -> Kept:
        """Publish a run, accept it if asked to, and record it; each all or nothing.

        Raises where the run cannot be published; what comes after that only adds to it.
        """
        directory = self.artifacts.publish_run(workload, files)
        accepted, error = None, None
        warnings: tuple[str, ...] = ()
        if accept:
            try:
                with system_errors():
                    placed = self.accept(workload, files, evidence)
                accepted, warnings = placed.path, placed.warnings
            except FlamegateError as failed:
                error = failed
        line = self._line(workload, verdict, evidence)
        if error is not None:
            line |= {"verdict": "error", "reasons": [error.code]}
        try:
            with system_errors():
                self.artifacts.append_run({**line, "accepted": accepted is not None})
        except FlamegateError as failed:
            warnings = (*warnings, f"The history does not have this run. {failed}")
        return Kept(directory, accepted, error, warnings)

    def accept(self, workload: str, files: Mapping[str, bytes], evidence: Evidence) -> StoredPath:
        """Make a run the baseline; a run of the same code is one more batch of it.

        What it was compared with stays behind: a baseline speaks for itself. What stands
        there and cannot be used as a baseline is set aside, and nothing removes it.
        """
        old, spoilt = None, False
        try:
            old = self.baseline(workload)
        except ReceiptError:
            spoilt = True
        if old is not None and old.machine_id != self.machine_id:
            old = None
        batches = joined(old.evidence if old else None, old.batches if old else (), evidence)
        kept = {name: data for name, data in files.items() if name in BASELINE_FILES}
        return self.artifacts.accept_baseline(
            self.machine_id, workload, kept, batches, set_aside=spoilt
        )

    def refusal(self, workload: str, verdict: Verdict) -> None:
        """Leave the reason where the result would have stood; raises where it cannot."""
        self.artifacts.publish_run(workload, {VERDICT: dumps(verdict_document(verdict))})
        self.artifacts.append_run({**self._line(workload, verdict, None), "accepted": False})

    def _line(
        self, workload: str, verdict: Verdict, evidence: Evidence | None
    ) -> dict[str, object]:
        line: dict[str, object] = {
            "workload": workload,
            "verdict": verdict.verdict,
            "created": evidence.created if evidence else utc_now(),
            "machine": self.machine_id,
        }
        if evidence is not None:
            line |= {
                "commit": evidence.commit.revision if evidence.commit else None,
                "tokens_per_second": value_of(evidence.metrics, "tokens_per_second"),
                "quiet_s_per_token": value_of(evidence.metrics, "quiet_s_per_token"),
                "nonce": evidence.nonce,
            }
        return {**line, "reasons": [reason.code for reason in verdict.reasons]}


def _verify(baseline: Baseline) -> None:
    path = baseline.directory / RECEIPT
    unprofiled = baseline.evidence.receipt_sha256 == "" and baseline.evidence.profile is None
    if unprofiled and not os.path.lexists(path):
        return
    verification = verify_receipt(path)
    if not verification.ok:
        first = verification.refusals[0]
        raise ReceiptError(
            "E_BASELINE_CORRUPT",
            f"The baseline {path} is refused: {first.code}: {first.message}",
            "Restore it from version control, or accept a new one with --flamegate-update.",
        )

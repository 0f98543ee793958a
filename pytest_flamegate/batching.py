"""What a baseline rests on: this run alone, or the same code measured on several occasions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate import compare, measurement_of
from pytest_flamegate.gate.stats import mean
from pytest_flamegate.receipt.types import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.types import Evidence

MOST = 24
"""The oldest batches leave: a machine changes over the years."""


def batch_of(evidence: Evidence) -> Batch:
    """Return the means of one measurement. Raises UndecidedError where it cannot be judged."""
    timed = measurement_of(evidence).timed
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

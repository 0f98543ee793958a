"""Two runs compared by their profiles: what each function cost a token before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.cpu import cpu_cost
from pytest_flamegate.profile.difference import SPREAD, Difference, Side, difference
from pytest_flamegate.receipt.metrics import cost_of
from pytest_flamegate.receipt.spread import spread_of
from pytest_flamegate.report.provenance import revision

if TYPE_CHECKING:
    from pytest_flamegate.profile import Profile
    from pytest_flamegate.receipt.types import Evidence


@dataclass(frozen=True, slots=True)
class Seen:
    """One side: a profile, what it is called, and its run's evidence where there is any."""

    name: str
    profile: Profile
    evidence: Evidence | None = None

    @classmethod
    def of(cls, role: str, profile: Profile, evidence: Evidence) -> Seen:
        """Call it by its role and revision: ``head 4f2c91a + 2 uncommitted files``."""
        injected = evidence.workload.get("injection")
        more = [f"with {injected} injected"] if injected else []
        return cls(" ".join([role, *revision(evidence), *more]), profile, evidence)


def compared(base: Seen, head: Seen, *, paired: bool = False) -> Difference:
    """Compare two profiles, by the cost of a token where evidence of both sides tells it.

    ``paired`` says that they were measured in pairs with each other. ``UndecidedError``
    ``E_NO_SAMPLES`` where one holds no sample.
    """
    costs: tuple[float | None, float | None] = (None, None)
    error = 0.0
    if base.evidence is not None and head.evidence is not None:
        cost = cpu_cost(base.evidence, head.evidence, paired=paired)
        if cost is not None:
            # The phase that was sampled may be more than the one that is timed.
            whole = cost_of(base.profile.covers, base.evidence.metrics) or cost.base_s
            costs = whole, whole * cost.head_s / cost.base_s
            error = cost.error
    return difference(
        Side(base.name, base.profile, costs[0], 0.0, _spread(base)),
        Side(head.name, head.profile, costs[1], error, _spread(head)),
    )


def _spread(side: Seen) -> float:
    record = side.evidence.profile if side.evidence is not None else None
    return spread_of(record.processes) if record is not None else SPREAD

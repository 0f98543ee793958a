"""A receipt, its evidence and its profile, as the cross-checks read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flamegate.receipt.claim import Claim
    from pytest_flamegate.receipt.folded import Folded
    from pytest_flamegate.receipt.types import Evidence
    from pytest_flamegate.workload.observation import Run


@dataclass(frozen=True, slots=True)
class Case:
    """What is claimed and what was seen.

    ``receipt_sha256`` and ``folded_sha256`` are of the raw bytes as they were read;
    the folded profile is None where it was not given.
    """

    claim: Claim
    receipt_sha256: str
    evidence: Evidence
    folded: Folded | None = None
    folded_sha256: str | None = None

    @property
    def timed(self) -> tuple[Run, ...]:
        """The runs that supply the figures."""
        return tuple(run for run in self.evidence.runs if run.role == "timed")

    @property
    def profiled(self) -> tuple[Run, ...]:
        """The runs that were sampled."""
        return tuple(run for run in self.evidence.runs if run.role == "profiled")

    def lanes(self, run: Run) -> int | None:
        """Return how many threads at most ran at once for ``run``; None where nothing says so.

        Threads are counted at one moment, and a program's children are not among them, so
        the cores bound what was possible.
        """
        cores = self.evidence.machine.get("cpu_cores", "")
        known = [int(cores)] if cores.isascii() and cores.isdigit() and len(cores) < 7 else []
        if run.threads is not None and (known or self.evidence.clock_scope == "sequence"):
            known.append(run.threads)
        return max(1, *known) if known else None

"""A receipt, its evidence and its profile, as the cross-checks read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.kernel_rates import kernel_rates
from pytest_flamegate.receipt.metrics import figures, value_of

if TYPE_CHECKING:
    from pytest_flamegate.receipt.claim import Claim
    from pytest_flamegate.receipt.folded import Folded
    from pytest_flamegate.receipt.types import Evidence, Metric
    from pytest_flamegate.workload.observation import Run


_PREFILL = "prefill_tokens_per_second"


@dataclass(frozen=True)
class Case:
    """What is claimed and what was seen.

    ``receipt_sha256`` and ``folded_sha256`` are of the raw bytes as they were read;
    the folded profile is None where it was not given. What several rules ask for is made once.
    """

    claim: Claim
    receipt_sha256: str
    evidence: Evidence
    folded: Folded | None = None
    folded_sha256: str | None = None

    @cached_property
    def timed(self) -> tuple[Run, ...]:
        """The runs that supply the figures."""
        return tuple(run for run in self.evidence.runs if run.role == "timed")

    @cached_property
    def profiled(self) -> tuple[Run, ...]:
        """The runs that were sampled."""
        return tuple(run for run in self.evidence.runs if run.role == "profiled")

    @cached_property
    def recomputed(self) -> tuple[Metric, ...]:
        """The metrics that the timed runs give; each must have generated tokens."""
        # Nothing else says how long the prompt was; but it is a whole number of tokens.
        scope = self.evidence.clock_scope
        stated = value_of(self.evidence.metrics, _PREFILL)
        found = figures(self.timed, scope, None if stated is None else 1, unseen=True)
        found += kernel_rates(self.evidence.workload, found)
        one = value_of(found, _PREFILL)
        if stated is None or one is None:
            return found
        tokens = max(1, round(stated / one))
        return tuple(
            replace(metric, value=metric.value * tokens) if metric.name == _PREFILL else metric
            for metric in found
        )

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

"""A verdict read back from its document, for those who show it: nothing is judged by it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_flamegate.gate.cost import CostChange
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.signals import (  # noqa: TC001 - from_plain reads the annotations
    Reason,
    Signal,
)
from pytest_flamegate.gate.verdict import Verdict, VerdictName
from pytest_flamegate.receipt.codec import from_plain


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict and its headline. Of shares and comparability the document has the words only."""

    headline: str
    verdict: Verdict

    @classmethod
    def of(cls, verdict: Verdict) -> Told:
        """Return what the document of ``verdict`` tells."""
        return read_verdict(verdict_document(verdict))


def read_verdict(document: object) -> Told:
    """Read what ``verdict_document`` wrote; ``ReceiptError`` where it is something else."""
    read = from_plain(_Document, document)
    return Told(
        read.headline,
        Verdict(
            verdict=read.verdict,
            reasons=read.reasons,
            grade=read.grade,
            signals=read.signals,
            smallest_detectable_pct=read.smallest_detectable_pct,
            false_alarm_rate=read.false_alarm_rate,
            miss_rate=read.miss_rate,
            error_rate_basis=read.error_rate_basis,
            attribution=tuple(cost.change for cost in read.attribution),
            explained_by=read.explained_by,
            pairs=read.pairs,
            against=read.against,
            baseline_processes=read.processes.baseline,
            current_processes=read.processes.current,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Processes:
    baseline: int
    current: int


@dataclass(frozen=True, slots=True)
class _Cost:
    name: str
    baseline_us_per_token: float
    current_us_per_token: float
    change_us_per_token: float
    ci_low_us_per_token: float
    ci_high_us_per_token: float
    p_adjusted: float
    explains: float | None

    @property
    def change(self) -> CostChange:
        return CostChange(
            name=self.name,
            baseline_us=self.baseline_us_per_token,
            current_us=self.current_us_per_token,
            change_us=self.change_us_per_token,
            ci_low_us=self.ci_low_us_per_token,
            ci_high_us=self.ci_high_us_per_token,
            # The bound that shares are judged by is not told.
            no_more_than_us=math.inf,
            p_adjusted=self.p_adjusted,
            explains=self.explains,
        )


@dataclass(frozen=True, slots=True)
class _Document:
    verdict: VerdictName
    headline: str
    reasons: tuple[Reason, ...]
    grade: str
    signals: tuple[Signal, ...]
    smallest_detectable_pct: float | None
    false_alarm_rate: float | None
    miss_rate: float | None
    error_rate_basis: str
    pairs: int | None
    against: str | None
    processes: _Processes
    attribution: tuple[_Cost, ...]
    explained_by: tuple[str, ...]

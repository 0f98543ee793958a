"""Measure two sides of one workload in pairs until it is known which is slower, and where."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import FlamegateError, NoBaselineError
from pytest_flamegate.engines import engine
from pytest_flamegate.gate import (
    FIRST_ANALYSES,
    Reason,
    judge_pairs,
    last_analysis,
    plan_analyses,
    refused,
)
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.run.measure import Measuring
from pytest_flamegate.run.seal import seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.thresholds import Thresholds
    from pytest_flamegate.gate import ReportedRates, Verdict
    from pytest_flamegate.gate.hotspots import ShareDrift
    from pytest_flamegate.profile.profilers.base import Profiler
    from pytest_flamegate.receipt.types import Metric
    from pytest_flamegate.run.measure import Progress
    from pytest_flamegate.run.seal import Sealed
    from pytest_flamegate.run.sides import Prepared


PAIRS_SHARE = 0.7
MIN_PROFILED, MAX_PROFILED = 5, 60
PROFILED_S = 1.5


@dataclass(frozen=True, slots=True)
class Measured:
    """One side: what it is, and what measures it."""

    subject: Subject
    measuring: Measuring


def looks_for(budget_s: float) -> tuple[int, ...]:
    """Return the looks that a comparison of ``budget_s`` plans: a longer one has more of them."""
    return plan_analyses(round(FIRST_ANALYSES[-1] * max(1.0, budget_s / COMPARE_BUDGET_S)))


def measured(
    prepared: Prepared,
    *,
    machine: Mapping[str, str],
    profiler: Profiler | None,
    budget_s: float,
    progress: Progress,
    counted: tuple[Metric, ...] = (),
    show_bricks: bool = False,
) -> Measured:
    """Return a prepared side as it is going to be measured."""
    told = prepared.told
    subject = Subject(
        workload=told,
        stamps=prepared.stamps,
        model=prepared.model,
        machine=machine,
        commit=prepared.commit,
        flamegate_version=__version__,
        prompt_tokens=engine(told.engine).prompt_tokens(told),
        side=prepared.side,
        counted=counted,
        look=prepared.look,
    )
    measuring = Measuring(
        prepared.workload,
        prepared.plan,
        profiler,
        budget_s,
        progress,
        prepared.moved,
        show_bricks=show_bricks,
    )
    return Measured(subject, measuring)


@dataclass(slots=True)
class Comparison:
    """Two sides being compared. The plan of looks follows from the budget, before any pair."""

    base: Measured
    head: Measured
    thresholds: Thresholds
    share_drift: ShareDrift
    budget_s: float
    progress: Progress
    known: ReportedRates | None = None
    looks: tuple[int, ...] = field(init=False)
    _began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.looks = looks_for(self.budget_s)

    def run(self) -> tuple[Sealed, Sealed, Verdict]:
        """Return base and head as they will be written, and the verdict."""
        for side in self._sides:
            _warm_up(side)
        self._pairs()
        self._profiles(MIN_PROFILED, at_most=0.0)
        self._bricks()
        while True:
            base, head, verdict = self._look()
            if "bricks" in verdict.helped_by and self._more_bricks():
                continue
            if not self._unclear(verdict) or self._spent >= 1.0:
                return base, head, verdict
            before = self.head.measuring.samples
            self._profiles(1, at_most=min(1.0, self._spent + 0.1))
            if self.head.measuring.samples == before:
                return base, head, verdict

    @property
    def _sides(self) -> tuple[Measured, Measured]:
        return self.base, self.head

    @property
    def _spent(self) -> float:
        bricks_s = sum(side.measuring.bricks_s for side in self._sides)
        return (time.monotonic() - self._began_s - bricks_s) / self.budget_s

    def _pairs(self) -> None:
        """Run pairs until one of the planned looks decides, or their time is over."""
        observers = PairObserver(self.base.measuring.observer, self.head.measuring.observer)
        drop_pct = self.thresholds.tokens_per_second_pct
        end = PAIRS_SHARE if self.head.measuring.profiler else 1.0
        while observers.pairs < self.looks[-1]:
            if observers.pairs >= self.looks[0] and self._spent >= end:
                return
            observers.pair()
            self._tell(f"pair {observers.pairs} of ≤ {self.looks[-1]}")
            if not self._same_tokens:
                return  # nothing that takes longer could make them comparable
            if observers.pairs in self.looks:
                base, head = (side.measuring.observer.observation() for side in self._sides)
                look = last_analysis(base, head, drop_pct, self.looks, ended=False)
                if look is not None and look.verdict.decision != "inconclusive":
                    return

    def _profiles(self, least: int, *, at_most: float) -> None:
        """Profile processes of both sides in turn."""
        if self.head.measuring.profiler is None:
            return
        done = 0
        while self._profiled < MAX_PROFILED and (
            done < least or self._spent < at_most or self._starved
        ):
            for side in self._sides:
                profiler = side.measuring.profiler
                assert profiler is not None
                side.measuring.profile_once(profiler, PROFILED_S)
            done += 1
            samples = sum(side.measuring.samples for side in self._sides)
            self._tell(f"{self.head.measuring.count('timed')} pairs, {samples:,} samples")
            if self._starved and self._spent > 2.0:
                return

    def _bricks(self) -> None:
        """Clock the bricks of both sides in turn, each in processes of their own."""
        while any(side.measuring.wants_bricks for side in self._sides):
            for side in self._sides:
                if side.measuring.wants_bricks:
                    # The change may be what marks them: of the base they are not needed.
                    side.measuring.brick_once(needed=side is self.head)
            self._tell(f"{len(self.head.measuring.bricks)} processes whose bricks were clocked")

    def _more_bricks(self) -> bool:
        """Clock more of them, once, where the least number left a budget open."""
        if self.head.measuring.bricks_open:
            return False
        for side in self._sides:
            side.measuring.bricks_open = True
        self._bricks()
        return True

    @property
    def _same_tokens(self) -> bool:
        base, head = (side.measuring.observer.observation().tokens for side in self._sides)
        return base == head

    @property
    def _profiled(self) -> int:
        return self.head.measuring.count("profiled")

    @property
    def _starved(self) -> bool:
        """Whether a side has too few samples to name any function at all."""
        return any(side.measuring.few_samples for side in self._sides)

    def _look(self) -> tuple[Sealed, Sealed, Verdict]:
        base, head = (seal(side.subject, side.measuring) for side in self._sides)
        refusals = [
            Reason(refusal.code, f"{name}: {refusal.message}")
            for name, sealed in (("base", base), ("head", head))
            if sealed.verification is not None
            for refusal in sealed.verification.refusals
        ]
        if refusals:
            return base, head, refused("dishonest", refusals, grade=head.grade)
        verdict = judge_pairs(
            base.evidence,
            head.evidence,
            self.thresholds,
            grade=head.grade,
            looks=self.looks,
            share_drift=self.share_drift,
            known=self.known,
        )
        return base, head, verdict

    def _unclear(self, verdict: Verdict) -> bool:
        """Whether more samples could tell more: what drifted, what it cost, what was missed."""
        if self.head.measuring.profiler is None or self._profiled >= MAX_PROFILED:
            return False
        if "profiled" in verdict.helped_by:
            return True
        rate = verdict.signal()
        if rate is None:
            return False
        if verdict.verdict in ("regressed", "improved"):
            return not verdict.explained_by
        return any(hotspot.coarse for hotspot in verdict.hotspots)

    def _tell(self, told: str) -> None:
        self.progress.step(self.head.measuring.workload.name, told, min(self._spent, 1.0))


def _warm_up(side: Measured) -> None:
    """Run once, unrecorded; what cannot run at all is told with the side it is on."""
    try:
        side.measuring.observer.warm_up(reference=False)
    except FlamegateError as error:
        if side.subject.side == "head":
            raise
        commit = side.subject.commit.revision[:12] if side.subject.commit else "the base"
        if error.code == "E_BENCHMARK_NOT_FOUND":
            raise NoBaselineError(
                "E_NOT_AT_REVISION",
                f"At {commit}: {error.problem}",
                "Compare with a revision that has it; the next comparison will.",
            ) from None
        raise type(error)(error.code, f"At {commit}: {error.problem}", error.remedy) from None

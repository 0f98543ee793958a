"""Measure one workload against itself: by how much pairs of the same code differ here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import __version__, clocks
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.json import encode_plain
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.gate import machine_id
from pytest_flamegate.gate.calibration import (
    LADDER,
    MIN_POOL,
    AnalysisPlan,
    ReplayedRates,
    ResampledPairs,
    check_pool,
)
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.run.calibration import Calibration, plan_for, recipe_sha256
from pytest_flamegate.run.prepare import prepare_side
from pytest_flamegate.run.processes import Budget, SideProcesses
from pytest_flamegate.run.stages import PreparedSide

PAIRS = 40
BUDGET_S = 180.0


@dataclass(slots=True)
class _SelfComparison:
    """One workload being measured against itself: both sides run by the same plan."""

    side: PreparedSide
    pairs: int
    budget: Budget
    progress: Progress
    pair_s: float = 0.0
    _sides: tuple[SideProcesses, SideProcesses] = field(init=False)

    def __post_init__(self) -> None:
        self._sides = SideProcesses(self.side, self.budget), SideProcesses(self.side, self.budget)

    def differences(self) -> tuple[float, ...]:
        """Measure the pairs and return by how much each differed, as log time per token.

        Raises:
            UndecidedError: ``E_BUDGET_TOO_SMALL`` if the first pair shows that there is no time
                for enough of them, ``E_OUTPUT_VARIES`` if the same code gave other tokens.
        """
        self.progress.update("warming up")
        for side in self._sides:
            side.observer.warm_up()
        base, head = (side.observer for side in self._sides)
        observers = PairObserver(base, head)
        began_s = time.monotonic()
        while observers.pairs < self.pairs:
            # One pair at least: it shows how long they take, whatever the warming up took.
            if observers.pairs and self.budget.spent >= 1.0:
                break
            observers.pair()
            self.pair_s = (time.monotonic() - began_s) / observers.pairs
            self._check(observers.pairs)
            self._update("pairs", f"pair {observers.pairs} of ≤ {self.pairs}")
        found = pair_differences(base.observation(), head.observation())
        return check_pool([pair.quiet for pair in found])

    def _check(self, pairs: int) -> None:
        """Stop at the first pair if no calibration can follow."""
        base, head = (side.observer.observation() for side in self._sides)
        name = self.side.workload.name
        if base.differs_at is not None or base.tokens != head.tokens:
            raise UndecidedError(
                "E_OUTPUT_VARIES",
                f"{name} answered the same prompt differently, and runs that generate other "
                "tokens cannot be compared.",
                "Make it deterministic: fix its seed, and sample greedily.",
            )
        least_s = self.pair_s * MIN_POOL
        if pairs == 1 and least_s > self.budget.total_s:
            raise UndecidedError(
                "E_BUDGET_TOO_SMALL",
                f"A pair of {name} takes {self.pair_s:.1f} s, and a calibration needs {MIN_POOL}.",
                f"Give it at least {1.5 * least_s:.0f} s (--budget), or take a shorter workload.",
            )

    def _update(self, phase: str, detail: str) -> None:
        self.progress.update(phase, detail, self.budget.left_s)


def calibrate(
    workload: Workload,
    machine: Mapping[str, str],
    progress: Progress,
    *,
    pairs: int = PAIRS,
    budget_s: float = BUDGET_S,
) -> Calibration:
    """Build and measure ``workload``; return its calibration.

    The caller holds the machine's lock. Nothing is written.
    """
    engine(workload.engine).validate(workload)
    build_workload(workload)
    side = prepare_side(workload, machine, None)
    progress.begin(workload.name)
    comparison = _SelfComparison(side, pairs, Budget(budget_s), progress)
    differences = comparison.differences()
    progress.end()
    return Calibration(
        created=clocks.utc_now(),
        machine_id=machine_id(machine),
        machine=machine,
        flamegate_version=__version__,
        workload=workload.name,
        recipe_sha256=recipe_sha256(workload),
        engine=workload.engine,
        differences=differences,
        pair_s=comparison.pair_s,
    )


BUDGETS_S = (15.0, 30.0, COMPARE_BUDGET_S, 120.0, 300.0)


@dataclass(frozen=True, slots=True)
class Holds:
    """The smallest threshold that holds in a budget; ``drop_pct`` is None if none does.

    There is time for ``pairs``; unchanged code takes ``median_pairs``.
    """

    budget_s: float
    pairs: int
    drop_pct: float | None = None
    median_pairs: int | None = None


@dataclass(frozen=True, slots=True)
class Supported:
    """The thresholds that the machine holds, and whether the workload's own is one of them.

    ``next_pct`` is the smallest threshold above its own that holds in ``budget_s``, and
    ``next_budget_s`` the smallest budget in which its own holds; None if there is none.
    """

    drop_pct: float
    budget_s: float
    plan: AnalysisPlan
    rates: ReplayedRates
    rows: tuple[Holds, ...]
    next_pct: float | None = None
    next_budget_s: float | None = None


def supported(
    calibration: Calibration,
    drop_pct: float,
    budget_s: float,
    pairs_share: float,
    budgets_s: Sequence[float] = BUDGETS_S,
) -> Supported:
    """Replay the rule for every budget, and at ``drop_pct`` in ``budget_s``."""

    def plan(seconds: float) -> AnalysisPlan:
        return plan_for(seconds, calibration.pair_s, pairs_share)

    all_s = sorted({*budgets_s, budget_s})
    replayed = ResampledPairs.draw(
        calibration.differences, max(plan(seconds).pairs for seconds in all_s)
    )
    rows = []
    for seconds in all_s:
        found = replayed.find_smallest(plan(seconds))
        row = Holds(seconds, plan(seconds).pairs)
        if found is not None:
            row = Holds(row.budget_s, row.pairs, found[0], found[1].median_pairs)
        rows.append(row)
    own = plan(budget_s)
    rates = replayed.rates(drop_pct, own)
    next_pct = next_budget_s = None
    if not rates.holds:
        larger = replayed.find_smallest(own, [each for each in LADDER if each > drop_pct])
        next_pct = larger[0] if larger else None
        longer = (s for s in all_s if s > budget_s and replayed.rates(drop_pct, plan(s)).holds)
        next_budget_s = next(longer, None)
    return Supported(drop_pct, budget_s, own, rates, tuple(rows), next_pct, next_budget_s)


def document(found: Supported) -> dict[str, object]:
    """Return the replayed rates as plain data, for readers of the calibration's file."""
    rates: dict[str, object] = {
        name: {"failures": count.failures, "trials": count.trials, "upper": count.upper}
        for name, count in found.rates.counts.items()
    }
    rates |= {"median_pairs": found.rates.median_pairs, "p95_pairs": found.rates.p95_pairs}
    return {
        "threshold_pct": found.drop_pct,
        "budget_s": found.budget_s,
        "holds": found.rates.holds,
        "rates": rates,
        "smallest_thresholds": [encode_plain(row) for row in found.rows],
    }


def refusal(workload: str, found: Supported) -> UndecidedError | None:
    """Return the error of a threshold that is too small for this machine; None if it holds."""
    if found.rates.holds:
        return None
    can = []
    if found.next_pct is not None:
        can.append(f"set tokens_per_second to {found.next_pct:g} %")
    if found.next_budget_s is not None:
        can.append(f"give it {found.next_budget_s:g} s (--flamegate-budget)")
    remedy = " or ".join(can) or "use a quieter machine, or a workload that varies less"
    rates = found.rates
    return UndecidedError(
        "E_THRESHOLD_TOO_SMALL",
        f"This machine cannot hold {workload} to {found.drop_pct:g} % within "
        f"{found.budget_s:g} s: of the replays {100 * rates.false_alarm.rate:.1f} % raised a false "
        f"alarm, {100 * rates.miss.rate:.1f} % missed a drop of that size, and "
        f"{100 * max(rates.inconclusive_unchanged.rate, rates.inconclusive_twice.rate):.1f} % "
        "stayed undecided.",
        f"{remedy[0].upper()}{remedy[1:]}.",
    )

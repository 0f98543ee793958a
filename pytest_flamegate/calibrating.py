"""Measure one workload against itself: by how much pairs of the same code differ here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_flamegate import __version__
from pytest_flamegate.calibrated import Calibration, recipe_sha256
from pytest_flamegate.comparing import PAIRS_SHARE, PROFILED_S
from pytest_flamegate.errors import FlamegateError, UndecidedError
from pytest_flamegate.gate import machine_id
from pytest_flamegate.gate.dispersion import share_spreads
from pytest_flamegate.gate.pairs import pair_differences
from pytest_flamegate.gate.pool import MIN_POOL, Pool
from pytest_flamegate.measuring import Measuring
from pytest_flamegate.receipt.compose import process_profile
from pytest_flamegate.workload import clocks
from pytest_flamegate.workload.build import build
from pytest_flamegate.workload.engines import engine
from pytest_flamegate.workload.paired import PairObserver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.gate.dispersion import ShareSpread
    from pytest_flamegate.measuring import Progress
    from pytest_flamegate.profile import Profiler
    from pytest_flamegate.workload.engines.base import Plan
    from pytest_flamegate.workload.spec import Workload

PAIRS = 40
BUDGET_S = 180.0
MIN_PROFILED, PROFILED = 3, 6
"""Pairs of profiled processes: at least, and where there is time."""


@dataclass(slots=True)
class Calibrating:
    """One workload being measured against itself, both sides by the same plan.

    ``profiler`` is None where nothing can be profiled: then only the pairs are measured.
    """

    workload: Workload
    plan: Plan
    profiler: Profiler | None
    pairs: int
    budget_s: float
    progress: Progress
    pair_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    _sides: tuple[Measuring, Measuring] = field(init=False)
    _began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        first, second = (
            Measuring(self.workload, self.plan, self.profiler, self.budget_s, self.progress)
            for _ in range(2)
        )
        self._sides = first, second

    def differences(self) -> tuple[float, ...]:
        """Measure the pairs and return by how much each differed, as log time per token.

        UndecidedError ``E_BUDGET_TOO_SMALL`` where the first pair shows that there is no time
        for enough of them, ``E_NOT_DETERMINISTIC`` where the same code answered differently.
        """
        for side in self._sides:
            side.observer.warm_up()
        base, head = (side.observer for side in self._sides)
        observers = PairObserver(base, head)
        end = PAIRS_SHARE if self.profiler else 1.0
        began_s = time.monotonic()
        while observers.pairs < self.pairs:
            # One pair at least: it tells how long they take, whatever the warming up took.
            enough = end if observers.pairs >= MIN_POOL else 1.0
            if observers.pairs and self._spent >= enough:
                break
            observers.pair()
            self.pair_s = (time.monotonic() - began_s) / observers.pairs
            self._check(observers.pairs)
            self._tell(f"pair {observers.pairs} of ≤ {self.pairs}")
        found = pair_differences(base.observation(), head.observation())
        return Pool.of([pair.quiet for pair in found]).differences

    def spreads(self) -> tuple[ShareSpread, ...]:
        """Profile processes of both sides and return how unlike the shares of functions are.

        What goes wrong here is noted: the pairs still stand.
        """
        if self.profiler is None:
            return ()
        try:
            done = 0
            while done < MIN_PROFILED or (done < PROFILED and self._spent < 1.0):
                for side in self._sides:
                    side.profile_once(self.profiler, PROFILED_S)
                done += 1
                self._tell(f"profiled pair {done} of ≤ {PROFILED}")
        except FlamegateError as error:
            self.notes.append(f"The spread of hotspots was not measured. {error}")
            return ()
        profiles = [profile for side in self._sides for profile in side.pool]
        return share_spreads([process_profile(profile) for profile in profiles])

    @property
    def _spent(self) -> float:
        return (time.monotonic() - self._began_s) / self.budget_s

    def _check(self, pairs: int) -> None:
        """Stop at the first pair where what follows would be in vain."""
        base, head = (side.observer.observation() for side in self._sides)
        if base.differs_at is not None or base.tokens != head.tokens:
            raise UndecidedError(
                "E_NOT_DETERMINISTIC",
                f"{self.workload.name} answered the same prompt differently, and what generates "
                "other tokens cannot be compared.",
                "Make it deterministic: fix its seed, and sample greedily.",
            )
        least_s = self.pair_s * MIN_POOL
        if pairs == 1 and least_s > self.budget_s:
            raise UndecidedError(
                "E_BUDGET_TOO_SMALL",
                f"A pair of {self.workload.name} takes {self.pair_s:.1f} s, and a calibration "
                f"needs {MIN_POOL}.",
                f"Give it at least {1.5 * least_s:.0f} s (--budget), or take a shorter workload.",
            )

    def _tell(self, told: str) -> None:
        self.progress.step(self.workload.name, told, min(self._spent, 1.0))


def calibrate(
    workload: Workload,
    profiler: Profiler | None,
    machine: Mapping[str, str],
    progress: Progress,
    *,
    pairs: int = PAIRS,
    budget_s: float = BUDGET_S,
) -> tuple[Calibration, tuple[str, ...]]:
    """Build and measure ``workload``; return its calibration, and what there is to note.

    The caller holds the machine's lock. Nothing is written.
    """
    chosen = engine(workload.engine)
    chosen.validate(workload)
    build(workload)
    plan = chosen.plan(workload, chosen.model(workload))
    calibrating = Calibrating(workload, plan, profiler, pairs, budget_s, progress)
    differences = calibrating.differences()
    spreads = calibrating.spreads()
    calibration = Calibration(
        created=clocks.utc_now(),
        machine_id=machine_id(machine),
        machine=machine,
        flamegate_version=__version__,
        workload=workload.name,
        recipe_sha256=recipe_sha256(workload),
        engine=workload.engine,
        differences=differences,
        pair_s=calibrating.pair_s,
        spreads=spreads,
    )
    return calibration, tuple(calibrating.notes)

"""Spend the budget of a prepared workload: one side alone, or two sides in pairs."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.config.thresholds import SAMPLE_FLOOR
from pytest_flamegate.core.errors import FlamegateError, NoBaselineError, system_errors
from pytest_flamegate.gate import (
    FIRST_ANALYSES,
    MoreProcesses,
    Reason,
    last_analysis,
    plan_analyses,
)
from pytest_flamegate.observe.bandwidth import measure_bandwidth
from pytest_flamegate.observe.pairs import PAIR_S, PairObserver
from pytest_flamegate.run.decode import decode_of
from pytest_flamegate.run.instruments import trace_kernels
from pytest_flamegate.run.processes import (
    BRICKS_PART,
    GATED_BRICK_RUNS,
    GATED_BRICKS_PART,
    MAX_FOR_SAMPLES,
    MIN_PROFILED,
    SHOWN_BRICK_RUNS,
    Budget,
    MeasuredSide,
    SideProcesses,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_flamegate.core.progress import Progress
    from pytest_flamegate.observe.bandwidth import Bandwidth
    from pytest_flamegate.observe.engine_process import ProcessTime
    from pytest_flamegate.profile.decode import DecodeProfile
    from pytest_flamegate.run.prepare import Prepared


INTERIM_ANALYSES = 2
"""How often one side is judged at most; the error rates are spent over them."""
TIMED_SHARE, PROFILED_SHARE = 0.45, 0.4
MIN_TIMED, MAX_TIMED = 5, 40
MAX_PROFILED = 24
TIMED_PART, PROFILED_PART = 1 / 40, 1 / 20
PAIRS_SHARE = 0.7
"""The part of a comparison's budget that pairs may take if both sides are profiled too."""
PAIRS_PROFILED, MAX_PAIRS_PROFILED = 5, 60
"""Profiled processes of each side of a comparison: if there is time, and at most."""
PAIRS_PROFILED_S = 1.5
_ATTACH_S = 0.4
_MAX_PROFILER_WAIT = 2.0
"""How much longer than planned samples are waited for if the machine gives them slowly."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A workload as it was measured: one side, or base and head.

    ``decode`` is the profile of decode alone, if it was asked for. ``bandwidth`` is the
    machine's memory bandwidth, measured only if bricks were. ``notes`` say what could not be
    measured.
    """

    prepared: Prepared
    sides: tuple[MeasuredSide, ...]
    decode: DecodeProfile | None = None
    bandwidth: Bandwidth | None = None
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """So many processes of one role, or pairs of them, of ``each_s`` seconds each."""

    role: str
    count: int
    each_s: float
    words: str

    @property
    def seconds(self) -> float:
        """How long they take together."""
        return self.count * self.each_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is going to run, estimated from the first process.

    ``least_s`` is how long the fewest processes take that a verdict needs.
    """

    runs: tuple[PlannedRuns, ...] = ()
    least_s: float = 0.0
    budget_s: float = 0.0

    @property
    def sentence(self) -> str:
        """``5 processes × 3.1 s, profile 20 s: about 35 s``; says if the budget is too small."""
        seconds = sum(each.seconds for each in self.runs)
        about = f"{', '.join(each.words for each in self.runs)}: about {seconds:.0f} s"
        if self.least_s <= self.budget_s:
            return about
        return (
            f"{about}, more than its budget of {self.budget_s:g} s: fewer processes would give no "
            "verdict"
        )

    def left_s(self, done: Mapping[str, int], elapsed_s: float) -> float:
        """Return how long the runs take that are not done, at the pace so far."""
        planned_s = sum(min(done.get(each.role, 0), each.count) * each.each_s for each in self.runs)
        pace = max(elapsed_s / planned_s, 1.0) if planned_s else 1.0
        left = (max(each.count - done.get(each.role, 0), 0) * each.each_s for each in self.runs)
        return pace * sum(left)


def measure(
    prepared: Prepared, until: Callable[[Measured], MoreProcesses], progress: Progress
) -> Measured:
    """Measure every side of ``prepared`` until its budget is used up or nothing is undecided.

    Args:
        prepared: What to run, and for how long. One process at most runs past the budget,
            unless the fewest processes that a verdict needs take longer; that is announced
            after the first process.
        until: Judges what was measured so far. MoreProcesses is measured if that could settle an
            undecided verdict.
        progress: Is told after every process.

    Raises:
        UndecidedError: ``E_NO_SAMPLES`` or ``E_FEW_SAMPLES``.
        ToolError: For an engine or a profiler that fails.
    """
    if len(prepared.sides) == 1:
        return _OneSide(prepared, until, progress).measure()
    return _Pairs(prepared, until, progress).measure()


def planned_pair_counts(budget_s: float) -> tuple[int, ...]:
    """Return the numbers of pairs at which a comparison is judged; more for a longer budget."""
    return plan_analyses(round(FIRST_ANALYSES[-1] * max(1.0, budget_s / COMPARE_BUDGET_S)))


@dataclass(slots=True)
class _Measurement:
    """What both strategies share: the budget, the processes of each side, the progress."""

    prepared: Prepared
    until: Callable[[Measured], MoreProcesses]
    progress: Progress
    budget: Budget = field(init=False)
    sides: tuple[SideProcesses, ...] = field(init=False)
    schedule: Schedule = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.prepared.budget_s)
        self.schedule = Schedule()
        self.sides = tuple(
            SideProcesses(side, self.budget, self.prepared.show_bricks)
            for side in self.prepared.sides
        )

    def measured(self) -> Measured:
        return Measured(self.prepared, tuple(side.measured() for side in self.sides))

    def announce(self, schedule: Schedule) -> None:
        self.schedule = schedule
        name = self.prepared.head.workload.name
        self.progress.announce(f"{name}: {schedule.sentence}")

    @property
    def limit(self) -> float:
        """The part of the budget that may be spent: above 1 only if the least takes longer."""
        return max(1.0, _MAX_PROFILER_WAIT * self.schedule.least_s / self.budget.total_s)

    def clock_bricks(self) -> None:
        """Clock the bricks of all sides in turn, each in processes of their own."""
        head = self.sides[-1]
        while any(side.wants_bricks for side in self.sides):
            for side in self.sides:
                if side.wants_bricks:
                    # The change may be what adds the marks: those of the base are not needed.
                    side.clock_bricks_once(needed=side is head)
            self.update("bricks", _count(len(head.bricks), "process", "processes"))

    def update(self, phase: str, detail: str) -> None:
        done = Counter[str](run.role for run in self.sides[-1].observer.runs)
        elapsed_s = time.monotonic() - self.budget.began_s
        self.progress.update(phase, detail, self.schedule.left_s(done, elapsed_s))

    def complete(self, measured: Measured) -> Measured:
        """Add what is only shown: the memory bandwidth, if bricks are compared with it."""
        if not any(side.bricks for side in measured.sides):
            return measured
        self.update("memory bandwidth", "")
        try:
            with system_errors():
                bandwidth = measure_bandwidth(max(self.prepared.head.workload.threads, 1))
        except FlamegateError as error:
            note = Reason("I_NO_BANDWIDTH", f"The memory bandwidth was not measured: {error}")
            return replace(measured, notes=(*measured.notes, note))
        return replace(measured, bandwidth=bandwidth)


class _OneSide(_Measurement):
    """Timed processes, then profiled ones, then more of either if that could settle something."""

    def measure(self) -> Measured:
        (side,) = self.sides
        self.progress.update("warming up")
        self.announce(_schedule_alone(self.prepared, side.observer.warm_up()))
        self._time(TIMED_SHARE if side.side.profiler else 1 - PROFILED_SHARE, MIN_TIMED)
        self._profile(self.budget.spent + PROFILED_SHARE, MIN_PROFILED)
        self.clock_bricks()
        trace_kernels(side.observer)
        measured = self.measured()
        for _ in range(INTERIM_ANALYSES - 1):
            wanted = self._affordable(self.until(measured))
            if not wanted:
                break
            self._measure_more(wanted)
            measured = self.measured()
        return self.complete(decode_of(measured, self.progress))

    def _affordable(self, wanted: MoreProcesses) -> MoreProcesses:
        """Return the part of ``wanted`` that there is time for; bricks have time of their own."""
        return wanted if self.budget.spent < 1.0 else replace(wanted, timed=False, profiled=False)

    def _measure_more(self, wanted: MoreProcesses) -> None:
        if wanted.timed:
            self._time(1.0 if not wanted.profiled else (1.0 + self.budget.spent) / 2, 1)
        if wanted.profiled:
            self._profile(1.0, 1)
        if wanted.bricks:
            self.sides[0].bricks_undecided = True
            self.clock_bricks()

    def _time(self, share: float, at_least: int) -> None:
        """Time processes until that share of the budget is spent."""
        (side,) = self.sides
        done = side.count("timed")
        wanted = done + at_least
        while done < MAX_TIMED and (done < wanted or self.budget.spent < share):
            side.observer.run_timed(self.budget.process_s(TIMED_PART))
            done += 1
            self._update("timing")

    def _profile(self, share: float, at_least: int) -> None:
        """Profile processes until that share of the budget is spent and samples are enough."""
        (side,) = self.sides
        if side.side.profiler is None:
            return
        wanted = side.count("profiled") + at_least
        while True:
            done, few = side.count("profiled"), side.has_few_samples
            if done >= (MAX_FOR_SAMPLES if few else MAX_PROFILED):
                break
            if done >= wanted and self.budget.spent >= (max(share, self.limit) if few else share):
                break
            side.profile_once(self.budget.process_s(PROFILED_PART))
            self._update("profiling")

    def _update(self, phase: str) -> None:
        (side,) = self.sides
        processes = _count(side.count("timed"), "process", "processes")
        self.update(phase, f"{processes}, {side.samples:,} samples")


class _Pairs(_Measurement):
    """Pairs of a process of each side until one is certainly slower or none is; then profiles."""

    def measure(self) -> Measured:
        self.progress.update("warming up")
        times = [_warm_up(side) for side in self.sides]
        self.announce(_schedule_pairs(self.prepared, times))
        self._run_pairs()
        self._profile(MIN_PROFILED, until_done=PAIRS_PROFILED)
        self.clock_bricks()
        while True:
            measured = self.measured()
            wanted = self.until(measured)
            if wanted.bricks and self._clock_more_bricks():
                continue
            if not wanted.profiled or self._has_all_profiles or self.budget.spent >= 1.0:
                return self.complete(measured)
            before = self.head.samples
            self._profile(1, until_spent=min(1.0, self.budget.spent + 0.1))
            if self.head.samples == before:
                return self.complete(measured)

    @property
    def base(self) -> SideProcesses:
        return self.sides[0]

    @property
    def head(self) -> SideProcesses:
        return self.sides[1]

    def _run_pairs(self) -> None:
        """Run pairs until one of the planned analyses decides, or their time is over."""
        observers = PairObserver(self.base.observer, self.head.observer)
        thresholds = self.prepared.head.workload.thresholds
        planned = self.prepared.pair_counts
        end = PAIRS_SHARE if self.head.side.profiler else 1.0
        while observers.pairs < planned[-1]:
            if observers.pairs >= planned[0] and self.budget.spent >= end:
                return
            observers.pair()
            self.update("pairs", f"pair {observers.pairs} of ≤ {planned[-1]}")
            base, head = (side.observer.observation() for side in self.sides)
            if base.tokens != head.tokens:
                return  # nothing that takes longer could make them comparable
            if observers.pairs in planned:
                drop_pct = thresholds.tokens_per_second_pct
                look = last_analysis(base, head, drop_pct, planned, ended=False)
                if look is not None and look.verdict.decision != "inconclusive":
                    return

    def _profile(self, at_least: int, *, until_done: int = 0, until_spent: float = 0.0) -> None:
        """Profile processes of both sides in turn."""
        if self.head.side.profiler is None:
            return
        done = 0
        while self.head.count("profiled") < MAX_PAIRS_PROFILED and (
            done < at_least
            or (done < until_done and self.budget.spent < 1.0)
            or self.budget.spent < until_spent
            or (self._has_few_samples and self.budget.spent < self.limit)
        ):
            for side in self.sides:
                side.profile_once(PAIRS_PROFILED_S)
            done += 1
            samples = sum(side.samples for side in self.sides)
            pairs = _count(self.head.count("timed"), "pair", "pairs")
            self.update("profiling", f"{pairs}, {samples:,} samples")

    def _clock_more_bricks(self) -> bool:
        """Clock more of them, once; False if that was done before."""
        if self.head.bricks_undecided:
            return False
        for side in self.sides:
            side.bricks_undecided = True
        self.clock_bricks()
        return True

    @property
    def _has_few_samples(self) -> bool:
        return any(side.has_few_samples for side in self.sides)

    @property
    def _has_all_profiles(self) -> bool:
        done = self.head.count("profiled")
        return self.head.side.profiler is None or done >= MAX_PAIRS_PROFILED


def _warm_up(side: SideProcesses) -> ProcessTime:
    """Run once, unrecorded; an error of the base names its commit."""
    try:
        return side.observer.warm_up(reference=False)
    except FlamegateError as error:
        if side.side.role == "head":
            raise
        found = side.side.subject.commit
        commit = found.revision[:12] if found else "the base"
        if error.code == "E_BENCHMARK_NOT_FOUND":
            raise NoBaselineError(
                "E_NOT_AT_REVISION",
                f"At {commit}: {error.problem}",
                "Compare with a revision that has it; the next comparison will.",
            ) from None
        raise type(error)(error.code, f"At {commit}: {error.problem}", error.remedy) from None


def _schedule_alone(prepared: Prepared, time_: ProcessTime) -> Schedule:
    """Plan the processes of one side by the time that the first one took."""
    side, budget = prepared.head, Budget(prepared.budget_s)
    timed_s = time_.process_s(budget.process_s(TIMED_PART))
    share = TIMED_SHARE if side.profiler else 1 - PROFILED_SHARE
    timed = min(max(MIN_TIMED, math.ceil(share * budget.total_s / timed_s)), MAX_TIMED)
    runs = [PlannedRuns("timed", timed, timed_s, f"{timed} processes × {timed_s:.1f} s")]
    least_s = MIN_TIMED * timed_s
    if side.profiler is not None:
        profiled_s = _ATTACH_S + time_.process_s(budget.process_s(PROFILED_PART))
        enough = _enough_profiled(time_, side.profiler.rate_hz)
        wanted = math.ceil(PROFILED_SHARE * budget.total_s / profiled_s)
        profiled = max(enough, min(wanted, MAX_PROFILED))
        words = f"profile {profiled * profiled_s:.0f} s"
        runs.append(PlannedRuns("profiled", profiled, profiled_s, words))
        least_s += enough * profiled_s
    runs += _brick_runs(prepared, [time_])
    return Schedule(tuple(runs), least_s, budget.total_s)


def _schedule_pairs(prepared: Prepared, times: list[ProcessTime]) -> Schedule:
    """Plan a comparison. It ends at the first analysis that decides, so this is the most."""
    budget_s, planned = prepared.budget_s, prepared.pair_counts
    pair_s = sum(time_.process_s(PAIR_S) for time_ in times)
    profiles = []
    if prepared.head.profiler is not None:
        each_s = sum(_ATTACH_S + time_.process_s(PAIRS_PROFILED_S) for time_ in times)
        rate_hz = prepared.head.profiler.rate_hz
        count = max(_enough_profiled(time_, rate_hz) for time_ in times)
        profiles.append(PlannedRuns("profiled", count, each_s, f"profiles {count * each_s:.0f} s"))
    share = PAIRS_SHARE if profiles else 1.0
    pairs = min(max(planned[0], math.ceil(share * budget_s / pair_s)), planned[-1])
    words = f"{planned[0]} to {pairs} pairs × {pair_s:.1f} s"
    runs = [PlannedRuns("timed", pairs, pair_s, words), *profiles]
    least_s = planned[0] * pair_s + sum(each.seconds for each in profiles)
    return Schedule((*runs, *_brick_runs(prepared, times)), least_s, budget_s)


def _brick_runs(prepared: Prepared, times: Sequence[ProcessTime]) -> list[PlannedRuns]:
    """Plan the processes whose bricks are clocked: none if that is not asked for."""
    is_gated = bool(prepared.head.workload.thresholds.bricks)
    repeats = all(time_.repeats for time_ in times)
    if not repeats or not (is_gated or prepared.show_bricks):
        return []
    part = GATED_BRICKS_PART if is_gated else BRICKS_PART
    count = GATED_BRICK_RUNS if is_gated else SHOWN_BRICK_RUNS
    seconds = Budget(prepared.budget_s).process_s(part)
    each_s = sum(time_.process_s(seconds) for time_ in times)
    return [PlannedRuns("bricks", count, each_s, f"bricks {count * each_s:.0f} s")]


def _enough_profiled(time_: ProcessTime, rate_hz: int) -> int:
    """Return how many profiled processes give enough samples: more if each ends soon."""
    if time_.repeats:
        return MIN_PROFILED
    samples = max(rate_hz * time_.sequence_s, 1e-3)
    return min(max(MIN_PROFILED, math.ceil(SAMPLE_FLOOR / samples)), MAX_FOR_SAMPLES)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

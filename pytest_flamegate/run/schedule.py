"""How many processes of each role run, and for how long, within the budget of a workload."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytest_flamegate.config.options import FINE_PCT
from pytest_flamegate.config.thresholds import MIN_BRICK_PASSES, SAMPLE_FLOOR
from pytest_flamegate.observe.engine_process import ProcessTime
from pytest_flamegate.observe.pairs import PAIR_S
from pytest_flamegate.report.text import plural
from pytest_flamegate.run.stages import Prepared

TIMED_SHARE, PROFILED_SHARE = 0.4, 0.33
MIN_TIMED, MAX_TIMED = 5, 40
MIN_PROFILED, MAX_PROFILED = 3, 24
TIMED_PART, PROFILED_PART = 1 / 40, 1 / 20
PAIRS_SHARE = 0.7
"""The part of a comparison's budget that pairs may take if both sides are profiled too."""
PAIRS_PROFILED_S = 1.5
QUIET_PCT = 10.0
"""With a fine threshold a second pair beside the first costs more than it gains, unless other work
has so much of the core: memory that both use makes pairs of SmolLM2 differ three times as much."""
_BESIDE = 1.3
"""How much longer a pair takes that runs beside another: 1.2 to 1.5 times, measured."""
_ATTACH_S = 0.4
MAX_FOR_SAMPLES = 200
"""Profiled processes at most if each ends so soon that it gives few samples."""
SHOWN_BRICK_RUNS, GATED_BRICK_RUNS, MAX_BRICK_RUNS = 3, MIN_BRICK_PASSES, 15
"""Processes whose bricks are clocked: only to be shown, to be gated, and if that is undecided."""
BRICKS_PART, GATED_BRICKS_PART = 1 / 40, 3 / 40
"""Parts of the budget that one process generates for. Runs of 1.5 s differ by 8 %, of 0.5 s by
20 %: the machine is fast in part of each. Two sides on one core differ by 1 % after 0.8 s each."""
PROCESS_S = (0.2, 3.0)
"""How long a served process generates, at least and at most."""


@dataclass(slots=True)
class Budget:
    """The measuring time of one workload. The clock starts when the budget is made."""

    total_s: float
    excluded_s: float = 0.0
    """Time that does not count: clocking bricks."""
    began_s: float = field(default_factory=lambda: time.monotonic())

    @property
    def spent(self) -> float:
        """The part of the budget that is used up; may pass 1."""
        return (time.monotonic() - self.began_s - self.excluded_s) / self.total_s

    @property
    def left_s(self) -> float:
        """Seconds left, 0 if the budget is used up."""
        return max(0.0, (1.0 - self.spent) * self.total_s)

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Exclude the time within the block from the budget."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.excluded_s += time.monotonic() - began_s

    def process_s(self, part: float) -> float:
        """Return how long one process generates, if it may take ``part`` of the budget."""
        return min(max(self.total_s * part, PROCESS_S[0]), PROCESS_S[1])


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """So many processes of one role, or pairs of them, of ``each_s`` seconds each."""

    role: str
    count: int
    each_s: float
    words: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The processes that will run; the fewest that a verdict needs take ``least_s``."""

    runs: tuple[PlannedRuns, ...] = ()
    least_s: float = 0.0
    budget_s: float = 0.0

    @property
    def seconds(self) -> float:
        """How long all of them take."""
        return sum(each.count * each.each_s for each in self.runs)

    @property
    def sentence(self) -> str:
        """``5 processes × 3.1 s, profile 20 s: about 35 s``; says if the budget is too small."""
        about = f"{', '.join(each.words for each in self.runs)}: about {self.seconds:.0f} s"
        if self.least_s <= self.budget_s:
            return about
        return (
            f"{about}, more than its budget of {self.budget_s:g} s: fewer processes would give no "
            "verdict"
        )

    def left_s(self, done: Mapping[str, int], elapsed_s: float) -> float:
        """Return how long the runs take that are not done, at the pace so far.

        No run begins after the budget's end, unless a verdict needs it.
        """
        planned_s = sum(min(done.get(each.role, 0), each.count) * each.each_s for each in self.runs)
        pace = max(elapsed_s / planned_s, 1.0) if planned_s else 1.0
        left_s = {
            each.role: pace * max(each.count - done.get(each.role, 0), 0) * each.each_s
            for each in self.runs
        }
        bricks_s = left_s.pop("bricks", 0.0)  # does not count towards the budget
        within_s = max(self.budget_s, pace * self.least_s) - elapsed_s
        return min(sum(left_s.values()), max(within_s, 0.0)) + bricks_s


def describe_load() -> str:
    """Return that a run takes longer while other work goes on; empty if none does."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores:
        return ""
    return f", longer while this machine is busy (load {load:.1f}, {plural(cores, 'core')})"


def should_run_alone(drop_pct: float, others_pct: float | None) -> bool:
    """Return whether one pair is to run at a time; ``others_pct`` is other work's part of a core.

    That is None until pairs have shared a core.
    """
    return others_pct is not None and drop_pct < FINE_PCT and others_pct < QUIET_PCT


def plan_processes(
    prepared: Prepared, times: Sequence[ProcessTime], *, shared: bool = False, at_once: int = 1
) -> Schedule:
    """Plan the processes of one side, or of two that share a core or alternate.

    ``times`` are what the first process of each side took, and ``at_once`` pairs run at the same
    time. A comparison ends at the first analysis that decides, so this is the most.
    """
    budget, profiler = Budget(prepared.budget_s), prepared.head.profiler
    is_pair = len(times) > 1
    if is_pair:
        planned = prepared.pair_counts
        timed_s, profiled_s, share = PAIR_S, PAIRS_PROFILED_S, PAIRS_SHARE if profiler else 1.0
    else:
        planned = MIN_TIMED, MAX_TIMED
        timed_s, profiled_s = budget.process_s(TIMED_PART), budget.process_s(PROFILED_PART)
        share = TIMED_SHARE if profiler else 1 - PROFILED_SHARE
    beside_s = (_BESIDE if at_once > 1 else 1.0) / at_once
    each_s = beside_s * sum(time_.process_s(timed_s) for time_ in times)
    count = at_once * math.ceil(share * budget.total_s / each_s / at_once)
    count = min(max(planned[0], count), planned[-1])
    words = f"{count} processes"
    if is_pair:
        words = f"{planned[0]} to about {count} pairs" if count > planned[0] else f"{count} pairs"
    beside = f" ({at_once} at once)" if at_once > 1 else ""
    runs = [PlannedRuns("timed", count, each_s, f"{words} × {each_s:.1f} s{beside}")]
    least_s = planned[0] * each_s
    if profiler is not None:
        each_s = beside_s * sum(_ATTACH_S + time_.process_s(profiled_s) for time_ in times)
        enough = max(_enough_profiled(time_, profiler.rate_hz) for time_ in times)
        count = enough = at_once * math.ceil(enough / at_once)
        if not is_pair:
            wanted = math.ceil(PROFILED_SHARE * budget.total_s / each_s)
            count = max(enough, min(wanted, MAX_PROFILED))
        words = f"{'profiles' if is_pair else 'profile'} {count * each_s:.0f} s"
        runs.append(PlannedRuns("profiled", count, each_s, words))
        least_s += enough * each_s
    runs += _brick_runs(prepared, times, shared=shared)
    return Schedule(tuple(runs), least_s, budget.total_s)


def brick_run_s(budget: Budget, *, gated: bool, shared: bool) -> float:
    """Return how long one process generates with its bricks clocked, in time of its own."""
    return budget.process_s(GATED_BRICKS_PART if gated and not shared else BRICKS_PART)


def _brick_runs(
    prepared: Prepared, times: Sequence[ProcessTime], *, shared: bool
) -> list[PlannedRuns]:
    """Plan the processes whose bricks are clocked: none if that is not asked for."""
    is_gated = bool(prepared.head.workload.thresholds.bricks)
    repeats = all(time_.repeats for time_ in times)
    if not repeats or not (is_gated or prepared.show_bricks):
        return []
    count = GATED_BRICK_RUNS if is_gated else SHOWN_BRICK_RUNS
    seconds = brick_run_s(Budget(prepared.budget_s), gated=is_gated, shared=shared)
    each_s = sum(time_.process_s(seconds) for time_ in times)
    return [PlannedRuns("bricks", count, each_s, f"bricks {count * each_s:.0f} s")]


def _enough_profiled(time_: ProcessTime, rate_hz: int) -> int:
    """Return how many profiled processes give enough samples: more if each ends soon."""
    if time_.repeats:
        return MIN_PROFILED
    samples = max(rate_hz * time_.sequence_s, 1e-3)
    return min(max(MIN_PROFILED, math.ceil(SAMPLE_FLOOR / samples)), MAX_FOR_SAMPLES)

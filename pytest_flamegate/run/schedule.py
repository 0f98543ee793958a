"""Which processes a budget has room for: announced before they run, as far as can be known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.config.thresholds import SAMPLE_FLOOR
from pytest_flamegate.gate import FIRST_ANALYSES, plan_analyses
from pytest_flamegate.observe.engine_process import ProcessTime
from pytest_flamegate.observe.pairs import PAIR_S
from pytest_flamegate.run.processes import (
    BRICKS_PART,
    GATED_BRICK_RUNS,
    GATED_BRICKS_PART,
    MAX_FOR_SAMPLES,
    MIN_PROFILED,
    SHOWN_BRICK_RUNS,
    Budget,
)
from pytest_flamegate.run.stages import Prepared

TIMED_SHARE, PROFILED_SHARE = 0.45, 0.4
MIN_TIMED, MAX_TIMED = 5, 40
MAX_PROFILED = 24
TIMED_PART, PROFILED_PART = 1 / 40, 1 / 20
PAIRS_SHARE = 0.7
"""The part of a comparison's budget that pairs may take if both sides are profiled too."""
PAIRS_PROFILED_S = 1.5
_ATTACH_S = 0.4


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
    """The processes that will run, estimated from the first process.

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


def plan_pair_counts(budget_s: float) -> tuple[int, ...]:
    """Return the numbers of pairs at which a comparison is judged; more for a longer budget."""
    return plan_analyses(round(FIRST_ANALYSES[-1] * max(1.0, budget_s / COMPARE_BUDGET_S)))


def schedule_alone(prepared: Prepared, time_: ProcessTime) -> Schedule:
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


def schedule_pairs(prepared: Prepared, times: list[ProcessTime]) -> Schedule:
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

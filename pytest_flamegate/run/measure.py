"""Spend the budget of a prepared workload: one side alone, or two sides in pairs."""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pytest_flamegate.child.call_counts import HAS_MONITORING
from pytest_flamegate.config.options import FINE_PCT
from pytest_flamegate.core.errors import FlamegateError, UndecidedError, system_errors
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines.base import Served
from pytest_flamegate.gate.analyses import InterimAnalysis, is_whole_open, last_analysis
from pytest_flamegate.gate.pairs import are_cores_busy, describe_size_alone, others_pct
from pytest_flamegate.gate.rule import ProcessKind, RateDecision, Reason
from pytest_flamegate.gate.verdict import KINDS
from pytest_flamegate.observe.engine_process import ProcessTime
from pytest_flamegate.observe.machine import measure_bandwidth
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.pairs import PairObserver
from pytest_flamegate.report.text import plural
from pytest_flamegate.run import schedule
from pytest_flamegate.run.instruments import trace_kernels
from pytest_flamegate.run.processes import SideProcesses
from pytest_flamegate.run.schedule import Budget, Schedule
from pytest_flamegate.run.stages import Measured, Prepared

INTERIM_ANALYSES = 2
"""How often one side is judged at most; the error rates are spent over them."""
PAIRS_PROFILED, MAX_PAIRS_PROFILED = 5, 60
"""Profiled processes of each side of a changed whole if there is time, and of any at most."""
PAIRS_EXPLAINED = 6
"""Pairs that explain a change, if there is time: after four the cost of a function is certain only
from t = 7.5 on, after six from 4.8."""
LEAST_ALONE, MOST_ALONE, ALONE_S = 3, 7, 12.0
"""Pairs that run one after the other to size a decided change, and their seconds at most."""
_MAX_PROFILER_WAIT = 2.0
"""How much longer than planned samples are waited for if the machine gives them slowly."""

T = TypeVar("T")


def measure(
    prepared: Prepared, until: Callable[[Measured], tuple[ProcessKind, ...]], progress: Progress
) -> Measured:
    """Measure every side of ``prepared`` until its budget is used up or nothing is undecided.

    ``until`` judges the measurement so far and returns the kinds of processes (``timed``,
    ``profiled``, ``bricks``) of which more could settle it.
    One process at most runs past the budget, unless the fewest processes that a verdict needs
    take longer; that is announced after the first process.

    Raises ``ToolError`` for an engine or a profiler that fails.
    """
    if len(prepared.sides) == 1:
        return _OneSide(prepared, until, progress).measure()
    return _Pairs(prepared, until, progress).measure()


class _MeasuringLoop:
    """The common part of both strategies: the budget, the processes of each side, the progress.

    ``head`` is the side that is judged; one side alone is its own ``base``. ``announced_s`` is when
    the measurement ends as announced, in seconds after the budget began.
    """

    def __init__(
        self,
        prepared: Prepared,
        until: Callable[[Measured], tuple[ProcessKind, ...]],
        progress: Progress,
    ) -> None:
        self.prepared, self.until, self.progress = prepared, until, progress
        self.budget, self.schedule = Budget(prepared.budget_s), Schedule()
        self.announced_s = math.inf
        self.sides = tuple(
            SideProcesses(side, self.budget, prepared.show_bricks) for side in prepared.sides
        )
        self.base, self.head = self.sides[0], self.sides[-1]
        self.workload = prepared.head.workload
        self.drop_pct = self.workload.thresholds.tokens_per_second_pct

    def measured(self) -> Measured:
        return Measured(self.prepared, tuple(side.measured() for side in self.sides))

    def announce(self, planned: Schedule) -> None:
        self.schedule = planned
        self.announced_s = time.monotonic() - self.budget.began_s + planned.seconds
        self.progress.announce(
            f"{self.workload.name}: {planned.sentence}{schedule.describe_load()}"
        )

    @property
    def limit(self) -> float:
        """The part of the budget that may be spent: above 1 only if the least takes longer."""
        return max(1.0, _MAX_PROFILER_WAIT * self.schedule.least_s / self.budget.total_s)

    def clock_bricks(self) -> None:
        """Clock the bricks of all sides together, in processes of their own and extra time."""
        while wanted := [side for side in self.sides if side.wants_bricks]:
            # The change may be what adds the marks: those of the base are not needed.
            calls = [partial(each.clock_bricks_once, needed=each is self.head) for each in wanted]
            with self.budget.excluded():
                self.run_together(calls, len(self.head.bricks))
            self.update("bricks", plural(len(self.head.bricks), "process", "processes"))

    def run_together(self, calls: Sequence[Callable[..., None]], number: int) -> None:  # noqa: ARG002 - pairs have one
        """Run a process of each side; ``number`` is that of the pair they form, if they do."""
        for call in calls:
            call()

    def update(self, phase: str, detail: str) -> None:
        done = Counter[str](run.role for run in self.head.observer.runs)
        elapsed_s = time.monotonic() - self.budget.began_s
        if elapsed_s > self.announced_s + 1.0:
            phase = f"longer than announced: {phase}"
        self.progress.update(phase, detail, self.schedule.left_s(done, elapsed_s))

    def complete(self, measured: Measured) -> Measured:
        """Add the memory bandwidth, which is only shown, if bricks are compared with it."""
        if not any(side.bricks for side in measured.sides):
            return measured
        self.update("memory bandwidth", "")
        try:
            with system_errors():
                bandwidth = measure_bandwidth(max(self.workload.threads, 1))
        except FlamegateError as error:
            note = Reason("I_NO_BANDWIDTH", f"The memory bandwidth was not measured: {error}")
            return replace(measured, notes=(*measured.notes, note))
        return replace(measured, bandwidth=bandwidth)


class _OneSide(_MeasuringLoop):
    """Timed processes, then profiled ones, then more of either if that could settle something."""

    def measure(self) -> Measured:
        self.progress.update("warming up")
        self.announce(schedule.plan_processes(self.prepared, [self.head.warm_up()]))
        share = schedule.TIMED_SHARE if self.head.side.profiler else 1 - schedule.PROFILED_SHARE
        self._time(share, schedule.MIN_TIMED)
        self._profile(self.budget.spent + schedule.PROFILED_SHARE, schedule.MIN_PROFILED)
        self.clock_bricks()
        trace_kernels(self.head.observer)
        measured = self.measured()
        for _ in range(INTERIM_ANALYSES - 1):
            wanted = self.until(measured)
            if self.budget.spent >= 1.0:  # bricks have time of their own
                wanted = tuple(each for each in wanted if each == "bricks")
            if not wanted:
                break
            if "timed" in wanted:
                self._time(1.0 if "profiled" not in wanted else (1.0 + self.budget.spent) / 2, 1)
            if "profiled" in wanted:
                self._profile(1.0, 1)
            if "bricks" in wanted:
                self.head.bricks_undecided = True
                self.clock_bricks()
            measured = self.measured()
        return self.complete(measured)

    def _time(self, share: float, at_least: int) -> None:
        """Time processes until that share of the budget is spent."""
        done = self.head.count("timed")
        wanted = done + at_least
        while done < schedule.MAX_TIMED and (done < wanted or self.budget.spent < share):
            self.head.observer.run_timed(self.budget.process_s(schedule.TIMED_PART))
            done += 1
            self._update("timing")

    def _profile(self, share: float, at_least: int) -> None:
        """Profile processes until that share of the budget is spent and samples are enough."""
        if self.head.side.profiler is None:
            return
        wanted = self.head.count("profiled") + at_least
        while True:
            done, few = self.head.count("profiled"), self.head.has_few_samples
            if done >= (schedule.MAX_FOR_SAMPLES if few else schedule.MAX_PROFILED):
                break
            if done >= wanted and self.budget.spent >= (max(share, self.limit) if few else share):
                break
            self.head.profile_once(self.budget.process_s(schedule.PROFILED_PART))
            self._update("profiling")

    def _update(self, phase: str) -> None:
        timed = plural(self.head.count("timed"), "process", "processes")
        self.update(phase, f"{timed}, {self.head.samples:,} samples")


class _Pairs(_MeasuringLoop):
    """Pairs of a process of each side until one is certainly slower or none is; then profiles."""

    observers: PairObserver
    analysis: InterimAnalysis | None = None
    """The last analysis of tokens per second."""
    pair_s: float = math.inf
    """The time that the last pairs took, which ran at the same time."""

    def measure(self) -> Measured:
        self.progress.update("warming up")
        times = self._warm_up()
        self.observers = PairObserver(self.base.observer, self.head.observer)
        shared = self.observers.shares_core
        at_once = self.observers.at_once if self.drop_pct >= FINE_PCT else 1
        self.announce(schedule.plan_processes(self.prepared, times, shared=shared, at_once=at_once))
        self._run_pairs()
        self._add_pairs()
        base, head = self._observations()
        if self.workload.threads > 1 and are_cores_busy(base, head):
            return self._leave_unprofiled()
        if self.workload.thresholds.counts:
            self._count_calls()
        explains_nothing = self.decision == "pass" or base.has_other_tokens(head)
        until_done = 0 if explains_nothing else PAIRS_PROFILED
        self._profile(schedule.MIN_PROFILED, until_done=until_done)
        self.clock_bricks()
        self._settle()
        if self.is_change:
            self._explain_change()
        return self.complete(self.measured())

    @property
    def decision(self) -> RateDecision:
        """The decision about tokens per second."""
        return self.analysis.verdict.decision if self.analysis else "inconclusive"

    @property
    def is_change(self) -> bool:
        """Whether the code certainly became slower or faster."""
        return KINDS[self.decision].is_change

    def _settle(self) -> None:
        """Clock more bricks and profile more processes while that could settle something."""
        while True:
            wanted = self.until(self.measured())
            if "bricks" in wanted and not self.head.bricks_undecided:
                for side in self.sides:
                    side.bricks_undecided = True
                self.clock_bricks()
                continue
            if "profiled" not in wanted or self.budget.spent >= 1.0:
                return
            before = self.head.samples
            self._profile(1, until_spent=min(1.0, self.budget.spent + 0.1))
            if self.head.samples == before:
                return

    def _warm_up(self) -> list[ProcessTime]:
        """Run each side once, unrecorded; return the times of base and head."""
        times = dict[int, ProcessTime]()
        for each in _shuffle(range(2)):
            try:
                times[each] = self.sides[each].warm_up()
            except UndecidedError:
                if not times:
                    self.head.warm_up()  # an error of the head is worth more
                raise
        return [times[0], times[1]]

    def _leave_unprofiled(self) -> Measured:
        """Return the measurement without profiles, which would make the pairs worth no more."""
        measured = self.measured()
        notes = dict(measured.sides[-1].notes)
        if "E_NO_SAMPLES" in notes:
            notes["E_NO_SAMPLES"] = "Nothing was profiled, because the pairs decide nothing."
        base = replace(measured.sides[0], notes=self.base.observer.notes)
        return replace(measured, sides=(base, replace(measured.sides[-1], notes=notes)))

    def _observations(self) -> tuple[Observation, Observation]:
        return self.base.observer.observation(), self.head.observer.observation()

    def _run_pairs(self) -> None:
        """Run pairs until one of the planned analyses decides, or their time is over."""
        observers, planned = self.observers, self.prepared.pair_counts
        while observers.pairs < planned[-1]:
            if observers.pairs >= planned[0] and self.budget.spent >= self._pairs_share:
                self._decide(ended=True)
                return
            done = observers.pairs
            self._run_pairs_at_once(planned[-1])
            base, head = self._observations()
            if base.has_other_tokens(head):
                return  # nothing that takes longer could make them comparable
            if any(done < each <= observers.pairs for each in planned):
                if self.workload.threads > 1 and are_cores_busy(base, head, certainly=True):
                    return
                self._decide(ended=False)
                if self.decision != "inconclusive":
                    return

    def _run_pairs_at_once(self, end: int) -> None:
        """Run a pair, or as many as can run at the same time, until there are ``end`` at most."""
        others = others_pct(*self._observations()) if self.observers.pairs else None
        alone = schedule.should_run_alone(self.drop_pct, others)
        began_s = time.monotonic()
        self.observers.pair(1 if alone else end - self.observers.pairs)
        self.pair_s = time.monotonic() - began_s
        count = max(self.schedule.runs[0].count, self.observers.pairs)
        self.update("pairs", f"pair {self.observers.pairs} of about {count}")

    def _add_pairs(self) -> None:
        """Run more pairs of a decided rate: to explain its change, and to judge the whole."""
        if self.is_change and self.head.side.profiler is not None:
            self._add_up_to(PAIRS_EXPLAINED)
        found = self.analysis
        if found and is_whole_open(*self._observations(), found, self.drop_pct):
            self._add_up_to(self.prepared.pair_counts[-1])

    def _add_up_to(self, pairs: int) -> None:
        while self.observers.pairs < pairs and self.budget.spent < self._pairs_share:
            self._run_pairs_at_once(pairs)

    @property
    def _pairs_share(self) -> float:
        return schedule.PAIRS_SHARE if self.head.side.profiler else 1.0

    def _explain_change(self) -> None:
        """Count calls and size a decided change, if that can be done; nothing is judged by it."""
        if not self.workload.thresholds.counts:
            with suppress(FlamegateError), system_errors():
                self._count_calls()
        if self.prepared.size_alone and self.observers.shares_core:
            with suppress(FlamegateError), system_errors():
                self._size_alone()

    def _decide(self, *, ended: bool) -> None:
        planned = self.prepared.pair_counts
        self.analysis = last_analysis(*self._observations(), self.drop_pct, planned, ended=ended)

    def _count_calls(self) -> None:
        """Count the calls of every function on both sides.

        The tokens of these processes are no evidence, so they have observers of their own.
        """
        with self.budget.excluded():
            for side in _shuffle(self.sides):
                plan = side.side.plan
                if not isinstance(plan, Served) or not (plan.python or HAS_MONITORING):
                    return
                self.update("counting calls", side.side.role or "")
                side.calls = side.make_observer().count_calls()

    def _size_alone(self) -> None:
        """Note the size of the change by pairs that do not share a core, nor its caches."""
        count = min(int(min(self.budget.left_s, ALONE_S) / self.pair_s), MOST_ALONE)
        if count < LEAST_ALONE:
            return
        base, head = (side.make_observer() for side in self.sides)
        alone = PairObserver(base, head, in_turn=True)
        for _ in range(count):
            alone.pair()
            self.update("pairs one after the other", f"pair {alone.pairs} of {count}")
        if size := describe_size_alone(base.observation(), head.observation()):
            self.head.observer.notes["I_SIZE_ALONE"] = size

    def run_together(self, calls: Sequence[Callable[..., None]], number: int) -> None:
        if len(calls) == len(self.sides):
            self.observers.run_both(calls, number)
        else:
            super().run_together(calls, number)

    def _profile(self, at_least: int, *, until_done: int = 0, until_spent: float = 0.0) -> None:
        """Profile processes of both sides together."""
        if self.head.side.profiler is None:
            return
        if not all(each.has_deeper for each in self.sides):
            self._profile_deeper()  # both sides alike
        calls = [partial(each.profile_once, schedule.PAIRS_PROFILED_S) for each in self.sides]
        before, round_s = self.head.count("profiled"), 0.0
        done = before
        while done < MAX_PAIRS_PROFILED and (
            done < before + at_least
            or (done < before + until_done and self.budget.left_s > round_s)
            or (self.budget.spent < until_spent and self.budget.left_s > round_s)
            or (self.budget.spent < self.limit and any(each.has_few_samples for each in self.sides))
        ):
            began_s = time.monotonic()
            self.observers.run_both(calls, done, MAX_PAIRS_PROFILED - done)
            round_s = time.monotonic() - began_s
            if any(each.has_cut_stacks for each in self.sides):
                self._profile_deeper()
            done = self.head.count("profiled")
            samples = f"{sum(side.samples for side in self.sides):,} samples"
            self.update("profiling", f"{plural(self.observers.pairs, 'pair')}, {samples}")

    def _profile_deeper(self) -> None:
        for each in self.sides:
            each.profile_deeper()


def _shuffle(items: Sequence[T]) -> list[T]:
    """Return ``items`` in an order drawn at random: an engine may note which side came first."""
    return random.SystemRandom().sample(items, len(items))

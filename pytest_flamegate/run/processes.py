"""The processes of one side: timed, profiled, with bricks clocked. Each one is a fresh process."""

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.bricks.record import BrickRun, Recorded
from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.config.thresholds import SAMPLE_FLOOR
from pytest_flamegate.core.errors import FlamegateError, ToolError, UndecidedError
from pytest_flamegate.engines.base import Endpoint, Served, Streamed
from pytest_flamegate.observe.engine_process import ALONE, EngineDiedError, ProcessTime, RunPlace
from pytest_flamegate.observe.observation import Observation, Role
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.profile.hotspots import pool_profiles
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Profiler
from pytest_flamegate.profile.profilers.tools import find_known_error, parse_wrapped
from pytest_flamegate.profile.stacks import WORKLOAD_ROOT, trim_stacks
from pytest_flamegate.receipt.metrics import overhead_pct
from pytest_flamegate.run import checkouts
from pytest_flamegate.run.schedule import (
    GATED_BRICK_RUNS,
    MAX_BRICK_RUNS,
    MIN_PROFILED,
    SHOWN_BRICK_RUNS,
    Budget,
    brick_run_s,
)
from pytest_flamegate.run.stages import MeasuredSide, PreparedSide

_SPARE_SAMPLES = 1.25
_LITTLE_ROOM_BYTES = 1 << 20
WHOLE_STACKS = 0.9
"""The part of the stacks that has to reach the start of the workload."""


@dataclass(slots=True)
class SideProcesses:
    """Starts the processes of one side and collects their measurements."""

    side: PreparedSide
    budget: Budget
    show_bricks: bool = False
    """Whether bricks are clocked although no budget is declared for any."""
    profiles: list[Profile] = field(default_factory=list)
    bricks: list[BrickRun] = field(default_factory=list)
    recorded: Recorded | None = None
    calls: CountedCalls | None = None
    bricks_undecided: bool = False
    """Whether the least number of brick runs left a brick's budget undecided."""
    observer: Observer = field(init=False)
    profiler: Profiler | None = field(init=False)
    _no_bricks: bool = False
    _flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.profiler = profiler = self.side.profiler
        self._flags = profiler.python_flags if profiler and self._is_served else ()
        self.observer = self.make_observer()

    def make_observer(self) -> Observer:
        """Return an observer of its own, whose runs are no part of what was measured."""
        return Observer(self.side.workload, self.side.plan, self._flags)

    def warm_up(self) -> ProcessTime:
        """Run once, unrecorded; an error of a side in a checkout is explained."""
        side = self.side
        if side.role != "base" and side.moved is None:
            return self.observer.warm_up()
        commit = side.subject.commit
        revision = commit.revision if commit else "(unknown)"
        elsewhere = side.is_declared_elsewhere
        with checkouts.explain_error(side.role, side.workload, revision, has_workload=elsewhere):
            return self.observer.warm_up()

    def measured(self) -> MeasuredSide:
        """Return the measurement so far; too few samples are a note, for the rate needs none."""
        poolable = self._poolable()
        profiler = self.profiler
        # A program runs once, however short it is; a server repeats its sequence.
        is_program = isinstance(self.side.plan, Streamed)
        max_tokens = self.side.workload.max_tokens if is_program else None
        pooled, few = pool_profiles(profiler.name if profiler else None, poolable, max_tokens)
        return MeasuredSide(
            side=self.side,
            observation=self._observation(),
            profiles=tuple(poolable),
            pooled=pooled,
            overhead_pct=overhead_pct(self.observer.runs, self.observer.observation().clock_scope),
            bricks=tuple(self.bricks),
            recorded=self.recorded,
            calls=self.calls,
            notes=MappingProxyType({**self.observer.notes, **few}),
        )

    def count(self, role: Role) -> int:
        """Return how many processes have run in that role."""
        return sum(run.role == role for run in self.observer.runs)

    @property
    def samples(self) -> int:
        """Samples taken so far."""
        return sum(profile.samples for profile in self.profiles)

    @property
    def has_few_samples(self) -> bool:
        """Whether the samples so far are too few to name any hotspot."""
        return sum(profile.samples for profile in self._poolable()) < SAMPLE_FLOOR

    def profile_once(
        self, seconds: float, observer: Observer | None = None, place: RunPlace = ALONE
    ) -> None:
        """Sample one more process: a served one for about ``seconds``, a program once.

        ``observer`` observes it, by default that of the side.
        On a shared core a process runs for half of the time, so it takes twice as long.
        """
        profiler, plan, observer = self.profiler, self.side.plan, observer or self.observer
        assert profiler is not None
        with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
            directory = Path(name)
            try:
                if isinstance(plan, Streamed):
                    profile = self._profile_program(plan, profiler, directory, observer, place)
                else:
                    seconds *= 2 if place.shares_core else 1
                    profile = self._profile_server(profiler, directory, seconds, observer, place)
            except UndecidedError as error:
                if error.code != "E_NO_SAMPLES":
                    raise
                return
        # The whole life of a short process may pass between two samples.
        if profile.samples:
            self.profiles.append(profile)

    @property
    def has_deeper(self) -> bool:
        """Whether another profiler would copy more of each stack."""
        return self.profiler is not None and self.profiler.deeper is not None

    @property
    def has_cut_stacks(self) -> bool:
        """Whether many of the stacks so far are cut, and a deeper profiler would complete them."""
        whole = sum(each.samples * each.completeness for each in self.profiles)
        return self.has_deeper and whole < WHOLE_STACKS * self.samples

    def profile_deeper(self) -> None:
        """Forget what was sampled and sample deeper stacks from now on, if that can be done."""
        if self.profiler is not None and self.profiler.deeper is not None:
            self.profiler = self.profiler.deeper
            self.profiles.clear()
            self.observer.forget("profiled")

    @property
    def wants_bricks(self) -> bool:
        """Whether the bricks of one more process are to be clocked."""
        if self._no_bricks:
            return False
        wanted = SHOWN_BRICK_RUNS if self.show_bricks else 0
        if self._gates_bricks:
            more = self.bricks_undecided and self.budget.excluded_s < self.budget.total_s
            wanted = MAX_BRICK_RUNS if more else GATED_BRICK_RUNS
        return len(self.bricks) < wanted

    def clock_bricks_once(
        self, observer: Observer | None = None, place: RunPlace = ALONE, *, needed: bool = True
    ) -> None:
        """Clock the bricks of one more process, observed as by ``profile_once``.

        An engine that marks none is a note, unless a budget is declared and they are
        ``needed``.

        Raises:
            ToolError: ``E_NO_BRICKS``, also for an engine that generates in no process of
                flamegate's own, and ``E_BAD_BRICKS``.
        """
        seconds = brick_run_s(self.budget, gated=self._gates_bricks, shared=place.shares_core)
        seconds *= 2 if place.shares_core else 1
        try:
            if not self._is_served:
                workload = self.side.workload
                raise ToolError(
                    "E_NO_BRICKS",
                    f"The engine {workload.engine!r} of {workload.name!r} runs in a program of its "
                    "own, and bricks are clocked only for the engines embedded and python.",
                    "Remove the bricks of this workload.",
                )
            _, clocked, self.recorded = (observer or self.observer).run_bricks(seconds, place)
        except FlamegateError as error:
            if error.code != "E_NO_BRICKS" or (needed and self._gates_bricks):
                raise
            self.observer.notes[error.code] = f"{error.problem} {error.remedy}"
            self._no_bricks = True
        else:
            self.bricks.append(clocked)

    @property
    def _gates_bricks(self) -> bool:
        return bool(self.side.workload.thresholds.bricks)

    @property
    def _is_served(self) -> bool:
        return isinstance(self.side.plan, Served)

    def _observation(self) -> Observation:
        """Return all runs so far, with the paths of a checkout written as the project's."""
        observed = self.observer.observation()
        if self.side.moved is None:
            return observed
        checkout, project = map(str, self.side.moved)
        requested, effective = (
            {name: value.replace(checkout, project) for name, value in environment.items()}
            for environment in (observed.requested_environment, observed.effective_environment)
        )
        return replace(observed, requested_environment=requested, effective_environment=effective)

    def _poolable(self) -> list[Profile]:
        """Return the profiles of decode alone if any run separated it, else all."""
        decode = [profile for profile in self.profiles if profile.covers == "decode"]
        return decode or self.profiles

    def _profile_server(
        self,
        profiler: Profiler,
        directory: Path,
        seconds: float,
        observer: Observer,
        place: RunPlace,
    ) -> Profile:
        # However small the budget, the least number of processes should be enough.
        enough_s = _SPARE_SAMPLES * SAMPLE_FLOOR / MIN_PROFILED / max(profiler.rate_hz, 1)
        # Nothing is known about the function that every stack of a server begins with.
        root = None if isinstance(self.side.plan, Endpoint) else WORKLOAD_ROOT
        try:
            _, recording = observer.run_profiled(
                max(seconds, enough_s), lambda pid: profiler.attach(pid, directory), place
            )
            return trim_stacks(profiler.parse(recording), root)
        finally:
            # Even after a kill: the files that CPython writes for perf lie in /tmp.
            if observer.served_pid is not None:
                profiler.clean_up(observer.served_pid)

    def _profile_program(
        self,
        plan: Streamed,
        profiler: Profiler,
        directory: Path,
        observer: Observer,
        place: RunPlace,
    ) -> Profile:
        wrapped = profiler.wrap(plan.argv, directory)
        try:
            answer = observer.run_wrapped(wrapped.argv, wrapped.clean, place)
        except EngineDiedError as error:
            if shutil.disk_usage(directory).free < _LITTLE_ROOM_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error
            # The profiler starts the program: if it fails, so does the process.
            raise find_known_error(profiler.name, error.stderr.encode()) or error from None
        parsed = parse_wrapped(profiler, wrapped.recording, answer.stderr, answer.window_ns)
        profile = trim_stacks(parsed, None)
        covers = "process" if profile.covers == "sequence" else profile.covers
        return replace(
            profile, covers=covers, pids=(answer.pid,), started_ticks=(answer.started_ticks,)
        )

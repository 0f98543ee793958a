"""Spend one workload's budget: timed processes, then profiled ones, then more where it helps."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_flamegate.config import thresholds
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.engines.base import Endpoint, Served, Streamed
from pytest_flamegate.observe.observer import NOTHING_CLOCKED, Observer, not_served
from pytest_flamegate.profile.hotspots import no_samples_error, require_samples
from pytest_flamegate.profile.model import merge_profiles
from pytest_flamegate.profile.profilers import jitdump
from pytest_flamegate.profile.stacks import WORKLOAD_ROOT, trim_stacks
from pytest_flamegate.receipt.metrics import overhead_pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.bricks.record import BrickRun, Recorded
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Plan
    from pytest_flamegate.gate import MoreProcesses
    from pytest_flamegate.observe.observation import Observation, Role
    from pytest_flamegate.profile.model import Profile
    from pytest_flamegate.profile.profilers.base import Profiler


SAMPLE_FLOOR = thresholds.SAMPLE_FLOOR
TIMED_SHARE, PROFILED_SHARE = 0.45, 0.4
MIN_TIMED, MAX_TIMED = 5, 40
MIN_PROFILED, MAX_PROFILED = 3, 24
SHOWN_BRICKS, GATED_BRICKS, MOST_BRICKS = 3, thresholds.MIN_BRICK_PASSES, 15
"""Processes whose bricks are clocked: only to be shown, to be judged, and where that is open."""
MOST_FOR_SAMPLES = 200
"""Processes at most where each is over so soon that their samples are few even together."""
_TIMED_PART, _PROFILED_PART, _BRICKS_PART = 1 / 40, 1 / 20, 1 / 40
_SECONDS = (0.2, 3.0)
_GATED_BRICKS_PART = 3 / 40
"""Passes of 1.5 s differ by 8 % and of 0.5 s by 20 %: the machine is fast in part of each."""
_ENOUGH = 1.25


class Progress(Protocol):
    """Told about every process that is measured."""

    def step(self, workload: str, told: str, spent: float) -> None:
        """``told`` says what was done; ``spent`` is the part of the budget used, 0 to 1."""


@dataclass(slots=True)
class Measuring:
    """One workload being measured. ``profiler`` is None where profiling is turned off."""

    workload: Workload
    plan: Plan
    profiler: Profiler | None
    budget_s: float
    progress: Progress
    told_paths: tuple[Path, Path] | None = None
    """Paths below the first are written down as below the second: a checkout's as the project's."""
    profiles: list[Profile] = field(default_factory=list)
    show_bricks: bool = False
    """Whether bricks are clocked though no budget asks for it."""
    bricks: list[BrickRun] = field(default_factory=list)
    recorded: Recorded | None = None
    """What the last of those passes recorded, with its calls."""
    observer: Observer = field(init=False)
    bricks_open: bool = False
    """Whether the least number of them left a budget open."""
    bricks_s: float = 0.0
    """What clocking them took; it is not of the budget, but may take as long once more."""
    _no_bricks: bool = False
    _began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        flags = self.profiler.python_flags if self.profiler and self._served else ()
        self.observer = Observer(self.workload, self.plan, flags)

    @property
    def observation(self) -> Observation:
        """All runs so far."""
        seen = self.observer.observation()
        if self.told_paths is None:
            return seen
        return replace(
            seen,
            requested_environment=self._told(seen.requested_environment),
            effective_environment=self._told(seen.effective_environment),
        )

    @property
    def samples(self) -> int:
        """Samples taken so far."""
        return sum(profile.samples for profile in self.profiles)

    @property
    def pool(self) -> list[Profile]:
        """The profiles that can be pooled: decode alone where any run told it apart."""
        decode = [profile for profile in self.profiles if profile.covers == "decode"]
        return decode or self.profiles

    @property
    def profile(self) -> Profile | None:
        """All profiled processes pooled; None where profiling is off.

        Raises ``UndecidedError`` ``E_NO_SAMPLES`` or ``E_FEW_SAMPLES`` where they hold too
        few samples together.
        """
        if self.profiler is None:
            return None
        if not self.pool:
            raise no_samples_error(self.profiler.name, 0, 0)
        pooled = merge_profiles(self.pool)
        require_samples(pooled, SAMPLE_FLOOR)
        return pooled

    @property
    def spent(self) -> float:
        """The part of the budget that is used up; may pass 1."""
        return (time.monotonic() - self._began_s - self.bricks_s) / self.budget_s

    def first(self) -> None:
        """Measure what every verdict needs."""
        self.observer.warm_up()
        self._timed_until(TIMED_SHARE if self.profiler else 1 - PROFILED_SHARE, MIN_TIMED)
        if self.profiler is not None:
            self._profiled_until(self.spent + PROFILED_SHARE, self.profiler, MIN_PROFILED)
        self._bricks()

    def affordable(self, wanted: MoreProcesses) -> MoreProcesses:
        """Return what of ``wanted`` there is time for."""
        return wanted if self.spent < 1.0 else replace(wanted, timed=False, profiled=False)

    def more(self, wanted: MoreProcesses) -> None:
        """Spend the rest of the budget where it can settle something."""
        if wanted.timed:
            self._timed_until(1.0 if not wanted.profiled else (1.0 + self.spent) / 2, at_least=1)
        if wanted.profiled and self.profiler is not None:
            self._profiled_until(1.0, self.profiler, at_least=1)
        if wanted.bricks:
            self.bricks_open = True
            self._bricks()

    def _bricks(self) -> None:
        while self.wants_bricks:
            self.brick_once()
            self._tell()

    @property
    def wants_bricks(self) -> bool:
        """Whether one more process is to have its bricks clocked."""
        if self._no_bricks:
            return False
        wanted = SHOWN_BRICKS if self.show_bricks else 0
        if self._gates_bricks:
            more = self.bricks_open and self.bricks_s < self.budget_s
            wanted = MOST_BRICKS if more else GATED_BRICKS
        return len(self.bricks) < wanted

    def brick_once(self, *, needed: bool = True) -> None:
        """Clock the bricks of one more process.

        Where there are none, and no budget is declared or it is not ``needed``, that is a note.
        Raises else, see ``Observer.bricked``; ``ToolError`` ``E_BRICKS_NOT_SERVED`` for an engine
        that generates in no process of this tool.
        """
        began_s = time.monotonic()
        try:
            if not self._served:
                raise not_served(self.workload.name, self.workload.engine)
            part = _GATED_BRICKS_PART if self._gates_bricks else _BRICKS_PART
            _, clocked, self.recorded = self.observer.bricked(self._seconds(part))
        except FlamegateError as error:
            if error.code not in NOTHING_CLOCKED or (needed and self._gates_bricks):
                raise
            self.observer.notes[error.code] = f"{error.problem} {error.remedy}"
            self._no_bricks = True
        else:
            self.bricks.append(clocked)
        finally:
            self.bricks_s += time.monotonic() - began_s

    @property
    def _gates_bricks(self) -> bool:
        return bool(self.workload.thresholds.bricks)

    def overhead_pct(self) -> float | None:
        """Return the extra CPU time per token that profiling costs, in percent, if it is known."""
        observed = self.observer.observation()
        return overhead_pct(observed.runs, observed.clock_scope)

    def count(self, role: Role) -> int:
        """Return how many processes have run in that role."""
        return sum(run.role == role for run in self.observer.runs)

    @property
    def _served(self) -> bool:
        return isinstance(self.plan, Served)

    def _timed_until(self, spent: float, at_least: int) -> None:
        done = self.count("timed")
        wanted = done + at_least
        while done < MAX_TIMED and (done < wanted or self.spent < spent):
            self.observer.timed(self._seconds(_TIMED_PART))
            done += 1
            self._tell()

    def _profiled_until(self, spent: float, profiler: Profiler, at_least: int) -> None:
        wanted = self.count("profiled") + at_least
        while True:
            done, few = self.count("profiled"), self.few_samples
            if done >= (MOST_FOR_SAMPLES if few else MAX_PROFILED):
                break
            if done >= wanted and self.spent > (2 * max(spent, 1.0) if few else spent):
                break
            self.profile_once(profiler, self._seconds(_PROFILED_PART))
            self._tell()

    def profile_once(self, profiler: Profiler, seconds: float) -> None:
        """Sample one more process: a served one for about ``seconds``, a program once."""
        profile = self._profiled(profiler, seconds)
        # The whole life of a short process may pass between two samples.
        if profile.samples:
            self.profiles.append(profile)

    def _told(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        assert self.told_paths is not None
        seen, told = map(str, self.told_paths)
        return {name: value.replace(seen, told) for name, value in environment.items()}

    @property
    def _root(self) -> str | None:
        """The function that every profile begins with; none is known of somebody's server."""
        return None if isinstance(self.plan, Endpoint) else WORKLOAD_ROOT

    @property
    def few_samples(self) -> bool:
        """Whether the samples so far name no hotspot."""
        return sum(profile.samples for profile in self.pool) < SAMPLE_FLOOR

    def _profiled(self, profiler: Profiler, seconds: float) -> Profile:
        with tempfile.TemporaryDirectory(prefix="flamegate-") as name:
            directory = Path(name)
            if isinstance(self.plan, Streamed):
                return self._profiled_program(self.plan, profiler, directory)
            # However small the budget, the least number of processes should do.
            enough_s = _ENOUGH * SAMPLE_FLOOR / MIN_PROFILED / max(profiler.rate_hz, 1)
            try:
                _, raw = self.observer.profiled(
                    max(seconds, enough_s),
                    lambda pid: profiler.attach(pid, directory),
                )
                return trim_stacks(profiler.parse(raw), self._root)
            finally:
                # However it ended, even killed: what CPython told perf lies in /tmp.
                if profiler.python_flags and self.observer.served_pid is not None:
                    jitdump.remove_jit_files(self.observer.served_pid)

    def _profiled_program(self, plan: Streamed, profiler: Profiler, directory: Path) -> Profile:
        wrapped = profiler.wrap(plan.argv, directory)
        seen = self.observer.wrapped(wrapped.argv, wrapped.clean)
        profile = trim_stacks(profiler.parse(wrapped.raw, seen.stderr, seen.window_ns), None)
        covers = "process" if profile.covers == "sequence" else profile.covers
        return replace(
            profile, covers=covers, pids=(seen.pid,), started_ticks=(seen.started_ticks,)
        )

    def _seconds(self, part: float) -> float:
        return min(max(self.budget_s * part, _SECONDS[0]), _SECONDS[1])

    def _tell(self) -> None:
        timed = self.count("timed")
        processes = "1 process" if timed == 1 else f"{timed} processes"
        told = f"{processes}, {self.samples:,} samples"
        self.progress.step(self.workload.name, told, min(self.spent, 1.0))

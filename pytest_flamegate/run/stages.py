"""The values that travel through the pipeline, from a task to what was measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_flamegate.bricks.record import BrickRun, Recorded
from pytest_flamegate.child.call_counts import CountedCalls
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.git import FileChange
from pytest_flamegate.engines.base import Plan
from pytest_flamegate.gate.rule import Reason, ReportedRates
from pytest_flamegate.models.files import FileStamp
from pytest_flamegate.observe.machine import Bandwidth
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Profiler
from pytest_flamegate.profile.profilers.instructions import InstructionCount
from pytest_flamegate.receipt.baseline import Baseline
from pytest_flamegate.receipt.compose import Subject
from pytest_flamegate.receipt.types import Side

Call = Callable[[str, int], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """A measurement that is asked for: of ``call`` if it is given, else of the workload's engine.

    ``rev`` is the revision to compare with in pairs; None to measure the project alone. ``notes``
    explain to the reader of the verdict why.
    """

    workload: Workload
    call: Call | None = None
    rev: str | None = None
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedSide:
    """One side, ready to run. ``role`` is None if there is only one.

    ``subject`` is the receipt's description of it, ``workload`` how it runs: in a comparison the
    base runs in a checkout. ``moved`` are then the directory of the checkout and the
    project's own. ``count`` are its instructions, if they were counted.
    ``stamps`` are of the model's files, before anything ran. ``is_declared_elsewhere`` says that a
    file outside of the repository declares the work.
    """

    role: Side | None
    subject: Subject
    workload: Workload
    plan: Plan
    profiler: Profiler | None
    count: InstructionCount | None = None
    moved: tuple[Path, Path] | None = None
    stamps: tuple[FileStamp, ...] = ()
    is_declared_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A measurement that can begin: ``sides`` is one, or base and head.

    ``pair_counts`` are the numbers of pairs at which a comparison is judged, and ``known``
    its error rates by a calibration. ``size_alone`` says that a decided change is measured once
    more, one side after the other. ``changes`` is how the head's files differ from the base's,
    None if git cannot say. One side alone is judged by ``baseline``.
    """

    sides: tuple[PreparedSide, ...]
    budget_s: float
    show_bricks: bool = False
    baseline: Baseline | None = None
    pair_counts: tuple[int, ...] = ()
    known: ReportedRates | None = None
    size_alone: bool = False
    changes: tuple[FileChange, ...] | None = None
    notes: tuple[Reason, ...] = ()

    @property
    def head(self) -> PreparedSide:
        """The side that is judged."""
        return self.sides[-1]

    @property
    def workload(self) -> Workload:
        """The workload as it is declared."""
        return self.head.subject.workload


@dataclass(frozen=True, slots=True)
class MeasuredSide:
    """One side as it was measured.

    ``profiles`` are those that can be pooled, ``pooled`` is their sum: None if profiling is
    off. ``overhead_pct`` is the extra CPU time per token under the profiler. ``recorded`` are
    the calls of the last process whose bricks were clocked, ``calls`` those of all functions if
    they were counted. ``notes`` say, by code, what has to be known about how it was observed.
    """

    side: PreparedSide
    observation: Observation
    profiles: tuple[Profile, ...] = ()
    pooled: Profile | None = None
    overhead_pct: float | None = None
    bricks: tuple[BrickRun, ...] = ()
    recorded: Recorded | None = None
    calls: CountedCalls | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """A workload as it was measured: one side, or base and head.

    ``bandwidth`` is the machine's memory bandwidth, measured only if bricks were. ``notes`` name
    the parts that could not be measured.
    """

    prepared: Prepared
    sides: tuple[MeasuredSide, ...]
    bandwidth: Bandwidth | None = None
    notes: tuple[Reason, ...] = ()

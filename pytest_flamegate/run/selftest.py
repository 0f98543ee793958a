"""What a case is: something done, what has to happen, and what did."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.config.workload import Injection, parse_injection
from pytest_flamegate.core.errors import ToolError, UndecidedError, UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.gate import GatePolicy, MoreProcesses, Reason, Verdict, machine_id
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.receipt.artifacts import ArtifactStore
from pytest_flamegate.run.lock import machine_lock
from pytest_flamegate.run.measure import Measured, measure, planned_pair_counts
from pytest_flamegate.run.prepare import Prepared, PreparedSide, Role, prepare_side
from pytest_flamegate.run.processes import Budget, SideProcesses
from pytest_flamegate.run.publish import RunStore
from pytest_flamegate.run.seal import compose, seal
from pytest_flamegate.run.session import judge_run, wanted_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_flamegate.config.settings import Settings
    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.core.progress import Progress
    from pytest_flamegate.profile.profilers.base import Profiler
    from pytest_flamegate.run.seal import SealedSide


Need = Literal["injection", "other", "profile"]


_MOST = 0.5


def means(given: str, shown: str) -> bool:
    """Whether ``given`` (``f``, ``C.f``, ``module.f``, ``module:f``) is what a profile calls so."""
    dotted = f".{given.replace(':', '.')}"
    return dotted.endswith(f".{shown}") or f".{shown}".endswith(dotted)


def share_of(given: str, sealed: SealedSide | None) -> float | None:
    """Return the part of the time, 0 to 1, in that function and all it calls; None if unseen."""
    if sealed is None or sealed.side.profile is None:
        return None
    stacks = sealed.side.profile.stacks
    within = sum(
        samples
        for stack, samples in stacks.items()
        if any(means(given, frame.name) for frame in stack)
    )
    return within / sealed.side.profile.samples if within else None


def below(given: str, shown: str, sealed: SealedSide | None) -> bool:
    """Whether most samples of the function ``shown`` were taken in calls by the one ``given``.

    A profiler that sees native code shows the extra work where it was done: there.
    """
    if sealed is None or sealed.side.profile is None:
        return False
    stacks = sealed.side.profile.stacks
    own = {stack: n for stack, n in stacks.items() if stack[-1].name == shown}
    called = sum(n for stack, n in own.items() if any(means(given, f.name) for f in stack))
    return called > _MOST * sum(own.values())


SLOWED, OTHER = "ternary_gemv", "attention"
"""The embedded engine's two hottest functions."""
INJECTABLE = frozenset({"embedded", "python"})
BUDGET_S = 30.0
"""How long one comparison may take where nobody says."""
MORE = 2.0
"""How much more time a comparison gets that noise left undecided."""
WHOLE = 1.0
"""How much longer the whole is to take by the other function, whatever part of it that is.

In the embedded engine it comes to a third of this: a call repeated finds its data in the cache.
"""
MOST_EXTRA_PCT = 2000.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be tried: ``slowed`` gets more work; ``other`` is made faster instead.

    ``slowed`` is None where no work can be injected, ``other`` where no second function is
    known.
    """

    workload: Workload
    slowed: Injection | None
    other: str | None


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sides that were really measured; both None where too little was seen of them."""

    verdict: Verdict
    base: SealedSide | None = None
    head: SealedSide | None = None


def ask(
    workload: Workload, extra: str, frame: str | None = None, other: str | None = None
) -> Asked:
    """Return what is to be tried with ``workload``; ``extra`` is written ``25%``.

    ``UsageError``: ``E_BAD_INJECTION`` where it is no percentage above 0, or nothing says
    which function to slow; ``E_SAME_FRAME`` where the other one is the same.
    """
    if workload.engine == "embedded":
        frame = frame or SLOWED
        other = other or (OTHER if frame != OTHER else SLOWED)
    written = extra.strip().removeprefix("+").removesuffix("%")
    slowed = parse_injection(f"{frame or 'FRAME'}:+{written}%")
    if workload.engine not in INJECTABLE:
        return Asked(workload, None, None)
    if frame is None:
        raise UsageError(
            "E_BAD_INJECTION",
            f"Nothing says which function of {workload.name!r} to slow.",
            "Say --frame NAME: a function that takes much of its time, as a profile shows it.",
        )
    if other == frame:
        raise UsageError(
            "E_SAME_FRAME",
            f"{frame!r} cannot be made slower and be the other function that is made faster.",
            "Give --other another name.",
        )
    return Asked(workload, slowed, other)


@dataclass
class Bench:
    """Measures what the cases need, each once, and keeps it to itself.

    ``directory`` is a temporary one; ``profiler`` is None where ``unprofiled`` says why.
    """

    asked: Asked
    settings: Settings
    progress: Progress
    directory: Path
    profiler: Profiler | None
    unprofiled: str = ""
    machine: Mapping[str, str] = field(default_factory=read_identity)

    @cached_property
    def slowed(self) -> Compared:
        """The same code twice, with more work on the head's side."""
        return self._compared("slowed", head=self.asked.slowed)

    @cached_property
    def same(self) -> Compared:
        """The same code twice. Undecided is an answer here."""
        return self._compared("same code", again=False)

    @cached_property
    def faster(self) -> Compared:
        """The same code twice, with more work in another function on the base's side."""
        return self._compared("another faster", base=self.other)

    @cached_property
    def other(self) -> Injection | None:
        """The work that makes the other function slower at the base: enough to be seen."""
        if self.asked.other is None or self.asked.slowed is None:
            return None
        share = share_of(self.asked.other, self.slowed.base)
        extra_pct = 100.0 * WHOLE / share if share else 4.0 * self.asked.slowed.extra_pct
        extra_pct = min(max(extra_pct, self.asked.slowed.extra_pct), MOST_EXTRA_PCT)
        return Injection(self.asked.other, float(round(extra_pct)))

    @property
    def pair(self) -> tuple[SealedSide, SealedSide]:
        """Two sides, honestly measured, to be spoiled.

        ``UndecidedError`` ``E_NOTHING_MEASURED`` where too little was seen for that.
        """
        found = self.slowed if self.asked.slowed else self.same
        if found.base is None or found.head is None:
            raise UndecidedError(
                "E_NOTHING_MEASURED",
                f"Too little was measured to spoil it. {found.verdict.reasons[0].message}",
                "Give it more time (--budget sets the seconds).",
            )
        return found.base, found.head

    def store(self, name: str) -> RunStore:
        """Return an empty store of runs, in a directory of its own."""
        return RunStore(ArtifactStore(self.directory / name), machine_id(self.machine))

    def lacking(self, need: Need) -> str | None:
        """Return why ``need`` is not there; None where it is."""
        if need == "profile":
            return None if self.profiler else self.unprofiled
        if self.asked.slowed is None:
            return (
                "E_BAD_INJECTION: Work can be injected into the embedded engine and into "
                f"workloads with a Python target only, and {self.asked.workload.name!r} is neither."
            )
        if need == "other" and self.asked.other is None:
            return "No second function is known. Say --other NAME to try it."
        return None

    @property
    def words(self) -> Mapping[str, str]:
        """What the words of a case may name."""
        slowed = self.asked.slowed
        other = self.other if "slowed" in vars(self) else None
        return {
            "frame": slowed.frame if slowed else "a function",
            "extra": f"+{slowed.extra_pct:g} %" if slowed else "more work",
            "another": f"{other.frame} (base: +{other.extra_pct:g} %)"
            if other
            else "another function",
        }

    def side(self, role: Role, injection: Injection | None) -> PreparedSide:
        """Return one side of a comparison, not yet measured."""
        workload = replace(self.asked.workload, injection=injection)
        return prepare_side(workload, self.machine, self.profiler, role=role)

    def warm_up(self) -> None:
        """Start the workload with each injection once: a misspelt name is reported at once."""
        slowed = self.asked.slowed
        if slowed is None:
            return
        tried = [slowed]
        if self.asked.other is not None:
            tried.append(Injection(self.asked.other, slowed.extra_pct))
        for injection in tried:
            SideProcesses(self.side("head", injection), Budget(1.0)).observer.warm_up()

    def _compared(
        self,
        label: str,
        base: Injection | None = None,
        head: Injection | None = None,
        *,
        again: bool = True,
    ) -> Compared:
        budget_s = self.settings.compare_budget_s
        found = self._once(label, base, head, budget_s)
        if again and found.verdict.verdict == "inconclusive":
            found = self._once(f"{label}, again", base, head, MORE * budget_s)
        return found

    def _once(
        self, label: str, base: Injection | None, head: Injection | None, budget_s: float
    ) -> Compared:
        policy = GatePolicy(self.asked.workload.thresholds, self.settings.share_drift)
        sides = self.side("base", base), self.side("head", head)
        prepared = Prepared(sides, budget_s, pair_counts=planned_pair_counts(budget_s))

        def until(measured: Measured) -> MoreProcesses:
            return wanted_processes(judge_run(compose(measured), policy))

        self.progress.begin(label)
        try:
            sealed = seal(compose(measure(prepared, until, self.progress)))
        except UndecidedError as error:
            reasons = [Reason.from_error(error)]
            return Compared(Verdict.unjudged("inconclusive", reasons, grade="SELF_REPORTED"))
        self.progress.end()
        return Compared(judge_run(sealed, policy), sealed.base, sealed.head)


@contextmanager
def open_bench(
    asked: Asked,
    settings: Settings,
    progress: Progress,
    profiler: Callable[[Workload], Profiler | None],
) -> Iterator[Bench]:
    """Hold the machine and a temporary directory, build the workload, and try whether it starts.

    ``profiler`` chooses one. Where the machine has none that can be used, what needs none is
    tried; one that was asked for by name has to be there.
    """
    with (
        machine_lock(progress.announce),
        tempfile.TemporaryDirectory(prefix="flamegate-selftest-") as name,
    ):
        engine(asked.workload.engine).validate(asked.workload)
        build_workload(asked.workload)
        unprofiled = "Profiling is off, so nothing says where time went."
        chosen = None
        try:
            chosen = profiler(asked.workload)
        except ToolError as error:
            if settings.profiler != "auto":
                raise
            unprofiled = str(error)
        made = Bench(asked, settings, progress, Path(name), chosen, unprofiled)
        made.warm_up()
        yield made

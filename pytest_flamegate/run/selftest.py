"""The bench of the self test: it measures each comparison that the cases need once."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import Injection, Workload, parse_injection
from pytest_flamegate.core.errors import ToolError, UndecidedError, UsageError
from pytest_flamegate.core.locks import machine_lock
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.gate import GatePolicy, Helper, Reason, Verdict
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.profile.profilers.base import Profiler
from pytest_flamegate.receipt.types import Side
from pytest_flamegate.run.measure import measure
from pytest_flamegate.run.prepare import INJECTABLE, injection_error, prepare_side
from pytest_flamegate.run.processes import Budget, SideProcesses, plan_pair_counts
from pytest_flamegate.run.seal import ComposedSide, compose, seal
from pytest_flamegate.run.session import judge_run, wanted_processes
from pytest_flamegate.run.stages import Measured, Prepared, PreparedSide

Need = Literal["injection", "other", "profile"]

SLOWED, OTHER = "ternary_gemv", "attention"
"""The embedded engine's two hottest functions."""
BUDGET_S = 30.0
"""Seconds for one comparison by default."""
MORE = 2.0
"""How much more time a comparison gets that noise left undecided."""
WHOLE = 1.0
"""How much longer the whole takes by the work that is injected into the other function.

In the embedded engine it comes to a third of this: a call repeated finds its data in the cache.
"""
MAX_EXTRA_PCT = 2000.0


def is_same_function(given: str, shown: str) -> bool:
    """Whether a profile shows ``given`` (``f``, ``C.f``, ``module.f``, ``module:f``) as this."""
    dotted = f".{given.replace(':', '.')}"
    return dotted.endswith(f".{shown}") or f".{shown}".endswith(dotted)


def find_share(given: str, side: ComposedSide | None) -> float | None:
    """Return the part of the time, 0 to 1, in a function and its callees; None if unseen."""
    profile = side.profile if side is not None else None
    if profile is None:
        return None
    within = sum(
        samples
        for stack, samples in profile.stacks.items()
        if any(is_same_function(given, frame.name) for frame in stack)
    )
    return within / profile.samples if within else None


def is_called_by(given: str, shown: str, side: ComposedSide | None) -> bool:
    """Whether most samples of the function ``shown`` were taken in calls by ``given``.

    A profiler that sees native code shows the extra work there.
    """
    if side is None or side.profile is None:
        return False
    stacks = side.profile.stacks
    own = {stack: n for stack, n in stacks.items() if stack[-1].name == shown}
    called = sum(
        n for stack, n in own.items() if any(is_same_function(given, f.name) for f in stack)
    )
    return called > sum(own.values()) / 2


@dataclass(frozen=True, slots=True)
class SelftestPlan:
    """``slowed`` gets more work, ``other`` less; None if that is impossible or unknown."""

    workload: Workload
    slowed: Injection | None
    other: str | None


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sides as they were measured; both None if there were too few samples."""

    verdict: Verdict
    base: ComposedSide | None = None
    head: ComposedSide | None = None


def make_plan(
    workload: Workload, extra: str, frame: str | None = None, other: str | None = None
) -> SelftestPlan:
    """Return the plan for ``workload``; ``extra`` is written ``25%``.

    Raises:
        UsageError: ``E_BAD_INJECTION`` for a bad percentage, or if no function to slow is named;
            ``E_SAME_FRAME`` if both functions are the same.
    """
    if workload.engine == "embedded":
        frame = frame or SLOWED
        other = other or (OTHER if frame != OTHER else SLOWED)
    written = extra.strip().removeprefix("+").removesuffix("%")
    slowed = parse_injection(f"{frame or 'FRAME'}:+{written}%")
    if workload.engine not in INJECTABLE:
        return SelftestPlan(workload, None, None)
    if frame is None:
        raise UsageError(
            "E_BAD_INJECTION",
            f"No function of {workload.name!r} to slow is named.",
            "Say --frame NAME: a function that takes much of its time, as a profile shows it.",
        )
    if other == frame:
        raise UsageError(
            "E_SAME_FRAME",
            f"{frame!r} cannot be made slower and be the other function that is made faster.",
            "Give --other another name.",
        )
    return SelftestPlan(workload, slowed, other)


@dataclass
class Bench:
    """Measures each comparison of the cases once; ``unprofiled`` says why without profiler."""

    plan: SelftestPlan
    settings: Settings
    progress: Progress
    profiler: Profiler | None
    unprofiled: str = ""
    machine: Mapping[str, str] = field(default_factory=read_identity)

    @cached_property
    def slowed(self) -> Compared:
        """The same code twice, with more work on the head's side."""
        return self._compared("slowed", head=self.plan.slowed)

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
        slowed = self.plan.slowed
        if self.plan.other is None or slowed is None:
            return None
        share = find_share(self.plan.other, self.slowed.base)
        extra_pct = 100.0 * WHOLE / share if share else 4.0 * slowed.extra_pct
        extra_pct = min(max(extra_pct, slowed.extra_pct), MAX_EXTRA_PCT)
        return Injection(self.plan.other, float(round(extra_pct)))

    def why_unavailable(self, need: Need) -> str | None:
        """Return why ``need`` is not there; None if it is."""
        if need == "profile":
            return None if self.profiler else self.unprofiled
        if self.plan.slowed is None:
            error = injection_error(self.plan.workload)
            return f"{error.code}: {error.problem}"
        if need == "other" and self.plan.other is None:
            return "No second function is known. Say --other NAME to try it."
        return None

    @property
    def case_texts(self) -> Mapping[str, str]:
        """The values of the names in the texts of a case."""
        slowed = self.plan.slowed
        other = self.other if "slowed" in vars(self) else None
        another = f"{other.frame} (base: +{other.extra_pct:g} %)" if other else "another function"
        return {
            "frame": slowed.frame if slowed else "a function",
            "extra": f"+{slowed.extra_pct:g} %" if slowed else "more work",
            "another": another,
        }

    def side(self, role: Side, injection: Injection | None) -> PreparedSide:
        """Return one side of a comparison, not yet measured."""
        workload = replace(self.plan.workload, injection=injection)
        return prepare_side(workload, self.machine, self.profiler, role=role)

    def warm_up(self) -> None:
        """Start the workload with each injection once: a misspelt name is reported first."""
        slowed = self.plan.slowed
        if slowed is None:
            return
        frames = [slowed.frame, *filter(None, [self.plan.other])]
        for frame in frames:
            side = self.side("head", Injection(frame, slowed.extra_pct))
            SideProcesses(side, Budget(1.0)).observer.warm_up()

    def _compared(
        self,
        label: str,
        base: Injection | None = None,
        head: Injection | None = None,
        *,
        again: bool = True,
    ) -> Compared:
        budget_s = self.settings.budget_s or BUDGET_S
        found = self._once(label, base, head, budget_s)
        if again and found.verdict.verdict == "inconclusive":
            return self._once(f"{label}, again", base, head, MORE * budget_s)
        return found

    def _once(
        self, label: str, base: Injection | None, head: Injection | None, budget_s: float
    ) -> Compared:
        policy = GatePolicy(self.plan.workload.thresholds, self.settings.share_drift)
        sides = self.side("base", base), self.side("head", head)
        prepared = Prepared(sides, budget_s, pair_counts=plan_pair_counts(budget_s))

        def until(measured: Measured) -> tuple[Helper, ...]:
            return wanted_processes(judge_run(compose(measured), policy))

        self.progress.begin(label)
        try:
            sealed = seal(compose(measure(prepared, until, self.progress)))
        except UndecidedError as error:
            reasons = (Reason.from_error(error),)
            return Compared(Verdict("inconclusive", reasons, grade="SELF_REPORTED"))
        self.progress.end()
        return Compared(judge_run(sealed, policy), sealed.base, sealed.head)


@contextmanager
def open_bench(
    plan: SelftestPlan,
    settings: Settings,
    progress: Progress,
    profiler: Callable[[Workload], Profiler | None],
) -> Iterator[Bench]:
    """Hold the machine, build the workload and start it once.

    ``profiler`` chooses one. Without one that works, the cases that need none are tried; one
    that is named must work.
    """
    with machine_lock(progress.announce):
        engine(plan.workload.engine).validate(plan.workload)
        build_workload(plan.workload)
        unprofiled, chosen = "Profiling is off, so no profile says where time went.", None
        try:
            chosen = profiler(plan.workload)
        except ToolError as error:
            if settings.profiler != "auto":
                raise
            unprofiled = str(error)
        bench = Bench(plan, settings, progress, chosen, unprofiled)
        bench.warm_up()
        yield bench

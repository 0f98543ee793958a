"""The bench of the self test: it measures each comparison that the cases need once."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Injection, Workload, parse_injection
from pytest_flamegate.core.errors import ToolError, UndecidedError, UsageError
from pytest_flamegate.core.locks import machine_lock
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.engines import engine
from pytest_flamegate.gate.analyses import plan_pair_counts
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.judge import SHARE_ANALYSES, GatePolicy
from pytest_flamegate.gate.rule import FALSE_ALARM_RATE, ProcessKind, Reason
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.base import Profiler
from pytest_flamegate.run.measure import measure
from pytest_flamegate.run.prepare import INJECTABLE, injection_error, prepare_side
from pytest_flamegate.run.processes import SideProcesses
from pytest_flamegate.run.schedule import Budget
from pytest_flamegate.run.seal import ComposedRun, compose, seal
from pytest_flamegate.run.session import judge_run, wanted_processes
from pytest_flamegate.run.stages import Measured, Prepared

Need = Literal["injection", "profile"]

SLOWED = "ternary_gemv"
"""The embedded engine's hottest function."""
BUDGET_S = 36.0
"""Seconds for one comparison by default."""
SLOWED_PART, SAME_PART = 1.5, 2 / 3
"""Parts of that time. The share of the slowed function needs the most profiles, and the
comparison ends once it certainly moved; the same code needs no more than a gate does."""
MORE = 2.0
"""How much more time a comparison gets that noise left undecided."""
SMALL = 1.5
"""How many times the threshold the small slowdown is."""


def is_same_function(given: str, shown: str) -> bool:
    """Whether a profile shows ``given`` (``f``, ``C.f``, ``module.f``, ``module:f``) as this."""
    dotted = f".{given.replace(':', '.')}"
    return dotted.endswith(f".{shown}") or f".{shown}".endswith(dotted)


def find_share(given: str, profile: Profile | None, leaf: str | None = None) -> float | None:
    """Return the part of the samples, 0 to 1, in a function and its callees; None if unseen.

    With ``leaf``, only the samples of that function count.
    """
    found = all_samples = 0
    for stack, samples in profile.stacks.items() if profile else ():
        if leaf in (None, stack[-1].name):
            all_samples += samples
            found += samples * any(is_same_function(given, frame.name) for frame in stack)
    return found / all_samples if found else None


def find_blamed(verdict: Verdict) -> tuple[str, ...]:
    """Return the functions that a verdict fails, or reports as costing more or less."""
    return tuple(
        spot.name
        for spot in verdict.hotspots
        if spot.decision == "regressed" or spot.finding in ("costs_more", "costs_less")
    )


def is_certain(spot: HotspotChange) -> bool:
    """Whether the share of a function certainly moved, by the rule of the gate."""
    return spot.share.p_adjusted <= FALSE_ALARM_RATE / SHARE_ANALYSES


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison as it was measured; ``run`` is None if there were too few samples.

    ``first`` is the verdict that made it be measured again, None if it was measured once.
    """

    verdict: Verdict
    run: ComposedRun | None = None
    first: Verdict | None = None


def choose_injection(workload: Workload, extra: str, frame: str | None = None) -> Injection | None:
    """Return the extra work that the cases inject; None if the engine allows none.

    ``extra`` is written ``25%``. By default ``frame`` is the embedded engine's hottest function.
    Raises ``UsageError`` ``E_BAD_INJECTION`` for a bad percentage, or if no function is named.
    """
    if workload.engine == "embedded":
        frame = frame or SLOWED
    written = extra.strip().removeprefix("+").removesuffix("%")
    injection = parse_injection(f"{frame or 'FRAME'}:+{written}%")
    if workload.engine not in INJECTABLE:
        return None
    if frame is None:
        raise UsageError(
            "E_BAD_INJECTION",
            f"No function of {workload.name!r} to slow is named.",
            "Say --frame NAME: a function that takes much of its time, as a profile shows it.",
        )
    return injection


@dataclass
class Bench:
    """Measures each comparison of the cases once, of ``workload`` with itself.

    ``injection`` is the extra work of the slowed side, None if it is impossible. ``unprofiled``
    says why there is no profiler.
    """

    workload: Workload
    injection: Injection | None
    settings: Settings
    progress: Progress
    profiler: Profiler | None
    unprofiled: str = ""
    machine: Mapping[str, str] = field(default_factory=read_identity)

    @cached_property
    def slowed(self) -> Compared:
        """The same code twice, with more work on the head's side."""
        return self._compare("slowed", self.injection, SLOWED_PART)

    @cached_property
    def same(self) -> Compared:
        """The same code twice. An alarm is measured again: one in a hundred is chance."""
        return self._compare("same code", None, SAME_PART)

    @cached_property
    def small(self) -> Compared:
        """The same code twice, with just enough work at the head to be past the threshold."""
        extra_pct = self.find_extra_pct(self.small_pct)
        if extra_pct is None or self.injection is None:
            raise nothing_measured("No profile says which part of the time the function takes.")
        # A repeated call finds its data in the cache and takes less time than a first one.
        part = self.slowed_pct / self.injected_pct if self.slowed_pct and self.injected_pct else 1.0
        extra_pct = math.ceil(extra_pct / min(max(part, 0.25), 1.0))
        return self._compare("small", replace(self.injection, extra_pct=extra_pct), profiled=False)

    @property
    def small_pct(self) -> float:
        """The drop of tokens per second that is just past the threshold."""
        return SMALL * self.workload.thresholds.tokens_per_second_pct

    @property
    def allowing(self) -> Thresholds:
        """Thresholds that allow twice the slowdown of a workload that is all in that function."""
        extra = self.injection.extra_pct / 100.0 if self.injection else 1.0
        return Thresholds(round(100.0 * (1.0 - (1.0 + extra) ** -2), 1), {"*": 99.0})

    @property
    def run(self) -> ComposedRun:
        """A measured comparison for a case to change; one analysis judges all of its pairs.

        Raises:
            UndecidedError: ``E_NO_SAMPLES`` if there were too few samples.
        """
        found = self.slowed if self.injection else self.same
        if found.run is None:
            raise nothing_measured(found.verdict.reasons[0].message)
        # Judged by other thresholds, an earlier analysis may decide with too few pairs for a share.
        measured = found.run.measured
        counts = (len(measured.sides[-1].observation.timed),)
        prepared = replace(measured.prepared, pair_counts=counts)
        return replace(found.run, measured=replace(measured, prepared=prepared))

    @property
    def share(self) -> float | None:
        """The part of the base's time, 0 to 1, in the function that is slowed; None if unseen."""
        base = self.slowed.run.base if self.slowed.run else None
        return find_share(self.injection.frame, base.profile) if self.injection and base else None

    @property
    def injected_pct(self) -> float | None:
        """The extra time per token, in percent, if repeated calls took as long as first ones."""
        return self.share * self.injection.extra_pct if self.share and self.injection else None

    @property
    def slowed_pct(self) -> float | None:
        """The extra time per token that was measured, in percent; None without a rate."""
        rate = self.slowed.verdict.signal()
        return time_pct(rate.change_pct) if rate and rate.change_pct is not None else None

    def find_extra_pct(self, drop_pct: float) -> float | None:
        """Return how much slower the function must be for such a drop of tokens per second."""
        if not self.share or drop_pct >= 100.0:
            return None
        # x percent more of a part s changes tokens per second by a factor of 1 / (1 + s·x).
        return math.ceil(100.0 * (1.0 / (1.0 - drop_pct / 100.0) - 1.0) / self.share)

    def is_slowed(self, name: str, profile: Profile | None) -> bool:
        """Whether a function is the slowed one, or in most samples one that it calls.

        A profiler that sees native code shows the extra work there.
        """
        frame = self.injection.frame if self.injection else ""
        return is_same_function(frame, name) or (find_share(frame, profile, name) or 0.0) > 0.5

    def find_slowed(self, verdict: Verdict, profile: Profile | None) -> HotspotChange | None:
        """Return the change of the slowed function; None if it is no hotspot."""
        return next((spot for spot in verdict.hotspots if self.is_slowed(spot.name, profile)), None)

    def judge(self, run: ComposedRun, allowed: Thresholds | None = None) -> Verdict:
        """Judge a run, by other thresholds than the workload's own if they are given."""
        return judge_run(run, GatePolicy(allowed or self.workload.thresholds))

    def why_unavailable(self, need: Need) -> str | None:
        """Return why ``need`` is not there; None if it is."""
        if need == "profile":
            return None if self.profiler else self.unprofiled
        if self.injection is None:
            error = injection_error(self.workload)
            return f"{error.code}: {error.problem}"
        return None

    @property
    def case_texts(self) -> Mapping[str, str]:
        """The values of the names in the texts of a case."""
        injection = self.injection
        return {
            "frame": injection.frame if injection else "a function",
            "extra": f"+{injection.extra_pct:g} %" if injection else "more work",
            "allowed": f"{self.allowing.tokens_per_second_pct:g} %",
            "small": f"{self.small_pct:g} %",
        }

    def _compare(
        self, label: str, head: Injection | None, part: float = 1.0, *, profiled: bool = True
    ) -> Compared:
        budget_s = part * (self.settings.budget_s or BUDGET_S)
        found = self._compare_once(label, head, budget_s, profiled)
        first = found.verdict
        is_alarm = head is None and (first.kind.is_change or find_blamed(first))
        if first.verdict != "inconclusive" and not is_alarm:
            return found
        budget_s *= 1.0 if is_alarm else MORE
        return replace(self._compare_once(f"{label}, again", head, budget_s, profiled), first=first)

    def _compare_once(
        self, label: str, head: Injection | None, budget_s: float, profiled: bool
    ) -> Compared:
        same, profiler = self.workload, self.profiler if profiled else None
        changed = replace(same, injection=head)
        sides = (
            prepare_side(same, self.machine, profiler, role="base"),
            prepare_side(changed, self.machine, profiler, role="head"),
        )
        prepared = Prepared(sides, budget_s, pair_counts=plan_pair_counts(budget_s))

        def until(measured: Measured) -> tuple[ProcessKind, ...]:
            composed = compose(measured)
            verdict = self.judge(composed)
            spot = self.find_slowed(verdict, composed.head.profile) if head else None
            is_open = spot is not None and not is_certain(spot)
            return ("profiled",) if is_open else wanted_processes(verdict, same.thresholds)

        self.progress.begin(label)
        try:
            sealed = seal(compose(measure(prepared, until, self.progress)))
        except UndecidedError as error:
            reasons = (Reason.from_error(error),)
            return Compared(Verdict("inconclusive", reasons, grade="SELF_REPORTED"))
        self.progress.end()
        return Compared(self.judge(sealed), sealed)


def time_pct(change_pct: float) -> float:
    """Convert a change of tokens per second to one of the time per token, both in percent."""
    return 100.0 * (1.0 / (1.0 + change_pct / 100.0) - 1.0)


def nothing_measured(problem: str) -> UndecidedError:
    """Build the error of a case that needs a measurement that is not there."""
    return UndecidedError("E_NO_SAMPLES", problem)


@contextmanager
def open_bench(
    workload: Workload,
    injection: Injection | None,
    settings: Settings,
    progress: Progress,
    profiler: Callable[[Workload], Profiler | None],
) -> Iterator[Bench]:
    """Hold the machine, build the workload, and start it once: errors of it are reported first.

    ``profiler`` chooses one. Without one that works, the cases that need none are tried; one
    that is named must work.
    """
    with machine_lock(progress.announce):
        engine(workload.engine).validate(workload)
        build_workload(workload)
        unprofiled, chosen = "Profiling is off, so no profile says where time went.", None
        try:
            chosen = profiler(workload)
        except ToolError as error:
            if settings.profiler != "auto":
                raise
            unprofiled = str(error)
        bench = Bench(workload, injection, settings, progress, chosen, unprofiled)
        slowed = replace(workload, injection=injection)
        side = prepare_side(slowed, bench.machine, chosen, role="head")
        SideProcesses(side, Budget(1.0)).observer.warm_up()
        yield bench

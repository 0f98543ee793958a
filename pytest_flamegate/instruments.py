"""What measures: the profiler that suits a workload, and the counter of instructions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, system_errors
from pytest_flamegate.gate import Reason
from pytest_flamegate.gate.instructions import INSTRUCTIONS_PER_TOKEN
from pytest_flamegate.profile import Setup, choose, passed_over
from pytest_flamegate.profile.instructions import count
from pytest_flamegate.receipt.types import Metric
from pytest_flamegate.report import preamble
from pytest_flamegate.workload import determinism
from pytest_flamegate.workload.engines import engine
from pytest_flamegate.workload.engines.base import Choosy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_flamegate.profile import Probe, Profiler
    from pytest_flamegate.profile.instructions import InstructionCount
    from pytest_flamegate.workload.engines.base import Plan
    from pytest_flamegate.workload.spec import Sampling, Workload

COUNTER = "callgrind"
"""The name that asks for a count of instructions, beside a profiler that samples."""
FALLBACK = "W_PROFILER_FALLBACK"
NOT_COUNTED = "W_NOT_COUNTED"
COMPARING_HZ = {"py-spy": 200}
"""Rates for comparisons: what they cost is the same on both sides, and samples are what lacks."""
FORMULAS = {"decode": "callgrind-(n-1)-tokens", "process": "callgrind-process/tokens"}


@dataclass
class Instruments:
    """What ``requested`` (a profiler's name) means for each workload of the project ``root``.

    ``counts`` asks for instructions too, where they can be counted.
    """

    requested: str
    root: Path
    counts: bool = False
    _uncounted: dict[str, FlamegateError] = field(default_factory=dict)
    _profilers: dict[tuple[bool, Path, bool, Sampling], Profiler | None] = field(
        default_factory=dict
    )
    _probes: dict[Sampling, dict[str, Probe]] = field(default_factory=dict)

    def profiler(
        self, workload: Workload, project: Path | None = None, *, comparing: bool = False
    ) -> Profiler | None:
        """Return the profiler that suits the workload; None where profiling is off.

        ``project`` is the tree that the workload's code lies in, where it is not the root.
        ``ToolError`` with each profiler's own words where none can be used, with the engine's
        where this one sees nothing of it.
        """
        asked, runs = workload.sampling, engine(workload.engine)
        key = runs.sees_python(workload), project or self.root, comparing, asked
        if key not in self._profilers:
            setup = Setup(
                python_engine=key[0],
                project=key[1],
                rate_hz=asked.rate_hz,
                call_graph=asked.call_graph,
                native=bool(asked.native),
                nonblocking=bool(asked.nonblocking),
            )
            name = "auto" if self.requested == COUNTER else self.requested
            probes = self._probes.setdefault(asked, {})
            chosen = choose(name, setup, probes)
            # Native stacks are too dear to be read faster, and a rate asked for is that rate.
            free = asked.rate_hz is None and not asked.native
            if comparing and free and chosen.name in COMPARING_HZ:
                faster = replace(setup, rate_hz=COMPARING_HZ[chosen.name])
                chosen = choose(chosen.name, faster, probes)
            self._profilers[key] = None if chosen.name == "none" else chosen
        found = self._profilers[key]
        if found is not None and isinstance(runs, Choosy):
            runs.check_profiler(workload, found.name)
        return found

    def counted(self, plan: Plan, workload: Workload) -> InstructionCount | None:
        """Return the instructions of the workload; None where they were not asked for.

        Raises where the workload cannot be counted and the counter was asked for by name.
        An extra that cannot be had is missing, and ``warnings`` says so.
        """
        if self.requested != COUNTER and not self.counts:
            return None
        try:
            with system_errors():
                return count(plan, workload, determinism.environment(workload))
        except FlamegateError as error:
            if self.requested == COUNTER:
                raise
            self._uncounted[workload.name] = error
            return None

    def warnings(self, workload: Workload) -> tuple[Reason, ...]:
        """Return what should have measured the workload and could not, once it was measured."""
        told = [Reason(FALLBACK, words) for words in self._passed_over(workload)]
        if error := self._uncounted.get(workload.name):
            why = f"Instructions were not counted: {error.code}: {error.what} {error.todo}"
            told.append(Reason(NOT_COUNTED, why))
        return tuple(told)

    def _passed_over(self, workload: Workload) -> list[str]:
        if self.requested not in ("auto", COUNTER):
            return []
        profiler = self.profiler(workload)
        setup = Setup(
            python_engine=engine(workload.engine).sees_python(workload), project=self.root
        )
        return (
            []
            if profiler is None
            else passed_over(profiler, setup, self._probes[workload.sampling])
        )

    def preamble(self, workloads: Iterable[Workload], machine: Mapping[str, str]) -> str:
        """Return the line that says what measures, and where."""
        names: list[str] = []
        notes: list[str] = []
        for workload in workloads:
            try:
                with system_errors():
                    profiler = self.profiler(workload)
            except FlamegateError as error:
                names.append("no profiler")
                notes.append(f"{error.code}: {error.what}")
                break
            if profiler is None:
                names.append("profiling off")
                break
            probe = self._probes[workload.sampling][profiler.name]
            names.append(f"{probe.profiler} {probe.version}")
            notes += [*probe.notes, *self._passed_over(workload)]
        return preamble(
            profiler=", ".join(dict.fromkeys(names)),
            note="; ".join(dict.fromkeys(notes)) or None,
            cpu=machine["cpu_model"],
            cores=int(machine["cpu_cores"]),
            noise_pct=None,
        )


def counted_metrics(found: InstructionCount | None) -> tuple[Metric, ...]:
    """Return what a count says of each token, as the evidence holds it."""
    if found is None:
        return ()
    return (
        Metric(
            name=INSTRUCTIONS_PER_TOKEN,
            value=found.per_token,
            formula=FORMULAS[found.profile.covers],
            unit="instructions",
            direction="lower_is_better",
            clock="instructions",
            samples=found.tokens[1] - found.tokens[0],
            provenance="counted",
        ),
    )

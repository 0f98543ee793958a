"""What measures: the profiler that suits a workload, and the counter of instructions."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Choosy, Served
from pytest_flamegate.engines.figures import report
from pytest_flamegate.gate import Reason
from pytest_flamegate.gate.ungated import INSTRUCTIONS_PER_TOKEN
from pytest_flamegate.observe import environment
from pytest_flamegate.profile.formats.registry import read_file, unpack
from pytest_flamegate.profile.formats.traces import (
    count_onnx_kernels,
    count_torch_kernels,
    is_onnx_trace,
    is_torch_trace,
)
from pytest_flamegate.profile.profilers.base import Setup
from pytest_flamegate.profile.profilers.choose import choose_profiler, explain_fallbacks
from pytest_flamegate.profile.profilers.instructions import count_instructions
from pytest_flamegate.receipt.types import Metric
from pytest_flamegate.report import preamble

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_flamegate.config.workload import Sampling, Workload
    from pytest_flamegate.engines.base import Plan
    from pytest_flamegate.engines.figures import Report
    from pytest_flamegate.observe.observer import Observer
    from pytest_flamegate.profile.formats.traces import KernelCounts
    from pytest_flamegate.profile.profilers.base import Probe, Profiler
    from pytest_flamegate.profile.profilers.instructions import InstructionCount


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
            chosen = choose_profiler(name, setup, probes)
            # Native stacks are too dear to be read faster, and a rate asked for is that rate.
            free = asked.rate_hz is None and not asked.native
            if comparing and free and chosen.name in COMPARING_HZ:
                faster = replace(setup, rate_hz=COMPARING_HZ[chosen.name])
                chosen = choose_profiler(chosen.name, faster, probes)
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
                return count_instructions(plan, workload, environment.environment(workload))
        except FlamegateError as error:
            if self.requested == COUNTER:
                raise
            self._uncounted[workload.name] = error
            return None

    def warnings(self, workload: Workload) -> tuple[Reason, ...]:
        """Return what should have measured the workload and could not, once it was measured."""
        told = [Reason(FALLBACK, words) for words in self._passed_over(workload)]
        if error := self._uncounted.get(workload.name):
            why = f"Instructions were not counted: {error.code}: {error.problem} {error.remedy}"
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
            else explain_fallbacks(profiler, setup, self._probes[workload.sampling])
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
                notes.append(f"{error.code}: {error.problem}")
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


OPTION = "kernel_trace"
_MOST_FILES = 64


def trace_kernels(observer: Observer) -> tuple[Report, ...]:
    """Run the workload once more where it asks for it; return what its trace says of kernels.

    The run is kept with the others, and nothing is timed in it. Raises ``ToolError``
    ``E_NO_KERNEL_TRACE``, and ``ReceiptError`` ``E_TRACE`` for a trace that is malformed.
    """
    by = observer.workload.options.get(OPTION)
    if by is None or not isinstance(observer.plan, Served):
        return ()
    with tempfile.TemporaryDirectory(prefix="flamegate-") as name:
        return observer.traced({OPTION: [by, name]}, lambda: read_traces(Path(name)))


def read_traces(directory: Path) -> tuple[Report, ...]:
    """Return what the traces in ``directory`` say, one report for each source.

    Raises ``ToolError`` ``E_NO_KERNEL_TRACE`` where no file there tells of a kernel.
    """
    told: dict[str, dict[str, int]] = {}
    files = sorted(path for path in directory.rglob("*.json*") if path.is_file())
    for path in files[:_MOST_FILES]:
        for kernels in _kernels(unpack(read_file(path))):
            known = told.setdefault(kernels.source, {})
            for name, calls in kernels.counts.items():
                known[name] = known.get(name, 0) + calls
    if not told:
        raise ToolError(
            "E_NO_KERNEL_TRACE",
            f"The run that was to tell of its kernels left {len(files)} traces, and no kernel "
            "in them.",
            "Where FLAMEGATE_KERNEL_TRACE names a directory, have the target write a trace of "
            "torch.profiler or onnxruntime there; or leave kernel_trace out.",
        )
    return tuple(report(source, kernels=counts) for source, counts in told.items())


def _kernels(data: bytes) -> tuple[KernelCounts, ...]:
    if is_torch_trace(data):
        return count_torch_kernels(data)
    return count_onnx_kernels(data) if is_onnx_trace(data) else ()

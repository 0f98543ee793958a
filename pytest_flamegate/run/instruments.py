"""The profiler that suits a workload, the counter of instructions, and traces of kernels."""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_flamegate.config.options import COUNTER
from pytest_flamegate.config.workload import Sampling, Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError, system_errors
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Plan, Served
from pytest_flamegate.engines.figures import Report, make_report
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.ungated import INSTRUCTIONS_PER_TOKEN
from pytest_flamegate.observe import engine_process
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.scratch import scratch_prefix
from pytest_flamegate.profile.formats import read_file, traces, unpack
from pytest_flamegate.profile.profilers import choose_profiler, explain_fallbacks
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.instructions import InstructionCount, count_instructions
from pytest_flamegate.receipt.types import Metric
from pytest_flamegate.report.text import plural, visible

FORMULAS = {"decode": "callgrind-(n-1)-tokens", "process": "callgrind-process/tokens"}
TRACE_OPTION = "kernel_trace"
_MAX_TRACE_FILES = 64


@dataclass
class Instruments:
    """The profilers for the workloads of the project ``root``, each chosen once.

    ``requested`` is a profiler's name, ``auto`` or ``none``. ``counts``: instructions are counted
    too if they can be.
    """

    requested: str
    root: Path
    counts: bool = False
    _count_errors: dict[str, FlamegateError] = field(default_factory=dict)
    _chosen: dict[Setup, Profiler | None] = field(default_factory=dict)
    _probes: dict[Sampling, dict[str, Probe]] = field(default_factory=dict)

    def profiler(
        self, workload: Workload, project: Path | None = None, *, comparing: bool = False
    ) -> Profiler | None:
        """Return the profiler that suits the workload; None if profiling is off.

        ``project`` is the tree that holds the workload's code, if it is not the root. More samples
        are taken if two sides are ``comparing``.

        Raises:
            ToolError: No profiler can be used, or this one cannot observe the engine.
        """
        found = self.choose_profiler(workload, project, comparing=comparing)
        if found is not None:
            engine(workload.engine).check_profiler(workload, found.name)
        return found

    def choose_profiler(
        self, workload: Workload, project: Path | None = None, *, comparing: bool = False
    ) -> Profiler | None:
        """Return the profiler without the engine's own check."""
        setup = self._setup(workload, project or self.root, comparing=comparing)
        if setup not in self._chosen:
            name = "auto" if self.requested == COUNTER else self.requested
            probes = self._probes.setdefault(workload.sampling, {})
            self._chosen[setup] = choose_profiler(name, setup, probes)
        return self._chosen[setup]

    def count(self, plan: Plan, workload: Workload) -> InstructionCount | None:
        """Return the instructions of the workload; None if they were not asked for.

        An error is raised only if the counter was asked for by name; else ``warnings`` names it.
        """
        if self.requested != COUNTER and not self.counts:
            return None
        try:
            with system_errors():
                return count_instructions(plan, workload, engine_process.make_environment(workload))
        except FlamegateError as error:
            if self.requested == COUNTER:
                raise
            self._count_errors[workload.name] = error
            return None

    def warnings(self, workload: Workload) -> tuple[Reason, ...]:
        """Return which profilers could not be used, and why instructions were not counted."""
        found = [Reason("W_PROFILER_FALLBACK", each) for each in self._fallbacks(workload)]
        if error := self._count_errors.get(workload.name):
            message = f"Instructions were not counted: {error}"
            found.append(Reason("W_NOT_COUNTED", message))
        return tuple(found)

    def preamble(self, workloads: Iterable[Workload], machine: Mapping[str, str]) -> str:
        """Return the line that names the profilers and the machine."""
        names: list[str] = []
        notes: list[str] = []
        for workload in workloads:
            try:
                with system_errors():
                    profiler = self.profiler(workload)
            except FlamegateError as error:
                names.append(f"no profiler ({error.code})")
                continue
            if profiler is None:
                names.append("profiling off")
                break
            probe = self._probes[workload.sampling][profiler.name]
            names.append(f"{probe.profiler} {probe.version}")
            notes += [*probe.notes, *self._fallbacks(workload)]
        used = visible(", ".join(dict.fromkeys(names)))
        more = visible("; ".join(dict.fromkeys(notes)))
        cores = plural(int(machine["cpu_cores"]), "core")
        cpu = visible(machine["cpu_model"].strip()) or "unknown CPU"
        return f"flamegate: {used}{f' ({more})' if more else ''} · {cpu}, {cores}"

    def _setup(self, workload: Workload, project: Path, *, comparing: bool) -> Setup:
        sampling = workload.sampling
        return Setup(
            python_engine=engine(workload.engine).sees_python(workload),
            project=project,
            rate_hz=sampling.rate_hz,
            call_graph=sampling.call_graph,
            native=bool(sampling.native),
            nonblocking=bool(sampling.nonblocking),
            comparing=comparing,
        )

    def _fallbacks(self, workload: Workload) -> list[str]:
        if self.requested not in ("auto", COUNTER):
            return []
        profiler = self.profiler(workload)
        if profiler is None:
            return []
        setup = self._setup(workload, self.root, comparing=False)
        return explain_fallbacks(profiler, setup, self._probes[workload.sampling])


def counted_metrics(found: InstructionCount | None) -> tuple[Metric, ...]:
    """Return a count of instructions as the evidence holds it."""
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


def trace_kernels(observer: Observer) -> tuple[Report, ...]:
    """Run the workload once more, untimed, if it asks for a trace; return the kernels in it."""
    kind = observer.workload.options.get(TRACE_OPTION)
    if kind is None or not isinstance(observer.plan, Served):
        return ()
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
        return observer.run_traced({TRACE_OPTION: [kind, name]}, lambda: read_traces(Path(name)))


def read_traces(directory: Path) -> tuple[Report, ...]:
    """Return the kernels in the traces of ``directory``, one report for each source.

    Raises ``ToolError`` ``E_NO_KERNEL_TRACE`` if no file there holds a kernel, ``ReceiptError``
    ``E_TRACE`` for a malformed trace.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    files = sorted(path for path in directory.rglob("*.json*") if path.is_file())
    for path in files[:_MAX_TRACE_FILES]:
        for source, counts in traces.count_kernels(unpack(read_file(path))).items():
            found[source].update(counts)
    if not found:
        raise ToolError(
            "E_NO_KERNEL_TRACE",
            f"The run that was to trace its kernels left {len(files)} traces, and no kernel in "
            "them.",
        )
    return tuple(
        make_report(source, kernels=dict(counts.most_common())) for source, counts in found.items()
    )

"""The figures of each process that the gate judges, read from the evidence and checked."""

import math
from dataclasses import dataclass

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.statistics import mean, median
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.receipt.types import Evidence, ProcessProfile

REFERENCE_FOLLOWS = frozenset({"embedded"})
"""Engines whose ratio to the reference kernel was measured to hold still.

Others are bound by memory in other ways, wait, or run elsewhere: for them the reference is a
second opinion and no correction.
"""
MORE_TIME = "Give it more time (--flamegate-budget sets the seconds)."
"""The remedy for too few processes."""
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """One process that was timed and not profiled.

    ``log_time`` is the natural logarithm of its scheduler-adjusted seconds per token, ``log_cpu``
    that of its CPU seconds per token. ``log_time_ratio`` and ``log_cpu_ratio`` are the same over
    the seconds of the reference kernel next to each block, and equal to the first two without a
    reference. ``waiting_s_per_token`` is the part of the adjusted time that was not CPU time.
    """

    waiting_s_per_token: float
    wall_tokens_per_second: float
    reference_s: float | None
    log_time: float
    log_cpu: float
    log_time_ratio: float
    log_cpu_ratio: float
    cpu_pressure_pct: float | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """All processes of one side.

    ``reference_follows`` says that the engine was measured to gain and lose speed with the
    machine as the reference kernel does. ``unit`` is that of the rates. ``sampled_s`` is the time
    that the profiles of ``profiler`` cover, 0 if it is not known.
    """

    timed: tuple[TimedProcess, ...]
    profiled: tuple[ProcessProfile, ...]
    reference_follows: bool
    unit: str = "tokens/s"
    sampled_s: float = 0.0
    profiler: str = ""

    @property
    def quiet_tokens_per_second(self) -> float:
        """Tokens per scheduler-adjusted second: geometric mean over the processes."""
        return math.exp(-mean([process.log_time for process in self.timed]))

    @property
    def wall_tokens_per_second(self) -> float:
        """Tokens per second on the wall clock: geometric mean over the processes."""
        return math.exp(mean([math.log(process.wall_tokens_per_second) for process in self.timed]))

    @property
    def cpu_s_per_token(self) -> float:
        """CPU seconds per token: geometric mean over the processes."""
        return math.exp(mean([process.log_cpu for process in self.timed]))

    @property
    def waiting_s_per_token(self) -> float:
        """Seconds per token off the CPU (sleeps and waits): mean over the processes."""
        return mean([process.waiting_s_per_token for process in self.timed])

    @property
    def waiting_share(self) -> float:
        """The part (0 to 1) of the adjusted time that was spent off the CPU."""
        return self.waiting_s_per_token * self.quiet_tokens_per_second

    @property
    def cpu_pressure_pct(self) -> float | None:
        """Median CPU pressure of the timed processes; None if the kernel does not report it."""
        reported = [p.cpu_pressure_pct for p in self.timed if p.cpu_pressure_pct is not None]
        return median(reported) if reported else None


def read_measurement(evidence: Evidence) -> Measurement:
    """Read the figures that the gate judges from ``evidence``.

    Raises:
        UndecidedError: ``E_FEW_PROCESSES`` without a timed process, ``E_NO_TOKENS`` if a block
            has no token, ``E_NO_SAMPLES`` for an empty profile, ``E_IMPOSSIBLE_FIGURE`` for
            times and counts that cannot be.
    """
    if not evidence.timed:
        raise UndecidedError("E_FEW_PROCESSES", "No process was timed.")
    timed = tuple(_read_process(run.judged) for run in evidence.timed)
    profiled = evidence.profile.processes if evidence.profile is not None else ()
    for process in profiled:
        _check_profile(process)
    return Measurement(
        timed=timed,
        profiled=profiled,
        profiler=evidence.profile.profiler if evidence.profile is not None else "",
        reference_follows=evidence.workload.get("engine") in REFERENCE_FOLLOWS,
        sampled_s=sum(process.samples for process in profiled) / evidence.profile.rate_hz
        if evidence.profile is not None and evidence.profile.rate_hz
        else 0.0,
        unit="rounds/s" if evidence.token_source == "called:round" else "tokens/s",
    )


def _read_process(run: Run) -> TimedProcess:
    if not run.blocks or any(block.judged_tokens <= 0 for block in run.blocks):
        raise no_tokens_error(f"Process {run.pid} has a measured block without a token.")
    for block in run.blocks:
        _check_interval(block.judged, f"a block of process {run.pid}")
        if block.reference is not None:
            _check_interval(block.reference, f"the reference kernel of process {run.pid}")
    references = [block.reference.quiet_ns for block in run.blocks if block.reference is not None]
    tokens = sum(block.judged_tokens for block in run.blocks)
    quiet_ns = sum(block.judged.quiet_ns for block in run.blocks)
    cpu_ns = sum(block.judged.cpu_ns for block in run.blocks)
    wall_ns = sum(block.judged.wall_ns for block in run.blocks)
    log_time = math.log(quiet_ns / tokens / _NS_PER_S)
    log_cpu = math.log(cpu_ns / tokens / _NS_PER_S)
    log_time_ratio, log_cpu_ratio = log_time, log_cpu
    if len(references) == len(run.blocks):
        # Block by block and not of the sums: what slowed a block and the reference next to it
        # cancels only there.
        pairs = [*zip(run.blocks, references, strict=True)]
        log_time_ratio = mean(
            [math.log(each.judged.quiet_ns / each.judged_tokens / ns) for each, ns in pairs]
        )
        log_cpu_ratio = mean(
            [math.log(each.judged.cpu_ns / each.judged_tokens / ns) for each, ns in pairs]
        )
    return TimedProcess(
        waiting_s_per_token=max(0, quiet_ns - cpu_ns) / tokens / _NS_PER_S,
        wall_tokens_per_second=tokens / wall_ns * _NS_PER_S,
        reference_s=mean(references) / _NS_PER_S if references else None,
        log_time=log_time,
        log_cpu=log_cpu,
        log_time_ratio=log_time_ratio,
        log_cpu_ratio=log_cpu_ratio,
        cpu_pressure_pct=run.cpu_pressure_pct,
    )


def _check_interval(interval: Interval, place: str) -> None:
    for clock, value in (("wall", interval.wall_ns), ("CPU", interval.cpu_ns)):
        if value <= 0:
            raise impossible_figure_error(value, f"{clock} time of {place}")


def _check_profile(process: ProcessProfile) -> None:
    if process.samples == 0:
        raise UndecidedError(
            "E_NO_SAMPLES", f"The profile of process {process.pid} holds no sample."
        )
    own = sum(process.self_samples.values())
    if own > process.samples:
        raise impossible_figure_error(
            own, f"number of samples of all functions of process {process.pid}", process.samples
        )


def no_tokens_error(problem: str) -> UndecidedError:
    """Return the error ``E_NO_TOKENS``; ``problem`` names the run and the block."""
    return UndecidedError("E_NO_TOKENS", problem)


def impossible_figure_error(
    value: object, figure: str, limit: float | None = None
) -> UndecidedError:
    """Return the error ``E_IMPOSSIBLE_FIGURE`` about a value that no measurement can have."""
    most = "" if limit is None else f" and can be at most {limit}"
    return UndecidedError("E_IMPOSSIBLE_FIGURE", f"The {figure} is {value}{most}.")


def repeated_samples_error(problem: str) -> UndecidedError:
    """Return the error ``E_REPEATED_SAMPLES``: values that vary in reality are identical."""
    return UndecidedError("E_REPEATED_SAMPLES", problem)

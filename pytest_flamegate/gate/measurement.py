"""What the gate judges: the numbers of each process, taken out of the evidence and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.gate.statistics import mean, median
from pytest_flamegate.observe.observation import of_one_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.core.clocks import Interval
    from pytest_flamegate.observe.observation import Block, Run
    from pytest_flamegate.receipt.types import Evidence, ProcessProfile


REFERENCE_FOLLOWS = frozenset({"embedded"})
"""Engines for which the ratio to the reference kernel was measured to hold still.

Others are memory-bound in other ways, wait, or run elsewhere: for them the reference is
a second opinion and no correction.
"""
_NS_PER_S = 1e9
_MEASURE_AGAIN = "Measure again; if it stays, the observer's clock cannot be used on this machine."


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """One process that no profiler touched.

    ``log_time`` is the natural logarithm of its quiet seconds per token, ``log_cpu`` that of
    its CPU seconds per token. ``log_time_ratio`` and ``log_cpu_ratio`` are the same
    divided by the quiet seconds of the reference kernel beside each block: they are
    equal to the first two without a reference. ``waiting_s_per_token`` is quiet time
    that was not CPU time.
    """

    pid: int
    tokens: int
    quiet_s_per_token: float
    cpu_s_per_token: float
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
    """All processes of one side. ``receipt_tps`` is the wall rate the receipt claims.

    ``reference_follows`` says that the engine was measured to gain and lose speed with the
    machine as the reference kernel does.
    """

    timed: tuple[TimedProcess, ...]
    profiled: tuple[ProcessProfile, ...]
    receipt_tps: float | None
    reference_follows: bool
    unit: str = "tokens/s"

    @property
    def has_reference(self) -> bool:
        """Whether the reference kernel ran beside every block."""
        return self.timed[0].reference_s is not None

    @property
    def quiet_tokens_per_second(self) -> float:
        """Tokens per second on the quiet clock: geometric mean over the processes."""
        return math.exp(-mean([math.log(process.quiet_s_per_token) for process in self.timed]))

    @property
    def wall_tokens_per_second(self) -> float:
        """Tokens per second on the wall clock: geometric mean over the processes."""
        return math.exp(mean([math.log(process.wall_tokens_per_second) for process in self.timed]))

    @property
    def cpu_s_per_token(self) -> float:
        """CPU seconds per token: geometric mean over the processes."""
        return math.exp(mean([math.log(process.cpu_s_per_token) for process in self.timed]))

    @property
    def waiting_s_per_token(self) -> float:
        """Quiet seconds per token off the CPU (sleeps and waits): mean over the processes."""
        return mean([process.waiting_s_per_token for process in self.timed])

    @property
    def cpu_pressure_pct(self) -> float | None:
        """Median CPU pressure of the timed processes, None where the kernel does not tell."""
        seen = [p.cpu_pressure_pct for p in self.timed if p.cpu_pressure_pct is not None]
        return median(seen) if seen else None


def read_measurement(evidence: Evidence, receipt_tps: float | None = None) -> Measurement:
    """Take out of ``evidence`` what the gate judges.

    Raises UndecidedError: ``E_NO_PROCESSES`` and ``E_NO_TOKENS`` where nothing was
    measured, ``E_NOT_FINITE`` and ``E_NOT_POSITIVE`` for impossible times or rates,
    ``E_REFERENCE_MIXED`` where only some blocks have a reference,
    ``E_DUPLICATE_PROCESS`` where one process is counted twice, ``E_CONSTANT_SAMPLES``
    where two took the same times, ``E_NO_SAMPLES`` and ``E_SAMPLES_CONTRADICT`` for
    profiles that cannot be.
    """
    timed_runs = [run for run in evidence.runs if run.role == "timed"]
    if not timed_runs:
        raise UndecidedError(
            "E_NO_PROCESSES",
            "The evidence holds no timed process.",
            "Run the workload again and let it finish.",
        )
    if receipt_tps is not None:
        _positive(receipt_tps, "tokens_per_second of the receipt")
    _refuse_duplicates(timed_runs, windows=of_one_process(evidence.workload))
    timed = tuple(_timed_process(run) for run in timed_runs)
    if len({process.reference_s is None for process in timed}) > 1:
        raise _mixed_reference()
    profiled = evidence.profile.processes if evidence.profile is not None else ()
    for process in profiled:
        _check_profile(process)
    return Measurement(
        timed=timed,
        profiled=profiled,
        receipt_tps=receipt_tps,
        reference_follows=evidence.workload.get("engine") in REFERENCE_FOLLOWS,
        unit="rounds/s" if evidence.token_source == "called:round" else "tokens/s",
    )


def _timed_process(run: Run) -> TimedProcess:
    if not run.blocks or any(block.judged_tokens <= 0 for block in run.blocks):
        raise UndecidedError(
            "E_NO_TOKENS",
            f"Process {run.pid} has a measured block without a token.",
            "Check that the engine generates with this prompt and token limit.",
        )
    for block in run.blocks:
        _check_interval(block.judged, f"a block of process {run.pid}")
        if block.reference is not None:
            _check_interval(block.reference, f"the reference kernel of process {run.pid}")
    references = [block.reference.quiet_ns for block in run.blocks if block.reference is not None]
    if references and len(references) != len(run.blocks):
        raise _mixed_reference()
    pressure = run.cpu_pressure_pct
    if pressure is not None and not math.isfinite(pressure):
        raise _not_finite(pressure, f"CPU pressure of process {run.pid}")
    tokens = sum(block.judged_tokens for block in run.blocks)
    quiet_ns = sum(block.judged.quiet_ns for block in run.blocks)
    cpu_ns = sum(block.judged.cpu_ns for block in run.blocks)
    wall_ns = sum(block.judged.wall_ns for block in run.blocks)
    log_time = math.log(quiet_ns / tokens / _NS_PER_S)
    log_cpu = math.log(cpu_ns / tokens / _NS_PER_S)
    ratios = _log_ratios(run.blocks)
    return TimedProcess(
        pid=run.pid,
        tokens=tokens,
        quiet_s_per_token=quiet_ns / tokens / _NS_PER_S,
        cpu_s_per_token=cpu_ns / tokens / _NS_PER_S,
        waiting_s_per_token=max(0, quiet_ns - cpu_ns) / tokens / _NS_PER_S,
        wall_tokens_per_second=tokens / wall_ns * _NS_PER_S,
        reference_s=mean(references) / _NS_PER_S if references else None,
        log_time=log_time,
        log_cpu=log_cpu,
        log_time_ratio=ratios[0] if ratios else log_time,
        log_cpu_ratio=ratios[1] if ratios else log_cpu,
        cpu_pressure_pct=pressure,
    )


def _log_ratios(blocks: Sequence[Block]) -> tuple[float, float] | None:
    """Return log quiet and log CPU time per token over the reference; None without one.

    Block by block, and not of the sums: what slowed a block and the reference around it
    cancels only there.
    """
    times, cpus = [], []
    for block in blocks:
        if block.reference is None:
            return None
        reference_ns = block.reference.quiet_ns
        times.append(math.log(block.judged.quiet_ns / block.judged_tokens / reference_ns))
        cpus.append(math.log(block.judged.cpu_ns / block.judged_tokens / reference_ns))
    return mean(times), mean(cpus)


def _check_interval(interval: Interval, where: str) -> None:
    _positive(interval.wall_ns, f"wall time of {where}")
    _positive(interval.cpu_ns, f"CPU time of {where}")
    delay = interval.run_delay_ns
    if delay is None:
        return
    if not math.isfinite(delay):
        raise _not_finite(delay, f"run delay of {where}")
    if delay < 0:
        raise _not_positive(delay, f"run delay of {where}")


def _check_profile(process: ProcessProfile) -> None:
    counts = [process.samples, *process.self_samples.values()]
    for count in counts:
        if not math.isfinite(count):
            raise _not_finite(count, f"samples of profiled process {process.pid}")
        if count < 0:
            raise _not_positive(count, f"samples of profiled process {process.pid}")
    if process.samples == 0:
        raise UndecidedError(
            "E_NO_SAMPLES",
            f"The profile of process {process.pid} holds no sample.",
            "Run longer, or see `flamegate doctor` for what the profiler may do here.",
        )
    if sum(process.self_samples.values()) > process.samples:
        raise UndecidedError(
            "E_SAMPLES_CONTRADICT",
            f"The frames of process {process.pid} have more samples than the process.",
            "Measure again; an edited profile cannot be judged.",
        )


def _refuse_duplicates(runs: Sequence[Run], *, windows: bool) -> None:
    """Refuse one process counted twice, or copied: it would pass for independent evidence.

    ``windows`` of one process are the unit of evidence themselves; their times still differ.
    """
    processes: set[tuple[int, int]] = set()
    times: dict[tuple[Block, ...], int] = {}
    for run in runs:
        if run.started_ticks is not None and not windows:
            if (run.started_ticks, run.pid) in processes:
                raise UndecidedError(
                    "E_DUPLICATE_PROCESS",
                    f"Process {run.pid} is in the evidence more than once.",
                    "Measure again; every timed process must be its own.",
                )
            processes.add((run.started_ticks, run.pid))
        if run.blocks and run.blocks in times:
            raise UndecidedError(
                "E_CONSTANT_SAMPLES",
                f"Processes {times[run.blocks]} and {run.pid} took the same time "
                "to the nanosecond.",
                "Measure again; real processes never agree like this.",
            )
        times[run.blocks] = run.pid


def _positive(value: float, what: str) -> None:
    if not math.isfinite(value):
        raise _not_finite(value, what)
    if value <= 0:
        raise _not_positive(value, what)


def _not_finite(value: float, what: str) -> UndecidedError:
    return UndecidedError("E_NOT_FINITE", f"The {what} is {value}, not a number.", _MEASURE_AGAIN)


def _not_positive(value: float, what: str) -> UndecidedError:
    return UndecidedError("E_NOT_POSITIVE", f"The {what} is {value}.", _MEASURE_AGAIN)


def _mixed_reference() -> UndecidedError:
    return UndecidedError(
        "E_REFERENCE_MIXED",
        "The reference kernel ran beside some blocks and not beside others.",
        "Measure again, so that all processes are normalised alike.",
    )

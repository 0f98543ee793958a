"""Rules over GPUs: the claimed backend against the devices that were observed during the runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.compose import active_runs
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.observe.gpu import ObservedDevices
    from pytest_flamegate.receipt.rules.subject import Submission


CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@CHECKS.rule(
    "E_NO_DEVICE",
    "If cuda is claimed, device nodes, the kernel's driver and NVML existed and agreed.",
    remedy="Measure on a machine whose GPU works (nvidia-smi, flamegate doctor), or claim cpu.",
    needs={"backend"},
)
def _check_device(case: Submission) -> Iterator[str]:
    # A library alone is a file; only with a node and a driver does it belong to a device.
    devices = _claimed(case)
    if devices is not None:
        for sentence in devices.find_missing():
            yield f"The backend is cuda. {sentence}"


@CHECKS.rule(
    "E_DEVICE_IDLE",
    "If cuda is claimed, a timed run computed on a device.",
    remedy="Make the workload compute on the GPU. A silent fallback to the CPU looks like this.",
    needs={"backend"},
)
def _check_device_use(case: Submission) -> Iterator[str]:
    devices = _claimed(case)
    if devices is None or any(devices.find_missing()):
        return
    if devices.runs and all(run.idle for run in devices.runs):
        readings = sum(run.looks for run in devices.runs)
        yield f"The backend is cuda, but all {readings:,} readings of the devices show no compute."


@CHECKS.rule("E_DEVICE_CONTRADICTION", "Observations of GPUs agree with each other and the runs.")
def _check_device_facts(case: Submission) -> Iterator[str]:
    devices = case.evidence.device
    if devices is None:
        return
    yield from devices.find_contradictions()
    timed = {(run.pid, run.started_ticks) for run in case.timed}
    named = Counter((run.pid, run.started_ticks) for run in devices.runs)
    for (pid, ticks), times in named.items():
        if (pid, ticks) not in timed:
            yield f"Process {pid} was observed on devices, but is not one of the timed runs."
        if times > (len(case.timed) if case.in_windows else 1):
            yield f"Process {pid} is listed twice among the runs on devices."


@SHORTFALLS.rule(
    "W_DEVICE_NOT_OBSERVED",
    "If cuda is claimed, every timed run was observed to compute on a device.",
    remedy="Measure so that the observer sees the GPU: pip install 'pytest-flamegate[gpu]'.",
    needs={"backend"},
)
def _check_device_observed(case: Submission) -> Iterator[str]:
    # A function may be called gemm_fp16 and run on a CPU.
    if case.claim.backend != "cuda":
        return
    devices = case.evidence.device
    if devices is None:
        yield "The backend is cuda, but the evidence has no observation of a device."
    elif (active := active_runs(devices)) < max(1, len(case.timed)):
        troubles = f": {', '.join(devices.troubles)}" if devices.troubles else ""
        yield (
            f"The backend is cuda, but only {active} of {len(case.timed)} timed runs were observed "
            f"to compute on a device{troubles}."
        )


@SHORTFALLS.rule(
    "W_DEVICE_BUSY",
    "If cpu is claimed, no timed run computed on a GPU.",
    remedy="Profile with a tool that sees GPU kernels, or keep the workload off the GPU.",
    needs={"backend"},
)
def _check_device_unused(case: Submission) -> Iterator[str]:
    # Not an error: a profiler of the CPU cannot name the kernels that a claim of cuda needs, so
    # the observer itself writes cpu in this case.
    devices = case.evidence.device
    if case.claim.backend == "cpu" and devices is not None and (active := active_runs(devices)):
        yield (
            f"The backend is cpu, but {active} of {len(case.timed)} timed runs computed on a GPU."
        )


def _claimed(case: Submission) -> ObservedDevices | None:
    return case.evidence.device if case.claim.backend == "cuda" else None

"""Cross-checks over GPUs: what is claimed of them, and what was seen of them during the runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.backend import active_runs
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook
from pytest_flamegate.workload.windows import of_one_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.case import Case
    from pytest_flamegate.workload.device import DevicesSeen

CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_ON_A_GPU = "Measure on a machine whose GPU works (nvidia-smi, flamegate doctor), or claim cpu."


@CHECKS.rule(
    "E_NO_DEVICE",
    "Where cuda is claimed, device nodes, the kernel's driver and NVML were there and agreed.",
    todo=_ON_A_GPU,
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _no_device(case: Case) -> Iterator[str]:
    # A library by itself is a file: only with node and driver is it a device's.
    seen = _claimed(case)
    if seen is not None:
        for sentence in seen.missing():
            yield f"The backend is cuda. {sentence}"


@CHECKS.rule(
    "E_DEVICE_IDLE",
    "Where cuda is claimed, a timed run was seen to compute on a device.",
    todo="Let the workload compute on the GPU; a silent fall back to the CPU looks like this.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_idle(case: Case) -> Iterator[str]:
    # A GPU that stands in the machine and does nothing is no GPU of this run.
    seen = _claimed(case)
    if seen is None or any(seen.missing()):
        return
    if seen.runs and all(run.idle for run in seen.runs):
        looks = sum(run.looks for run in seen.runs)
        yield f"The backend is cuda, and no timed run computed on a device in {looks:,} looks."


@CHECKS.rule(
    "E_DEVICE_CONTRADICTION",
    "What was seen of GPUs agrees with itself and with the runs.",
    todo="Measure again; evidence is written by the observer and changed by nobody.",
    protects=Grade.OBSERVED,
)
def _device_contradiction(case: Case) -> Iterator[str]:
    # Whoever writes a device into evidence has many facts to keep together.
    seen = case.evidence.device
    if seen is None:
        return
    yield from seen.contradictions()
    timed = {(run.pid, run.started_ticks) for run in case.timed}
    named = Counter((run.pid, run.started_ticks) for run in seen.runs)
    for (pid, ticks), times in named.items():
        if (pid, ticks) not in timed:
            yield f"Process {pid} was looked at on devices and is none of the timed runs."
        if times > (len(case.timed) if of_one_process(case.evidence.workload) else 1):
            yield f"Process {pid} stands twice among the runs on devices."


@SHORTFALLS.rule(
    "W_DEVICE_NOT_OBSERVED",
    "Where cuda is claimed, every timed run was seen to compute on a device.",
    todo="Measure where the observer sees the GPU: pip install 'pytest-flamegate[gpu]'.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_not_observed(case: Case) -> Iterator[str]:
    # A function may be called gemm_fp16 and run on a CPU.
    if case.claim.backend != "cuda":
        return
    seen = case.evidence.device
    if seen is None:
        yield "The backend is cuda, and the evidence holds nothing that was seen on a device."
    elif (active := active_runs(seen)) < max(1, len(case.timed)):
        told = f": {', '.join(seen.troubles)}" if seen.troubles else ""
        yield (
            f"The backend is cuda, and {active} of {len(case.timed)} timed runs were seen to "
            f"compute on a device{told}."
        )


@SHORTFALLS.rule(
    "W_DEVICE_BUSY",
    "Where cpu is claimed, no timed run was seen to compute on a GPU.",
    todo="Profile with what sees the GPU's kernels, or keep the workload off the GPU.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_busy(case: Case) -> Iterator[str]:
    # A suspicion: a profiler of the CPU cannot name the kernels that a claim of cuda needs,
    # so the observer itself writes cpu here. Nobody saw the whole of what was computed.
    seen = case.evidence.device
    if case.claim.backend == "cpu" and seen is not None and (active := active_runs(seen)):
        yield (
            f"The backend is cpu, and {active} of {len(case.timed)} timed runs were seen to "
            "compute on a GPU."
        )


def _claimed(case: Case) -> DevicesSeen | None:
    return case.evidence.device if case.claim.backend == "cuda" else None

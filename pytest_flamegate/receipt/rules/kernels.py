"""Rules over kernels and GPUs: the names that a receipt claims, and the devices observed.

The kernel policy gives the meaning of names.
"""

from collections import Counter
from collections.abc import Iterator

from pytest_flamegate.core.json_parser import find_number, find_table
from pytest_flamegate.core.text import NAME_BYTES, find_hidden_character, quote
from pytest_flamegate.receipt.rules.rule import Claim, Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

RULES: Rulebook[Claim] = Rulebook(protects=Grade.CONSISTENT)
NOTICES: Rulebook[Claim] = Rulebook()
CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)
SHORTFALLS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@RULES.rule("E_KERNELS", f"A kernel name has at most {NAME_BYTES} bytes of UTF-8.")
def _check_name_length(claim: Claim) -> Iterator[str]:
    for kernel in claim.kernels:
        size = len(kernel.encode("utf-8"))
        if size > NAME_BYTES:
            yield f"The kernel {quote(kernel)} has {size} bytes; {NAME_BYTES} are allowed."


@RULES.rule(
    "E_HIDDEN_CHARACTER", "A kernel name contains no control, bidirectional or invisible character."
)
def _check_hidden_characters(claim: Claim) -> Iterator[str]:
    for kernel in claim.kernels:
        hidden = find_hidden_character(kernel)
        if hidden is not None:
            yield f"The kernel {quote(kernel)} contains {hidden}."


@RULES.rule("E_MOCK_KERNEL", "No claimed kernel is a mock.")
def _check_mocks(claim: Claim) -> Iterator[str]:
    for kernel in claim.kernels:
        if "mock" in kernel.casefold():
            yield f"The kernel {quote(kernel)} is a mock."


@RULES.rule("E_NO_GPU_KERNEL", "A receipt with backend cuda names a kernel that computes on a GPU.")
def _check_gpu_kernels(claim: Claim) -> Iterator[str]:
    # A kernel that only waits for the GPU, such as cuda_sync, does not count.
    if claim.backend == "cuda" and not _shows_gpu(claim):
        yield f"The backend is cuda, but no kernel is {claim.policy.gpu_wanted}."


@RULES.rule(
    "E_GPU_REQUIRED",
    "If the reader requires a GPU, the receipt names a kernel that computes on a GPU.",
    protects=None,
)
def _check_required_gpu(claim: Claim) -> Iterator[str]:
    if claim.require_gpu_kernels and not _shows_gpu(claim):
        yield f"GPU kernels are required, but no kernel is {claim.policy.gpu_wanted}."


@RULES.rule("E_GPU_KERNEL_ON_CPU", "A receipt with backend cpu names no GPU kernel.")
def _check_cpu_kernels(claim: Claim) -> Iterator[str]:
    if claim.backend == "cpu":
        for kernel in claim.kernels:
            if claim.policy.roles(kernel).names_gpu:
                yield f"The backend is cpu, but the kernel {quote(kernel)} runs on a GPU."


@RULES.rule(
    "E_NO_COMPUTE_KERNEL",
    "A receipt with backend cpu names a kernel that computes, not only fallbacks.",
)
def _check_compute_kernels(claim: Claim) -> Iterator[str]:
    # The bitnet policy needs at least one CPU-quantised kernel; fallbacks beside it are fine.
    roles = claim.policy.roles
    if claim.backend == "cpu" and not any(roles(name).shows_cpu_compute for name in claim.kernels):
        fallbacks = [quote(kernel) for kernel in claim.kernels if roles(kernel).is_fallback]
        only = f" These are fallbacks: {', '.join(fallbacks[:3])}." if fallbacks else ""
        yield f"The backend is cpu, but no kernel is {claim.policy.cpu_wanted}.{only}"


@RULES.rule(
    "E_KERNEL_PATH",
    "kernel_path and quantization.fallback_count agree with each other and with the kernels.",
)
def _check_kernel_path(claim: Claim) -> Iterator[str]:
    # Only receipts of schema 1.1.0 have these fields.
    quantization, kernels = find_table(claim.document, "quantization"), claim.kernels
    count = find_number(quantization, "fallback_count")
    if claim.document.get("kernel_path") == "native_quantized" and count:
        yield f"kernel_path is native_quantized, but fallback_count is {count:g}."
    fallbacks = (kernel for kernel in kernels if claim.policy.roles(kernel).is_fallback)
    if count == 0 and (fallback := next(fallbacks, None)) is not None:
        yield f"fallback_count is 0, but the kernel {quote(fallback)} is a fallback."


@NOTICES.rule("W_DUPLICATE_KERNELS", "Each kernel is listed once.")
def _check_duplicates(claim: Claim) -> Iterator[str]:
    if len(set(claim.kernels)) == len(claim.kernels):
        return
    for kernel, times in Counter(claim.kernels).items():
        if times > 1:
            yield f"The kernel {quote(kernel)} is listed {times} times."


def _shows_gpu(claim: Claim) -> bool:
    return any(claim.policy.roles(kernel).shows_gpu_compute for kernel in claim.kernels)


@CHECKS.rule(
    "E_NO_DEVICE",
    "If cuda is claimed, device nodes, the kernel's driver and NVML existed and agreed, and a "
    "timed run computed on a device.",
)
def _check_device(case: Submission) -> Iterator[str]:
    # A library alone is a file; only with a node and a driver does it belong to a device.
    devices = case.evidence.device
    if devices is None or case.claim.backend != "cuda":
        return
    missing = list(devices.find_missing())
    for sentence in missing:
        yield f"The backend is cuda. {sentence}"
    if not missing and devices.runs and all(run.idle for run in devices.runs):
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
)
def _check_device_observed(case: Submission) -> Iterator[str]:
    # A function may be called gemm_fp16 and run on a CPU.
    if case.claim.backend != "cuda":
        return
    devices = case.evidence.device
    if devices is None:
        yield "The backend is cuda, but the evidence has no observation of a device."
    elif (active := sum(run.active for run in devices.runs)) < max(1, len(case.timed)):
        troubles = f": {', '.join(devices.troubles)}" if devices.troubles else ""
        yield (
            f"The backend is cuda, but only {active} of {len(case.timed)} timed runs were observed "
            f"to compute on a device{troubles}."
        )


@SHORTFALLS.rule("W_DEVICE_BUSY", "If cpu is claimed, no timed run computed on a GPU.")
def _check_device_unused(case: Submission) -> Iterator[str]:
    # Not an error: a profiler of the CPU cannot name the kernels that a claim of cuda needs, so
    # the observer itself writes cpu in this case.
    devices = case.evidence.device
    if case.claim.backend != "cpu" or devices is None:
        return
    if active := sum(run.active for run in devices.runs):
        yield f"The backend is cpu, but {active} timed runs computed on a GPU."

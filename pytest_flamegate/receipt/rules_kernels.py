"""Rules over the names of the kernels that are claimed to have run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.characters import hidden_in_name
from pytest_flamegate.receipt.claim import number, table
from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.claim import Claim

MAX_KERNEL_BYTES = 128

RULES: Rulebook[Claim] = Rulebook()
NOTICES: Rulebook[Claim] = Rulebook()


@RULES.rule(
    "E_KERNEL_TOO_LONG",
    f"A kernel name has at most {MAX_KERNEL_BYTES} bytes of UTF-8.",
    todo="Record the kernel's own name, without its parameters.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _kernel_too_long(claim: Claim) -> Iterator[str]:
    # A name is short enough to be a name.
    for kernel in claim.kernels:
        size = len(kernel.encode("utf-8"))
        if size > MAX_KERNEL_BYTES:
            yield f"The kernel {shown(kernel)} has {size} bytes, more than {MAX_KERNEL_BYTES}."


@RULES.rule(
    "E_HIDDEN_CHARACTER",
    "A kernel name holds no control, bidirectional or invisible character.",
    todo="Look at the bytes of the name: it was made to read as another one.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _hidden_character(claim: Claim) -> Iterator[str]:
    # A name is what it looks like.
    for kernel in claim.kernels:
        hidden = hidden_in_name(kernel)
        if hidden is not None:
            yield f"The kernel {shown(kernel)} holds {hidden}."


@RULES.rule(
    "E_MOCK_KERNEL",
    "No kernel is a mock.",
    todo="Run real inference; a mock beside a real kernel still is one.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _mock_kernel(claim: Claim) -> Iterator[str]:
    # One mock makes the run a mock, whatever stands beside it.
    for kernel in claim.kernels:
        if "mock" in kernel.casefold():
            yield f"The kernel {shown(kernel)} is a mock."


@RULES.rule(
    "E_NO_GPU_KERNEL",
    "A receipt with backend cuda names a kernel that shows GPU compute.",
    todo="Run a GPU build on a GPU; a silent fall back to the CPU looks like this.",
    protects=Grade.CONSISTENT,
    needs={"backend", "kernels"},
)
def _no_gpu_kernel(claim: Claim) -> Iterator[str]:
    # Waiting for a GPU is not computing on it: cuda_sync alone does not count.
    if claim.backend == "cuda" and not _shows_gpu(claim):
        yield f"The backend is cuda and no kernel is {claim.policy.gpu_wanted}."


@RULES.rule(
    "E_GPU_REQUIRED",
    "Where its reader requires a GPU, the receipt names a kernel that shows GPU compute.",
    todo="Give a receipt of a GPU run, or do not ask for GPU kernels.",
    protects=None,
    needs={"kernels"},
)
def _gpu_required(claim: Claim) -> Iterator[str]:
    # The reader's wish, not a matter of honesty.
    if claim.require_gpu_kernels and not _shows_gpu(claim):
        yield f"GPU kernels are required and no kernel is {claim.policy.gpu_wanted}."


@RULES.rule(
    "E_GPU_KERNEL_ON_CPU",
    "A receipt with backend cpu names no GPU kernel.",
    todo="Say backend cuda if a GPU computed; otherwise name the kernels that ran.",
    protects=Grade.CONSISTENT,
    needs={"backend", "kernels"},
)
def _gpu_kernel_on_cpu(claim: Claim) -> Iterator[str]:
    # A CPU cannot have run it.
    if claim.backend == "cpu":
        for kernel in claim.kernels:
            if claim.policy.names_gpu(kernel):
                yield f"The backend is cpu and the kernel {shown(kernel)} runs on a GPU."


@RULES.rule(
    "E_NO_COMPUTE_KERNEL",
    "A receipt with backend cpu names a kernel that its engine computes with.",
    todo="Name the kernels that ran, or choose the kernel policy of the engine that ran.",
    protects=Grade.CONSISTENT,
    needs={"backend", "kernels"},
)
def _no_compute_kernel(claim: Claim) -> Iterator[str]:
    # Under BitNet's policy: one CPU-quantised id at least.
    if claim.backend == "cpu" and not any(map(claim.policy.shows_cpu_compute, claim.kernels)):
        yield f"The backend is cpu and no kernel is {claim.policy.cpu_wanted}."


@RULES.rule(
    "E_ONLY_FALLBACK",
    "A receipt that claims quantised compute does not name fallback kernels alone.",
    todo="Run with the quantised kernels built in, or report kernel_path fp32_fallback.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _only_fallback(claim: Claim) -> Iterator[str]:
    # Quantised and fallback kernels side by side are honest; fallbacks alone are not.
    policy = claim.policy
    fallbacks = [kernel for kernel in claim.kernels if policy.is_fallback(kernel)]
    computes = any(
        policy.shows_cpu_compute(kernel) or policy.shows_gpu_compute(kernel)
        for kernel in claim.kernels
    )
    if _claims_quantized(claim) and fallbacks and not computes:
        yield (
            f"Quantised compute is claimed and the kernels that compute are fallbacks: "
            f"{', '.join(map(shown, fallbacks[:3]))}."
        )


@RULES.rule(
    "E_KERNEL_PATH",
    "kernel_path and quantization.fallback_count agree with the kernels and with each other.",
    todo="Report the path that ran: native_quantized means that nothing fell back.",
    protects=Grade.CONSISTENT,
    needs={"kernels", "kernel_path", "quantization"},
)
def _kernel_path(claim: Claim) -> Iterator[str]:
    # Schema 1.1.0 says it in words and numbers, so they can be held against the names.
    count = number(table(claim.document, "quantization"), "fallback_count")
    fallbacks = [kernel for kernel in claim.kernels if claim.policy.is_fallback(kernel)]
    if claim.document.get("kernel_path") == "native_quantized" and count:
        yield f"kernel_path is native_quantized and fallback_count is {count:g}."
    if count == 0 and fallbacks:
        yield f"fallback_count is 0 and the kernel {shown(fallbacks[0])} is a fallback."


@NOTICES.rule(
    "W_DUPLICATE_KERNELS",
    "A kernel stands once in the list.",
    todo="Nothing: a list of calls repeats names.",
    protects=None,
    needs={"kernels"},
)
def _duplicate_kernels(claim: Claim) -> Iterator[str]:
    # Repeated names are harmless, and worth a look where many names were expected.
    for kernel, times in Counter(claim.kernels).items():
        if times > 1:
            yield f"The kernel {shown(kernel)} stands {times} times."


def _shows_gpu(claim: Claim) -> bool:
    return any(map(claim.policy.shows_gpu_compute, claim.kernels))


def _claims_quantized(claim: Claim) -> bool:
    path = claim.document.get("kernel_path")
    if path == "fp32_fallback":
        return False
    named = table(claim.document, "quantization").get("types_used")
    return claim.policy.claims_quantized or path == "native_quantized" or bool(named)

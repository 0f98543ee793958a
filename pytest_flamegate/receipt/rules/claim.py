"""Rules over what a receipt says about its own run: tests, corrections, seeds, age."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.core.text import find_control_character, find_hidden_character, quote
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.rules.rule import Rulebook
from pytest_flamegate.receipt.rules.subject import duration, number, objects, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.receipt.rules.subject import Claim, Duration


CLOCK_DIFFERENCE_S = 24 * 3600
"""How far ahead a timestamp may lie: two machines' clocks and a wrong time zone."""
CLOCK_DIFFERENCE_UNDER_MAX_AGE_S = 300
"""The same where an age is asked for, since a timestamp ahead would stretch it."""

RULES: Rulebook[Claim] = Rulebook()

_OFF = frozenset({"0", "false", "no", "off", "disabled"})
_FAILED = frozenset({"fail", "failed", "failure", "error", "errored", "divergence", "timeout"})


@RULES.rule(
    "E_RUN_FAILED",
    "The receipt does not say that its own run failed.",
    remedy="Run again; a failed run has no performance to claim.",
    protects=Grade.CONSISTENT,
)
def _run_failed(claim: Claim) -> Iterator[str]:
    # Fields that some producers add beside the schema.
    document = claim.document
    if document.get("success") is False:
        yield "success is false."
    if document.get("error") not in (None, "", False):
        yield f"error is {quote(document['error'])}."
    for name in ("exit_code", "returncode"):
        if number(document, name):
            yield f"{name} is {quote(document[name])}."
    if _is_failed(document.get("status")):
        yield f"status is {quote(document['status'])}."


@RULES.rule(
    "E_TESTS_FAILED",
    "No test within the receipt failed.",
    remedy="Repair what the tests show, then measure.",
    protects=Grade.CONSISTENT,
)
def _tests_failed(claim: Claim) -> Iterator[str]:
    # Performance of a model that computes the wrong thing is no performance.
    for name in ("test_results", "cross_validation", "parity"):
        for path, fields in objects(claim.document.get(name), name):
            yield from _failures(path, fields)


def _failures(path: str, fields: Mapping[str, object]) -> Iterator[str]:
    for name in ("failed", "errors", "failures"):
        if (number(fields, name) or 0) > 0:
            yield f"{path}.{name} is {number(fields, name):g}."
    for name in ("passed", "prefill_decode_parity", "parity_tests_passed", "success"):
        if fields.get(name) is False:
            yield f"{path}.{name} is false."
    for name in ("status", "outcome", "result"):
        if _is_failed(fields.get(name)):
            yield f"{path}.{name} is {quote(fields[name])}."
    error, tolerance = number(fields, "mse"), number(fields, "tolerance")
    if error is not None and tolerance is not None and error > tolerance:
        yield f"{path}.mse is {error:g}, above its tolerance of {tolerance:g}."
    total, passed = number(fields, "total_tests", "total"), number(fields, "passed")
    if total is not None and passed is not None:
        skipped = number(fields, "skipped", "ignored") or 0
        failed = number(fields, "failed") or 0
        if passed + skipped + failed != total:
            yield (
                f"{path} counts {total:g} tests, of which {passed:g} passed, {failed:g} failed "
                f"and {skipped:g} were skipped."
            )


def _is_failed(status: object) -> bool:
    return isinstance(status, str) and status.strip().lower() in _FAILED


@RULES.rule(
    "E_CORRECTED",
    "The figures are as measured: no corrections were applied.",
    remedy="Repair the model or the engine instead of correcting what comes out of it.",
    protects=Grade.CONSISTENT,
)
def _corrected(claim: Claim) -> Iterator[str]:
    # A corrected model is another model than the one that is named.
    if claim.document.get("corrections"):
        yield f"corrections is {quote(claim.document['corrections'])}."
    for name in ("model", "model_info"):
        digest = table(claim.document, name).get("effective_correction_digest")
        if digest:
            yield f"{name}.effective_correction_digest is {quote(digest)}."


@RULES.rule(
    "E_NOT_DETERMINISTIC",
    "A receipt that claims determinism does not contradict itself about it.",
    remedy="Set the determinism switches before the run, or say deterministic: false.",
    protects=Grade.CONSISTENT,
    needs={"deterministic", "environment"},
)
def _not_deterministic(claim: Claim) -> Iterator[str]:
    # The switches it recorded, and the test it ran.
    if not claim.deterministic:
        return
    for name, value in claim.environment.items():
        switch = value.strip().lower()
        variable = f"_{name.upper()}"
        if variable.endswith("_DETERMINISTIC") and switch in _OFF:
            yield f"deterministic is true and {quote(name)} is {quote(value)}."
        if variable.endswith("_SEED") and switch and not _is_integer(switch):
            yield f"deterministic is true and {quote(name)} is {quote(value)}."
    tests = table(table(claim.document, "test_results"), "determinism_tests")
    if tests.get("identical_sequences") is False:
        yield "deterministic is true and its determinism test saw different sequences."


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-").removeprefix("0x")
    return bool(digits) and all(character in "0123456789abcdef" for character in digits)


@RULES.rule(
    "E_STEERING_CHARACTER",
    "Neither environment nor model holds control or bidirectional characters.",
    remedy="Look at the bytes: such a text shows something else than it says.",
    protects=Grade.CONSISTENT,
    needs={"environment", "model"},
)
def _steering_character(claim: Claim) -> Iterator[str]:
    # They end up in terminals, logs and reports.
    for name, fields in (("environment", claim.environment), ("model", claim.model)):
        for key, value in fields.items():
            for text in (key, value):
                steering = find_control_character(text) if isinstance(text, str) else None
                if steering is not None:
                    yield f"{name}.{key[:40]!a} holds {steering}."


@RULES.rule(
    "E_FROM_THE_FUTURE",
    "The timestamp does not lie ahead of the clock.",
    remedy="Check the clocks of both machines.",
    protects=Grade.CONSISTENT,
    needs={"timestamp"},
)
def _from_the_future(claim: Claim) -> Iterator[str]:
    # A run that has not happened yet.
    allowed_s = CLOCK_DIFFERENCE_S
    if claim.max_age_s is not None:
        allowed_s = CLOCK_DIFFERENCE_UNDER_MAX_AGE_S
    if -claim.age_s > allowed_s:
        yield f"timestamp {quote(claim.document['timestamp'])} lies ahead of {claim.now:%Y-%m-%d}."


@RULES.rule(
    "E_EXPIRED",
    "The receipt is no older than its reader allows.",
    remedy="Measure again.",
    protects=None,
    needs={"timestamp"},
)
def _expired(claim: Claim) -> Iterator[str]:
    # Against replays of an old receipt.
    if claim.max_age_s is not None and not claim.age_s <= claim.max_age_s:
        yield (
            f"The receipt is {claim.age_s / 3600:,.1f} hours old, more than the "
            f"{claim.max_age_s / 3600:,.1f} allowed."
        )


MAX_TOKENS_PER_SECOND = 1e6
"""One token each microsecond. The fastest single streams known reach some 10^4 a second,
and a microsecond does not even cover one pass over a toy model's weights."""

AGREEMENT = 0.02
"""Two figures agree within 2 %: one digit after the point of a slow rate is 1 %."""

RULES_FIGURES_RULES: Rulebook[Claim] = Rulebook()

_TOTAL = ("total_time", "total", "total_latency", "total_duration")
_FIRST = ("first_token_latency", "first_token", "time_to_first_token", "ttft")
_AVERAGE = ("average_token_latency", "avg_token_latency", "mean_token_latency")
_PREFILL = ("prefill", "prefill_time", "prefill_latency", "prefill_duration")
_DECODE = ("decode", "decode_time", "decode_latency", "decode_duration")
_FIX = "Measure again and let the tool write every figure from the same run."


@RULES_FIGURES_RULES.rule(
    "E_TPS_IMPLAUSIBLE",
    f"tokens_per_second is at most {MAX_TOKENS_PER_SECOND:,.0f}.",
    remedy="Check the unit and the clock: no machine generates a token in less than a microsecond.",
    protects=Grade.CONSISTENT,
    needs={"tokens_per_second"},
)
def _tps_implausible(claim: Claim) -> Iterator[str]:
    # There is an upper bound to what can be believed, and none below.
    if claim.tokens_per_second > MAX_TOKENS_PER_SECOND:
        yield f"{claim.tokens_per_second:g} tokens per second are more than any machine makes."


@RULES_FIGURES_RULES.rule(
    "E_TOKENS_EXCEED_REQUEST",
    "No more tokens are generated than were requested.",
    remedy="Count the tokens of one run only.",
    protects=Grade.CONSISTENT,
    needs={"tokens_requested", "tokens_generated"},
)
def _tokens_exceed_request(claim: Claim) -> Iterator[str]:
    # Fewer is honest: the model may end early.
    if claim.tokens_generated > claim.tokens_requested:
        yield (
            f"{claim.tokens_generated} tokens were generated of {claim.tokens_requested} requested."
        )


@RULES_FIGURES_RULES.rule(
    "E_TOKENS_DISAGREE",
    "performance_baseline counts the same tokens as the receipt.",
    remedy=_FIX,
    protects=Grade.CONSISTENT,
    needs={"tokens_generated"},
)
def _tokens_disagree(claim: Claim) -> Iterator[str]:
    # A rate over other tokens is the rate of another run.
    counted = number(claim.performance, "tokens_generated")
    if counted is not None and counted != claim.tokens_generated:
        yield (
            f"tokens_generated is {claim.tokens_generated}, and {counted:g} in "
            "performance_baseline."
        )


@RULES_FIGURES_RULES.rule(
    "E_TPS_DISAGREE",
    "performance_baseline states the same rate as the receipt.",
    remedy=_FIX,
    protects=Grade.CONSISTENT,
    needs={"tokens_per_second"},
)
def _tps_disagree(claim: Claim) -> Iterator[str]:
    # Two rates for one run: at least one is wrong.
    stated = number(claim.performance, "tokens_per_second")
    rate = claim.tokens_per_second
    if stated is not None and abs(stated - rate) > AGREEMENT * rate:
        yield f"tokens_per_second is {rate:g}, and {stated:g} in performance_baseline."


@RULES_FIGURES_RULES.rule(
    "E_TPS_CONTRADICTS_TIME",
    "tokens_per_second is the tokens divided by the total time, where a total time is given.",
    remedy=_FIX,
    protects=Grade.CONSISTENT,
    needs={"tokens_generated", "tokens_per_second"},
)
def _tps_contradicts_time(claim: Claim) -> Iterator[str]:
    # The one figure that a duration can be held against.
    for fields in (claim.document, claim.performance):
        total = duration(fields, *_TOTAL)
        tokens = number(fields, "tokens_generated") or claim.tokens_generated
        if total is not None and total.ms >= 0:
            longest_s = (total.ms + total.step_ms) / 1e3
            shortest_s = max(0.0, total.ms - total.step_ms) / 1e3
            rate = claim.tokens_per_second
            too_slow = rate * longest_s < tokens * (1 - AGREEMENT)
            too_fast = rate * shortest_s > tokens * (1 + AGREEMENT)
            if too_slow or too_fast:
                yield (
                    f"{tokens:g} tokens in {total.name} {total.ms / 1e3:g} s are not "
                    f"{rate:g} tokens per second."
                )


@RULES_FIGURES_RULES.rule(
    "E_LATENCY_CONTRADICTION",
    "First-token and average token latency add up to the total time.",
    remedy=_FIX,
    protects=Grade.CONSISTENT,
    needs={"tokens_generated"},
)
def _latency_contradiction(claim: Claim) -> Iterator[str]:
    # first + (n-1) x average = total; tools that average over all n write n x average.
    for path, fields in objects(claim.document):
        tokens = number(fields, "tokens_generated")
        if tokens is None and path in ("", "performance_baseline"):
            tokens = claim.tokens_generated
        total = duration(fields, *_TOTAL)
        first = duration(fields, *_FIRST)
        average = duration(fields, *_AVERAGE)
        if total is None:
            continue
        if first is not None and first.ms > _upper_ms(total, first):
            yield f"{first.name} {first.ms:g} ms is longer than {total.name} {total.ms:g} ms."
        if tokens and average is not None:
            yield from _sum_of_latencies(tokens, total, first, average)


def _sum_of_latencies(
    tokens: float, total: Duration, first: Duration | None, average: Duration
) -> Iterator[str]:
    first_ms = first.ms if first is not None else 0.0
    summed_ms = first_ms + (tokens - 1) * average.ms
    slack_ms = AGREEMENT * total.ms + total.step_ms + tokens * average.step_ms
    slack_ms += first.step_ms if first is not None else 0.0
    over_all = abs(tokens * average.ms - total.ms) <= slack_ms
    if first is None:
        contradicts = summed_ms - total.ms > slack_ms
    else:
        contradicts = abs(summed_ms - total.ms) > slack_ms
    if contradicts and not over_all:
        yield (
            f"{first_ms:g} ms and {tokens - 1:g} x {average.ms:g} ms are {summed_ms:g} ms, "
            f"and {total.name} is {total.ms:g} ms."
        )


@RULES_FIGURES_RULES.rule(
    "E_PHASES_EXCEED_TOTAL",
    "Prefill and decode together take no longer than the total time.",
    remedy=_FIX,
    protects=Grade.CONSISTENT,
)
def _phases_exceed_total(claim: Claim) -> Iterator[str]:
    # Looked for wherever one object states them together.
    for _, fields in objects(claim.document):
        total = duration(fields, *_TOTAL)
        phases = [
            phase
            for phase in (duration(fields, *_PREFILL), duration(fields, *_DECODE))
            if phase is not None
        ]
        if total is not None and phases:
            summed_ms = sum(phase.ms for phase in phases)
            if summed_ms > _upper_ms(total, *phases):
                names = " and ".join(phase.name for phase in phases)
                yield f"{names} are {summed_ms:g} ms, and {total.name} is {total.ms:g} ms."


@RULES_FIGURES_RULES.rule(
    "E_NEGATIVE_TIME",
    "No duration is negative.",
    remedy="Use a monotonic clock.",
    protects=Grade.CONSISTENT,
)
def _negative_time(claim: Claim) -> Iterator[str]:
    # A clock that was set back, or a figure that was typed.
    for _, fields in objects(claim.document):
        for stems in (_TOTAL, _FIRST, _AVERAGE, _PREFILL, _DECODE):
            found = duration(fields, *stems)
            if found is not None and found.ms < 0:
                yield f"{found.name} is {found.ms:g} ms."


def _upper_ms(total: Duration, *parts: Duration) -> float:
    """Return what parts of ``total`` may add up to, rounding included."""
    steps_ms = total.step_ms + sum(part.step_ms for part in parts)
    return total.ms + abs(total.ms) * AGREEMENT + steps_ms


MAX_KERNEL_BYTES = 128

RULES_KERNELS_RULES: Rulebook[Claim] = Rulebook()
NOTICES: Rulebook[Claim] = Rulebook()


@RULES_KERNELS_RULES.rule(
    "E_KERNEL_TOO_LONG",
    f"A kernel name has at most {MAX_KERNEL_BYTES} bytes of UTF-8.",
    remedy="Record the kernel's own name, without its parameters.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _kernel_too_long(claim: Claim) -> Iterator[str]:
    # A name is short enough to be a name.
    for kernel in claim.kernels:
        size = len(kernel.encode("utf-8"))
        if size > MAX_KERNEL_BYTES:
            yield f"The kernel {quote(kernel)} has {size} bytes, more than {MAX_KERNEL_BYTES}."


@RULES_KERNELS_RULES.rule(
    "E_HIDDEN_CHARACTER",
    "A kernel name holds no control, bidirectional or invisible character.",
    remedy="Look at the bytes of the name: it was made to read as another one.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _hidden_character(claim: Claim) -> Iterator[str]:
    # A name is what it looks like.
    for kernel in claim.kernels:
        hidden = find_hidden_character(kernel)
        if hidden is not None:
            yield f"The kernel {quote(kernel)} holds {hidden}."


@RULES_KERNELS_RULES.rule(
    "E_MOCK_KERNEL",
    "No kernel is a mock.",
    remedy="Run real inference; a mock beside a real kernel still is one.",
    protects=Grade.CONSISTENT,
    needs={"kernels"},
)
def _mock_kernel(claim: Claim) -> Iterator[str]:
    # One mock makes the run a mock, whatever stands beside it.
    for kernel in claim.kernels:
        if "mock" in kernel.casefold():
            yield f"The kernel {quote(kernel)} is a mock."


@RULES_KERNELS_RULES.rule(
    "E_NO_GPU_KERNEL",
    "A receipt with backend cuda names a kernel that shows GPU compute.",
    remedy="Run a GPU build on a GPU; a silent fall back to the CPU looks like this.",
    protects=Grade.CONSISTENT,
    needs={"backend", "kernels"},
)
def _no_gpu_kernel(claim: Claim) -> Iterator[str]:
    # Waiting for a GPU is not computing on it: cuda_sync alone does not count.
    if claim.backend == "cuda" and not _shows_gpu(claim):
        yield f"The backend is cuda and no kernel is {claim.policy.gpu_wanted}."


@RULES_KERNELS_RULES.rule(
    "E_GPU_REQUIRED",
    "Where its reader requires a GPU, the receipt names a kernel that shows GPU compute.",
    remedy="Give a receipt of a GPU run, or do not ask for GPU kernels.",
    protects=None,
    needs={"kernels"},
)
def _gpu_required(claim: Claim) -> Iterator[str]:
    # The reader's wish, not a matter of honesty.
    if claim.require_gpu_kernels and not _shows_gpu(claim):
        yield f"GPU kernels are required and no kernel is {claim.policy.gpu_wanted}."


@RULES_KERNELS_RULES.rule(
    "E_GPU_KERNEL_ON_CPU",
    "A receipt with backend cpu names no GPU kernel.",
    remedy="Say backend cuda if a GPU computed; otherwise name the kernels that ran.",
    protects=Grade.CONSISTENT,
    needs={"backend", "kernels"},
)
def _gpu_kernel_on_cpu(claim: Claim) -> Iterator[str]:
    # A CPU cannot have run it.
    if claim.backend == "cpu":
        for kernel in claim.kernels:
            if claim.policy.names_gpu(kernel):
                yield f"The backend is cpu and the kernel {quote(kernel)} runs on a GPU."


@RULES_KERNELS_RULES.rule(
    "E_NO_COMPUTE_KERNEL",
    "A receipt with backend cpu names a kernel that its engine computes with.",
    remedy="Name the kernels that ran, or choose the kernel policy of the engine that ran.",
    protects=Grade.CONSISTENT,
    needs={"backend", "kernels"},
)
def _no_compute_kernel(claim: Claim) -> Iterator[str]:
    # Under BitNet's policy: one CPU-quantised id at least.
    if claim.backend == "cpu" and not any(map(claim.policy.shows_cpu_compute, claim.kernels)):
        yield f"The backend is cpu and no kernel is {claim.policy.cpu_wanted}."


@RULES_KERNELS_RULES.rule(
    "E_ONLY_FALLBACK",
    "A receipt that claims quantised compute does not name fallback kernels alone.",
    remedy="Run with the quantised kernels built in, or report kernel_path fp32_fallback.",
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
            f"{', '.join(map(quote, fallbacks[:3]))}."
        )


@RULES_KERNELS_RULES.rule(
    "E_KERNEL_PATH",
    "kernel_path and quantization.fallback_count agree with the kernels and with each other.",
    remedy="Report the path that ran: native_quantized means that nothing fell back.",
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
        yield f"fallback_count is 0 and the kernel {quote(fallbacks[0])} is a fallback."


@NOTICES.rule(
    "W_DUPLICATE_KERNELS",
    "A kernel stands once in the list.",
    remedy="Nothing: a list of calls repeats names.",
    protects=None,
    needs={"kernels"},
)
def _duplicate_kernels(claim: Claim) -> Iterator[str]:
    # Repeated names are harmless, and worth a look where many names were expected.
    for kernel, times in Counter(claim.kernels).items():
        if times > 1:
            yield f"The kernel {quote(kernel)} stands {times} times."


def _shows_gpu(claim: Claim) -> bool:
    return any(map(claim.policy.shows_gpu_compute, claim.kernels))


def _claims_quantized(claim: Claim) -> bool:
    path = claim.document.get("kernel_path")
    if path == "fp32_fallback":
        return False
    named = table(claim.document, "quantization").get("types_used")
    return claim.policy.claims_quantized or path == "native_quantized" or bool(named)

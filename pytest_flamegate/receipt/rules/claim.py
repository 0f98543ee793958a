"""Rules over a receipt alone: its figures, the outcome of its own run, its age."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pytest_flamegate.core.json_parser import find_number, find_table
from pytest_flamegate.core.text import find_control_character, quote
from pytest_flamegate.receipt.rules.rule import Claim, Rulebook, find_objects
from pytest_flamegate.receipt.types import Grade

RULES: Rulebook[Claim] = Rulebook(protects=Grade.CONSISTENT)

MAX_TOKENS_PER_SECOND = 1e6
"""One token per microsecond. The fastest single streams known reach some 10^4 tokens/s, and a
microsecond is too short for one pass over the weights of even a toy model."""
AGREEMENT = 0.02
"""Two figures agree within 2 %: a slow rate written with one decimal is off by up to 1 %."""
CLOCK_DIFFERENCE_S = 24 * 3600
"""How far ahead a timestamp may be: the clocks of two machines and a wrong time zone."""
CLOCK_DIFFERENCE_UNDER_MAX_AGE_S = 300
"""The same if a maximum age is requested, because a future timestamp would extend it."""


_TOTAL = ("total_time", "total", "total_latency", "total_duration")
_FIRST = ("first_token_latency", "first_token", "time_to_first_token", "ttft")
_AVERAGE = ("average_token_latency", "avg_token_latency", "mean_token_latency")
_PREFILL = ("prefill", "prefill_time", "prefill_latency", "prefill_duration")
_DECODE = ("decode", "decode_time", "decode_latency", "decode_duration")

_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_STEMS = (*_TOTAL, *_FIRST, *_AVERAGE, *_PREFILL, *_DECODE)
_DURATIONS = frozenset(f"{stem}_{unit}" for stem in _STEMS for unit in _UNITS_MS)


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration as written: the name of its field, its milliseconds, and its resolution.

    ``step_ms`` is one unit of the field for a whole number, which may have been rounded or cut
    off, and 0 for a fraction.
    """

    name: str
    ms: float
    step_ms: float


def duration(fields: Mapping[str, object], *stems: str) -> Duration | None:
    """Return the first duration called ``stem_ns``, ``_us``, ``_ms`` or ``_s``; None if none."""
    for stem in stems:
        for unit, unit_ms in _UNITS_MS.items():
            value = find_number(fields, name := f"{stem}_{unit}")
            if value is not None:
                whole = isinstance(fields[name], int)
                return Duration(name, value * unit_ms, unit_ms if whole else 0.0)
    return None


def _timings(claim: Claim) -> list[tuple[str, Mapping[str, object]]]:
    """Return the objects within the receipt that state a duration."""
    # An object may have 100,000 fields and rarely a time: isdisjoint looks through the smaller.
    return [each for each in claim.objects if not _DURATIONS.isdisjoint(each[1])]


@RULES.rule("E_TPS", f"tokens_per_second is at most {MAX_TOKENS_PER_SECOND:,.0f}.")
def _check_max_rate(claim: Claim) -> Iterator[str]:
    # There is no lower bound: slow is not dishonest.
    if claim.tokens_per_second > MAX_TOKENS_PER_SECOND:
        yield f"tokens_per_second is {claim.tokens_per_second:g}; no machine is that fast."


@RULES.rule("E_FIGURES_CONTRADICT", "tokens_generated is at most tokens_requested.")
def _check_request(claim: Claim) -> Iterator[str]:
    # Fewer tokens are honest: the model may end early.
    if claim.tokens_generated > claim.tokens_requested:
        yield f"{claim.tokens_generated} tokens of {claim.tokens_requested} requested ones."


@RULES.rule(
    "E_FIGURES_CONTRADICT", "performance_baseline states the same tokens and rate as the receipt."
)
def _check_baseline(claim: Claim) -> Iterator[str]:
    performance = find_table(claim.document, "performance_baseline")
    for name, slack in (("tokens_generated", 0.0), ("tokens_per_second", AGREEMENT)):
        stated, ours = find_number(performance, name), getattr(claim, name)
        if stated is not None and abs(stated - ours) > slack * ours:
            yield f"{name} is {ours:g}, but {stated:g} in performance_baseline."


@RULES.rule(
    "E_FIGURES_CONTRADICT",
    "tokens_per_second is the number of tokens divided by the total time, if that is stated.",
)
def _check_total_time(claim: Claim) -> Iterator[str]:
    rate = claim.tokens_per_second
    for fields in (claim.document, find_table(claim.document, "performance_baseline")):
        if _DURATIONS.isdisjoint(fields.keys()):
            continue
        total = duration(fields, *_TOTAL)
        tokens = find_number(fields, "tokens_generated") or claim.tokens_generated
        if total is not None and total.ms >= 0:
            longest_s = (total.ms + total.step_ms) / 1e3
            shortest_s = max(0.0, total.ms - total.step_ms) / 1e3
            too_slow = rate * longest_s < tokens * (1 - AGREEMENT)
            too_fast = rate * shortest_s > tokens * (1 + AGREEMENT)
            if too_slow or too_fast:
                yield (
                    f"tokens_per_second is {rate:g}, but {tokens:g} tokens in {total.name} "
                    f"{total.ms / 1e3:g} s give {tokens / max(total.ms / 1e3, 1e-9):g}."
                )


@RULES.rule(
    "E_FIGURES_CONTRADICT", "First-token and average token latency add up to the total time."
)
def _check_latencies(claim: Claim) -> Iterator[str]:
    for path, fields in _timings(claim):
        total, first = duration(fields, *_TOTAL), duration(fields, *_FIRST)
        if total is None:
            continue
        tokens = find_number(fields, "tokens_generated")
        if tokens is None and path in ("", "performance_baseline"):
            tokens = claim.tokens_generated
        if first is not None and first.ms > _upper_ms(total, first):
            yield f"{first.name} is {first.ms:g} ms, but {total.name} is {total.ms:g} ms."
        average = duration(fields, *_AVERAGE)
        if tokens and average is not None:
            yield from _compare_sum(tokens, total, first, average)


def _compare_sum(
    tokens: float, total: Duration, first: Duration | None, average: Duration
) -> Iterator[str]:
    # first + (n-1) x average = total; some tools average over all n tokens instead.
    first_ms = first.ms if first is not None else 0.0
    summed_ms = first_ms + (tokens - 1) * average.ms
    slack_ms = AGREEMENT * total.ms + total.step_ms + tokens * average.step_ms
    slack_ms += first.step_ms if first is not None else 0.0
    over_all = abs(tokens * average.ms - total.ms) <= slack_ms
    excess_ms = summed_ms - total.ms
    contradicts = (excess_ms if first is None else abs(excess_ms)) > slack_ms
    if contradicts and not over_all:
        yield (
            f"{first_ms:g} ms + {tokens - 1:g} x {average.ms:g} ms = {summed_ms:g} ms, but "
            f"{total.name} is {total.ms:g} ms."
        )


@RULES.rule(
    "E_FIGURES_CONTRADICT",
    "Prefill and decode take no longer than the total time, and no duration is negative.",
)
def _check_durations(claim: Claim) -> Iterator[str]:
    for _, fields in _timings(claim):
        for stems in (_TOTAL, _FIRST, _AVERAGE, _PREFILL, _DECODE):
            found = duration(fields, *stems)
            if found is not None and found.ms < 0:
                yield f"{found.name} is negative: {found.ms:g} ms."
        total = duration(fields, *_TOTAL)
        found_phases = (duration(fields, *_PREFILL), duration(fields, *_DECODE))
        phases = [phase for phase in found_phases if phase is not None]
        if total is not None and phases:
            summed_ms = sum(phase.ms for phase in phases)
            if summed_ms > _upper_ms(total, *phases):
                names = " + ".join(phase.name for phase in phases)
                yield f"{names} = {summed_ms:g} ms, but {total.name} is {total.ms:g} ms."


def _upper_ms(total: Duration, *parts: Duration) -> float:
    """Return the largest possible sum of parts of ``total``, with rounding."""
    steps_ms = total.step_ms + sum(part.step_ms for part in parts)
    return total.ms + abs(total.ms) * AGREEMENT + steps_ms


_OFF = frozenset({"0", "false", "no", "off", "disabled"})
_FAILED = frozenset({"fail", "failed", "failure", "error", "errored", "divergence", "timeout"})


@RULES.rule("E_RUN_FAILED", "The receipt reports no failure of its own run.")
def _check_outcome(claim: Claim) -> Iterator[str]:
    # Some producers add these fields to the schema's.
    document = claim.document
    if document.get("success") is False:
        yield "success is false."
    if document.get("error") not in (None, "", False):
        yield f"error is {quote(document['error'])}."
    for name in ("exit_code", "returncode"):
        if find_number(document, name):
            yield f"{name} is {quote(document[name])}."
    if _is_failed(document.get("status")):
        yield f"status is {quote(document['status'])}."


@RULES.rule("E_RUN_FAILED", "No test within the receipt failed.")
def _check_tests(claim: Claim) -> Iterator[str]:
    # A model that computes the wrong thing has no performance.
    for name in ("test_results", "cross_validation", "parity"):
        for path, fields in find_objects(claim.document.get(name), name):
            yield from _failures(path, fields)


def _failures(path: str, fields: Mapping[str, object]) -> Iterator[str]:
    for name in ("failed", "errors", "failures"):
        if (find_number(fields, name) or 0) > 0:
            yield f"{path}.{name} is {find_number(fields, name):g}."
    for name in ("passed", "prefill_decode_parity", "parity_tests_passed", "success"):
        if fields.get(name) is False:
            yield f"{path}.{name} is false."
    for name in ("status", "outcome", "result"):
        if _is_failed(fields.get(name)):
            yield f"{path}.{name} is {quote(fields[name])}."
    error, tolerance = find_number(fields, "mse"), find_number(fields, "tolerance")
    if error is not None and tolerance is not None and error > tolerance:
        yield f"{path}.mse is {error:g}, above its tolerance of {tolerance:g}."
    total, passed = find_number(fields, "total_tests", "total"), find_number(fields, "passed")
    if total is not None and passed is not None:
        skipped = find_number(fields, "skipped", "ignored") or 0
        failed = find_number(fields, "failed") or 0
        if passed + skipped + failed != total:
            counts = f"{passed:g} passed, {failed:g} failed, {skipped:g} skipped"
            yield f"{path} counts {total:g} tests, but {counts}."


def _is_failed(status: object) -> bool:
    return isinstance(status, str) and status.strip().lower() in _FAILED


@RULES.rule("E_CORRECTED", "The figures are as measured: no corrections were applied.")
def _check_corrections(claim: Claim) -> Iterator[str]:
    # A corrected model is not the model that the receipt names.
    if claim.document.get("corrections"):
        yield f"corrections is {quote(claim.document['corrections'])}."
    for name in ("model", "model_info"):
        digest = find_table(claim.document, name).get("effective_correction_digest")
        if digest:
            yield f"{name}.effective_correction_digest is {quote(digest)}."


@RULES.rule(
    "E_NOT_DETERMINISTIC", "A receipt that claims determinism does not contradict the claim."
)
def _check_determinism(claim: Claim) -> Iterator[str]:
    if not claim.deterministic:
        return
    if (name := find_random_setting(claim.environment)) is not None:
        yield f"deterministic is true, but {quote(name)} is {quote(claim.environment[name])}."
    tests = find_table(find_table(claim.document, "test_results"), "determinism_tests")
    if tests.get("identical_sequences") is False:
        yield "deterministic is true, but the determinism test found different sequences."


def find_random_setting(environment: Mapping[str, str]) -> str | None:
    """Return a variable that switches determinism off, or is a seed that is no number."""
    for name, value in environment.items():
        if _prevents_determinism(name, value):
            return name
    return None


# The receipts of one project have the same few variables.
@lru_cache(maxsize=1024)
def _prevents_determinism(name: str, value: str) -> bool:
    variable, switch = f"_{name.upper()}", value.strip().lower()
    off = variable.endswith("_DETERMINISTIC") and switch in _OFF
    return off or (variable.endswith("_SEED") and bool(switch) and not _is_integer(switch))


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-").removeprefix("0x")
    return bool(digits) and all(character in "0123456789abcdef" for character in digits)


@RULES.rule(
    "E_HIDDEN_CHARACTER", "Environment and model contain no control or bidirectional character."
)
def _check_steering_characters(claim: Claim) -> Iterator[str]:
    # These texts are printed to terminals, logs and reports.
    for name, fields in (("environment", claim.environment), ("model", claim.model)):
        texts = [text for each in fields.items() for text in each if isinstance(text, str)]
        if find_control_character("".join(texts)) is None:
            continue
        for key, value in fields.items():
            for text in (key, value):
                steering = find_control_character(text) if isinstance(text, str) else None
                if steering is not None:
                    yield f"{name}.{key[:40]!a} contains {steering}."


@RULES.rule("E_FROM_THE_FUTURE", "The timestamp is not in the future.")
def _check_future(claim: Claim) -> Iterator[str]:
    allowed_s = CLOCK_DIFFERENCE_S
    if claim.max_age_s is not None:
        allowed_s = CLOCK_DIFFERENCE_UNDER_MAX_AGE_S
    if -claim.age_s > allowed_s:
        yield f"It is dated {quote(claim.document['timestamp'])}; today is {claim.now:%Y-%m-%d}."


@RULES.rule("E_EXPIRED", "The receipt is no older than its reader allows.", protects=None)
def _check_age(claim: Claim) -> Iterator[str]:
    # This stops an old receipt that is handed in again.
    if claim.max_age_s is not None and not claim.age_s <= claim.max_age_s:
        age_h, most_h = claim.age_s / 3600, claim.max_age_s / 3600
        yield f"The receipt is {age_h:,.1f} hours old; {most_h:,.1f} are allowed."

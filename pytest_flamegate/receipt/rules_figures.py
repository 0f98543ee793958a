"""Rules over the figures: plausible by themselves, and in agreement with each other.

Rounding is honest and cutting off milliseconds is too, so figures agree within
``AGREEMENT`` and the last digit that was written. Slow is not dishonest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.claim import duration, number, objects
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.claim import Claim, Duration

MAX_TOKENS_PER_SECOND = 1e6
"""One token each microsecond. The fastest single streams known reach some 10^4 a second,
and a microsecond does not even cover one pass over a toy model's weights."""

AGREEMENT = 0.02
"""Two figures agree within 2 %: one digit after the point of a slow rate is 1 %."""

RULES: Rulebook[Claim] = Rulebook()

_TOTAL = ("total_time", "total", "total_latency", "total_duration")
_FIRST = ("first_token_latency", "first_token", "time_to_first_token", "ttft")
_AVERAGE = ("average_token_latency", "avg_token_latency", "mean_token_latency")
_PREFILL = ("prefill", "prefill_time", "prefill_latency", "prefill_duration")
_DECODE = ("decode", "decode_time", "decode_latency", "decode_duration")
_FIX = "Measure again and let the tool write every figure from the same run."


@RULES.rule(
    "E_TPS_IMPLAUSIBLE",
    f"tokens_per_second is at most {MAX_TOKENS_PER_SECOND:,.0f}.",
    todo="Check the unit and the clock: no machine generates a token in less than a microsecond.",
    protects=Grade.CONSISTENT,
    needs={"tokens_per_second"},
)
def _tps_implausible(claim: Claim) -> Iterator[str]:
    # There is an upper bound to what can be believed, and none below.
    if claim.tokens_per_second > MAX_TOKENS_PER_SECOND:
        yield f"{claim.tokens_per_second:g} tokens per second are more than any machine makes."


@RULES.rule(
    "E_TOKENS_EXCEED_REQUEST",
    "No more tokens are generated than were requested.",
    todo="Count the tokens of one run only.",
    protects=Grade.CONSISTENT,
    needs={"tokens_requested", "tokens_generated"},
)
def _tokens_exceed_request(claim: Claim) -> Iterator[str]:
    # Fewer is honest: the model may end early.
    if claim.tokens_generated > claim.tokens_requested:
        yield (
            f"{claim.tokens_generated} tokens were generated of {claim.tokens_requested} requested."
        )


@RULES.rule(
    "E_TOKENS_DISAGREE",
    "performance_baseline counts the same tokens as the receipt.",
    todo=_FIX,
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


@RULES.rule(
    "E_TPS_DISAGREE",
    "performance_baseline states the same rate as the receipt.",
    todo=_FIX,
    protects=Grade.CONSISTENT,
    needs={"tokens_per_second"},
)
def _tps_disagree(claim: Claim) -> Iterator[str]:
    # Two rates for one run: at least one is wrong.
    stated = number(claim.performance, "tokens_per_second")
    rate = claim.tokens_per_second
    if stated is not None and abs(stated - rate) > AGREEMENT * rate:
        yield f"tokens_per_second is {rate:g}, and {stated:g} in performance_baseline."


@RULES.rule(
    "E_TPS_CONTRADICTS_TIME",
    "tokens_per_second is the tokens divided by the total time, where a total time is given.",
    todo=_FIX,
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


@RULES.rule(
    "E_LATENCY_CONTRADICTION",
    "First-token and average token latency add up to the total time.",
    todo=_FIX,
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


@RULES.rule(
    "E_PHASES_EXCEED_TOTAL",
    "Prefill and decode together take no longer than the total time.",
    todo=_FIX,
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


@RULES.rule(
    "E_NEGATIVE_TIME",
    "No duration is negative.",
    todo="Use a monotonic clock.",
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

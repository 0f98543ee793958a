"""Several attempts at one comparison: what all of them together show.

A change that fails by chance passes by chance too, if its check may be repeated until it does.
So the answer of the first attempt stands, until all attempts together contradict it.

Each attempt gives two e-values: one against "not slower", one against "slower by the threshold or
more". An e-value is at most 1 on average if its hypothesis is true. Those of independent attempts
are multiplied, and whenever one stops, the product exceeds 1,000 in at most one of 1,000 heads for
which the hypothesis is true (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytest_flamegate.gate.pairs import DOUBTS, pair_differences
from pytest_flamegate.gate.rule import (
    ErrorRates,
    RateDecision,
    RateVerdict,
    Reason,
    decide,
    describe_interval,
    describe_rate_change,
    rate_change_pct,
)
from pytest_flamegate.gate.statistics import Estimate, mean, trimmed_mean
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.receipt.types import Evidence, VerdictName

LATER_ERROR_RATE = 0.001
"""Probability of a false alarm, and of a miss, over all attempts after the first."""
EFFECTS = (1.0, 5.0, 25.0)
"""Variances of the change, in those of a pair, that the e-value averages over: a threshold is about
one standard deviation of a pair on a busy machine, and ten on a quiet one."""
_ENOUGH = -math.log(LATER_ERROR_RATE)
"""ln of the product that contradicts a hypothesis."""
_LARGEST_RATIO = 1e9
_WIDEST = 3.0
"""No bound in log time is further out: a factor of 20."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One measurement of a head against its base, judged alone.

    Attributes:
        created: When it ended by its own files, in UTC; they do not order attempts.
        verdict: Its verdict, of everything that was judged.
        decision: That on tokens per second alone, ``inconclusive`` if there is none.
        differences: Log time per token of head less that of base for each pair; none if the pairs
            could not be compared or their clock is in doubt.
        base_rate: Tokens per second of the base; meaningless without pairs.
        others_regressed: Whether a share, a brick or the whole of a program regressed, whatever the
            rate did.
        problem: Why it cannot be judged, which leaves later attempts open; empty if it can.
    """

    created: str
    verdict: VerdictName
    decision: RateDecision = "inconclusive"
    differences: tuple[float, ...] = ()
    base_rate: float = 1.0
    others_regressed: bool = False
    problem: str = ""


def attempt_of(verdict: Verdict, base: Evidence, head: Evidence) -> Attempt:
    """Return a comparison in pairs as an attempt."""
    rate = verdict.signal()
    others_regressed = any(
        each.decision == "regressed" for each in verdict.signals if each is not rate
    ) or any(each.code == "E_WHOLE_SLOWER" for each in verdict.reasons)
    attempt = Attempt(head.created, verdict.verdict, others_regressed=others_regressed)
    if rate is None or verdict.pairs is None or any(e.code in DOUBTS for e in rate.reasons):
        return attempt
    pairs = pair_differences(base, head)[: verdict.pairs]
    decision: RateDecision = "inconclusive"
    match rate.decision:
        case "pass" | "improved" | "regressed" as known:
            decision = known
    return replace(
        attempt,
        decision=decision,
        differences=tuple(each.quiet for each in pairs),
        base_rate=rate.baseline or 1.0,
    )


@dataclass(frozen=True, slots=True)
class PooledRate:
    """What several attempts show together; ``reason`` states it.

    ``change`` is in log time. Bounds, change and ``base_rate`` are those of the attempts that
    decide: of the first if its answer stands. ``pairs`` counts the pairs of all attempts.
    """

    verdict: RateVerdict
    change: float
    base_rate: float
    pairs: int
    reason: Reason


def pool_attempts(
    attempts: Sequence[Attempt], threshold: float, rates: ErrorRates
) -> PooledRate | None:
    """Judge the pairs of all attempts, in their order; ``threshold`` is the drop in log time.

    ``rates`` are the error rates of one attempt. None if there are no two attempts with pairs.
    """
    measured = [each for each in attempts if each.differences]
    if len(measured) < 2:
        return None
    decision, count = decide_together(measured, threshold)
    changes = [trimmed_mean(each.differences) for each in measured]
    low, change, high = _find_bounds(changes[:count])
    alone = decide(trimmed_mean(_list_pairs(measured[:count])), threshold, rates)
    verdict = RateVerdict(
        decision, low, high, low > 0.0, high < 0.0, max(alone.detectable, high - change)
    )
    answer = "together they settle it"
    if decision == "inconclusive":
        answer = "together they do not settle it yet"
    elif count == 1:
        all_low, all_change, all_high = map(rate_change_pct, _find_bounds(changes))
        answer = (
            "the answer of the first stands, because together they do not contradict it "
            f"({describe_rate_change(all_change)}, {describe_interval(all_high, all_low)})"
        )
        verdict, change = replace(alone, decision=decision), changes[0].mean_diff
    elif decision == "pass" and verdict.faster and low <= -threshold:
        verdict = replace(verdict, decision="improved")
    pairs = len(_list_pairs(measured))
    of = "the first attempt" if count == 1 else f"{count} attempts together"
    words = ", ".join(each.verdict.replace("_", " ") for each in attempts)
    message = (
        f"{len(attempts)} attempts at this comparison were pooled, with {pairs} pairs. Each by "
        f"itself: {words}; {answer}. The rates, their change and its interval are those of {of}; "
        "phases, functions and lines are those of this one."
    )
    base_log = mean([math.log(e.base_rate) for e in measured[:count] for _ in e.differences])
    return PooledRate(verdict, change, math.exp(base_log), pairs, Reason("I_ATTEMPTS", message))


def decide_together(attempts: Sequence[Attempt], threshold: float) -> tuple[RateDecision, int]:
    """Return the decision on attempts with pairs, and how many of the first ones it rests on.

    It rests on one if the answer of the first stands. A gain counts as ``pass``, except if it is
    the answer of the first.
    """
    decision = attempts[0].decision
    count = len(attempts) if decision == "inconclusive" else 1
    slower = allowed = 0.0
    for number, attempt in enumerate(attempts, start=1):
        changes = [trimmed_mean(attempt.differences)]
        slower += _log_e_at_most(changes, 0.0)
        allowed += _log_e_at_least(changes, threshold)
        if number > 1 and max(slower, allowed) >= _ENOUGH:
            decision = "pass" if allowed >= _ENOUGH else "regressed"
            count = number
    return decision, count


def _list_pairs(attempts: Sequence[Attempt]) -> list[float]:
    return [each for attempt in attempts for each in attempt.differences]


def _log_e_at_most(changes: Sequence[Estimate], bound: float) -> float:
    """Return ln of the product of the e-values against a change of at most ``bound``."""
    return sum(log_e_value(replace(each, mean_diff=each.mean_diff - bound)) for each in changes)


def _log_e_at_least(changes: Sequence[Estimate], bound: float) -> float:
    """Return ln of the product of the e-values against a change of at least ``bound``."""
    return sum(log_e_value(replace(each, mean_diff=bound - each.mean_diff)) for each in changes)


def _find_bounds(changes: Sequence[Estimate]) -> tuple[float, float, float]:
    """Return the smallest change that is not contradicted, the best one, and the largest.

    They agree with the decision: the first is above zero if "not slower" is contradicted, and the
    last below the threshold if a slowdown by the threshold is. The best one is contradicted
    equally from both sides.
    """

    def bisect(is_above: Callable[[float], bool]) -> float:
        low, high = -_WIDEST, _WIDEST
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (low, middle) if is_above(middle) else (middle, high)
        return high

    return (
        bisect(lambda bound: _log_e_at_most(changes, bound) < _ENOUGH),
        bisect(lambda bound: _log_e_at_most(changes, bound) < _log_e_at_least(changes, bound)),
        bisect(lambda bound: _log_e_at_least(changes, bound) >= _ENOUGH),
    )


def find_open_attempts(attempts: Sequence[Attempt]) -> tuple[Reason, ...]:
    """Report attempts that cannot be judged, or regressed in something besides tokens per second.

    Any of the former may have been red. Nothing is pooled for shares and bricks, so another attempt
    does not answer them.
    """
    if problems := [each.problem for each in attempts if each.problem]:
        message = f"An earlier attempt cannot be judged, and may have regressed: {problems[0]}"
        return (Reason("E_EARLIER_ATTEMPT", message),)
    others = [each for each in attempts if each.others_regressed]
    if not others:
        return ()
    message = (
        f"The attempt of {others[0].created} regressed in shares, in bricks or as a whole, and "
        "only tokens per second are pooled. Read its report; if that was chance, push another "
        "commit."
    )
    return (Reason("E_EARLIER_ATTEMPT", message),)


def log_e_value(estimate: Estimate) -> float:
    """Return ln of the e-value of the hypothesis that the true mean is not above zero.

    It is the Bayes factor of the t test, for effects that are normal around zero, averaged over
    ``EFFECTS``; an estimate below zero counts as zero, so it never says more than the factor.
    """
    count = estimate.df + 1.0
    ratio = _LARGEST_RATIO
    if estimate.standard_error > 0.0:
        t = max(0.0, estimate.mean_diff) / estimate.standard_error
        ratio = min(t * t / estimate.df, _LARGEST_RATIO)
    elif estimate.mean_diff <= 0.0:
        ratio = 0.0
    logs = []
    for effect in EFFECTS:
        wider = 1.0 + count * effect
        gain = math.log1p(ratio) - math.log1p(ratio / wider)
        logs.append(0.5 * (count * gain - math.log(wider)))
    most = max(logs)
    return most + math.log(math.fsum(math.exp(each - most) for each in logs) / len(logs))

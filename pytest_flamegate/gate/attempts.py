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
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_flamegate.gate.pairs import DOUBTS, pair_differences, trimmed_mean
from pytest_flamegate.gate.rule import ErrorRates, RateDecision, RateVerdict, Reason, decide
from pytest_flamegate.gate.statistics import Estimate
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.receipt.types import Evidence, VerdictName

LATER_ERROR_RATE = 0.001
"""Probability of a false alarm, and of a miss, over all attempts after the first."""
EFFECTS = (1.0, 5.0, 25.0)
"""Variances of the change, in those of a pair, that the e-value averages over: a threshold is about
one standard deviation of a pair on a busy machine, and ten on a quiet one."""
_LARGEST_RATIO = 1e9
_DECISIONS: tuple[RateDecision, ...] = ("pass", "improved", "regressed")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One measurement of a head against its base, judged alone.

    Attributes:
        created: When it ended, in UTC; the order of attempts.
        verdict: Its verdict, of everything that was judged.
        decision: That on tokens per second alone, ``inconclusive`` if there is none.
        differences: Log time per token of head less that of base for each pair; none if the pairs
            could not be compared or their clock is in doubt.
    """

    created: str
    verdict: VerdictName
    decision: RateDecision = "inconclusive"
    differences: tuple[float, ...] = ()


def attempt_of(verdict: Verdict, base: Evidence, head: Evidence) -> Attempt:
    """Return a comparison in pairs as an attempt."""
    rate = verdict.signal()
    if rate is None or verdict.pairs is None or any(e.code in DOUBTS for e in rate.reasons):
        return Attempt(head.created, verdict.verdict)
    pairs = pair_differences(base, head)[: verdict.pairs]
    found: RateDecision = "inconclusive"
    for decision in _DECISIONS:
        found = decision if decision == rate.decision else found
    return Attempt(head.created, verdict.verdict, found, tuple(each.quiet for each in pairs))


@dataclass(frozen=True, slots=True)
class PooledRate:
    """What several attempts show together.

    ``reason`` states it. ``estimate`` and the bounds in ``verdict`` are those of all pairs.
    """

    estimate: Estimate
    verdict: RateVerdict
    reason: Reason


def pool_attempts(
    attempts: Sequence[Attempt], threshold: float, rates: ErrorRates
) -> PooledRate | None:
    """Judge the pairs of all attempts; ``threshold`` is the allowed drop in log time.

    ``rates`` are the error rates of one attempt. None if there are no two attempts with pairs.
    """
    ordered = sorted(attempts, key=lambda each: each.created)
    measured = [each for each in ordered if each.differences]
    if len(measured) < 2:
        return None
    decision, settled = measured[0].decision, False
    slower = allowed = 0.0
    for number, attempt in enumerate(measured):
        change = trimmed_mean(attempt.differences)
        slower += log_e_value(change)
        allowed += log_e_value(replace(change, mean_diff=threshold - change.mean_diff))
        if number and max(slower, allowed) >= -math.log(LATER_ERROR_RATE):
            settled = True
            decision = "pass" if allowed >= -math.log(LATER_ERROR_RATE) else "regressed"
    if decision == "pass" and measured[-1].decision == "improved":
        decision = "improved"
    pairs = [each for attempt in measured for each in attempt.differences]
    estimate = trimmed_mean(pairs)
    verdict = replace(decide(estimate, threshold, rates), decision=decision)
    words = ", ".join(each.verdict.replace("_", " ") for each in ordered)
    answer = "together they settle it"
    if decision == "inconclusive":
        answer = "together they do not settle it yet"
    elif not settled:
        answer = "the answer of the first stands, because together they do not contradict it"
    message = (
        f"{len(ordered)} attempts at this comparison were pooled, with {len(pairs)} pairs. Each by "
        f"itself: {words}; {answer}."
    )
    return PooledRate(estimate, verdict, Reason("I_ATTEMPTS", message))


def find_open_attempts(attempts: Sequence[Attempt]) -> tuple[Reason, ...]:
    """Report attempts that regressed in something other than tokens per second.

    Nothing is pooled for shares and bricks, so another attempt does not answer them.
    """
    others = [e for e in attempts if e.verdict == "regressed" and e.decision != "regressed"]
    if not others:
        return ()
    message = (
        f"The attempt of {others[0].created} regressed in shares or bricks, and only tokens per "
        "second are pooled. Read its report; if that was chance, push another commit."
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

"""After how many pairs a comparison may be decided, and how its error rates are spent on that."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.gate.pairs import PairedSide, judge_whole, pair_differences
from pytest_flamegate.gate.rule import ErrorRates, RateVerdict, decide, log_time_of_drop
from pytest_flamegate.gate.statistics import Estimate, trimmed_mean

FIRST_ANALYSES = (4, 6, 8, 10, 14, 20, 28)
"""Numbers of pairs at which a decision is allowed; each further one waits for 40 % more. They are
even, because two pairs run at once."""
_GROWTH = math.sqrt(2.0)
PAIR_MISS_RATE = 0.015
"""Less than for a stored baseline: with 5 % an early analysis let 1.1 % of the slowdowns of exactly
the threshold pass under load."""
_NARROW = 0.25
"""Half an interval, in thresholds, up to which a slowdown below the threshold fails at once."""


@dataclass(frozen=True, slots=True)
class InterimAnalysis:
    """The estimate and the decision after the first ``pairs`` pairs."""

    pairs: int
    estimate: Estimate
    verdict: RateVerdict


def plan_analyses(most: int) -> tuple[int, ...]:
    """Return the analyses for at most ``most`` pairs: the first seven, or more of the same growth.

    The plan is made before anything is measured, because the error rates are spent over all of it.
    """
    planned = list(FIRST_ANALYSES)
    while (following := round(planned[-1] * _GROWTH)) <= most:
        planned.append(following)
    return tuple(planned)


def plan_pair_counts(budget_s: float) -> tuple[int, ...]:
    """Return the numbers of pairs at which a comparison is judged; more for a longer budget."""
    return plan_analyses(round(FIRST_ANALYSES[-1] * max(1.0, budget_s / COMPARE_BUDGET_S)))


def pair_rates(analyses: Sequence[int]) -> ErrorRates:
    """Return the error rates of a comparison, spent over its planned analyses."""
    return ErrorRates(miss=PAIR_MISS_RATE, analyses=len(analyses))


def last_analysis(
    base: PairedSide, head: PairedSide, drop_pct: float, analyses: Sequence[int], *, ended: bool
) -> InterimAnalysis | None:
    """Return the last analysis of tokens per second that was due; None before the first.

    Raises ``UndecidedError`` ``E_UNPAIRED`` if the runs of the two sides do not belong together.
    """
    differences = [pair.quiet for pair in pair_differences(base, head)]
    return analyse(
        lambda pairs: trimmed_mean(differences[:pairs]),
        len(differences),
        log_time_of_drop(drop_pct),
        analyses,
        ended=ended,
    )


def is_whole_open(
    base: PairedSide, head: PairedSide, analysis: InterimAnalysis, drop_pct: float
) -> bool:
    """Return whether a program that would pass looks slower as a whole, and more pairs may tell.

    Whether all pairs are certain of it is left to the last look, on which the error rate is spent.
    """
    pairs, threshold = pair_differences(base, head), log_time_of_drop(drop_pct)
    first, now = (
        judge_whole(pairs[:count], analysis.pairs, analysis.verdict, head, threshold)
        for count in (analysis.pairs, len(pairs))
    )
    return now is not None and not (first is not None and first.leaves_open)


def analyse(
    estimate: Callable[[int], Estimate],
    count: int,
    threshold: float,
    analyses: Sequence[int],
    *,
    ended: bool,
) -> InterimAnalysis | None:
    """Return the last analysis that was due once ``count`` pairs are measured; None before any.

    No analysis follows a decision, so further pairs change nothing that was decided. A slowdown
    that is probably allowed stays open while more pairs may show it: with the wide interval of a
    few pairs a drop of two thirds of the threshold may reach it. More pairs let most of them pass.
    A change that passes and is probably an improvement beyond the threshold stays open until that
    is certain. The last analysis judges by the rule alone.

    If the time is over before the plan, the last analysis spends what the plan had left of the
    error rates. The time says nothing about the change, so they are kept: four pairs of a busy
    machine decide about changes half as large.

    Args:
        estimate: Returns the change of log time per token after the first so many pairs.
        count: The number of measured pairs.
        threshold: The allowed drop in log time.
        analyses: The plan.
        ended: No more pairs will come: then all there are take the place of the next analysis, if
            they are enough for the first.
    """
    due = [pairs for pairs in analyses if pairs <= count]
    if ended and due and count < analyses[-1] and count != due[-1]:
        due.append(count)
    rates = pair_rates(analyses)
    found = None
    for done, pairs in enumerate(due):
        change = estimate(pairs)
        verdict = decide(change, threshold, rates)
        is_wide = verdict.high - change.mean_diff > _NARROW * threshold
        is_small = verdict.decision == "regressed" and change.mean_diff < threshold and is_wide
        if is_small or (verdict.decision == "pass" and change.mean_diff < -threshold):
            verdict = replace(verdict, decision="inconclusive")
        is_last = pairs == analyses[-1] or (ended and pairs == due[-1])
        if is_last and verdict.decision == "inconclusive":
            verdict = decide(change, threshold, rates.spend_rest(done))
        found = InterimAnalysis(pairs, change, verdict)
        if verdict.decision != "inconclusive":
            break
    return found

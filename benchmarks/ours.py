"""This package's own rule on stored pairs, within the budget that users get by default."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from benchmarks.replay import Method, Outcome
from benchmarks.streams import Pair
from pytest_flamegate.config.options import COMPARE_BUDGET_S
from pytest_flamegate.gate.analyses import (
    FIRST_ANALYSES,
    analyse,
    plan_analyses,
    plan_pair_counts,
)
from pytest_flamegate.gate.rule import log_time_of_drop
from pytest_flamegate.gate.statistics import trimmed_mean
from pytest_flamegate.observe.observation import MOST_AT_ONCE
from pytest_flamegate.run.schedule import PAIRS_SHARE

PAIRS_BUDGET_S = COMPARE_BUDGET_S * PAIRS_SHARE
"""Seconds that a comparison spends on pairs by default, if it also profiles."""


def flamegate(
    drop_pct: float,
    analyses: Sequence[int] = FIRST_ANALYSES,
    budget_s: float = PAIRS_BUDGET_S,
) -> Method:
    """Return the gate that allows a drop of ``drop_pct`` %, with that plan of analyses.

    Like the product it starts no further pair after ``budget_s`` seconds.
    """
    threshold = log_time_of_drop(drop_pct)

    def judge(pairs: Sequence[Pair]) -> Outcome:
        ends_s = list(accumulate(pair.took_s for pair in pairs))
        # The pairs that run when the budget ends are completed, and the first analysis is awaited.
        count = max(analyses[0], bisect_left(ends_s, budget_s) + 1)
        count = min(len(pairs), count + count % MOST_AT_ONCE)
        differences = [pair.difference for pair in pairs[:count]]
        last = analyse(
            lambda number: trimmed_mean(differences[:number]),
            count,
            threshold,
            analyses,
            ended=True,
        )
        if last is None:
            raise ValueError(f"{count} pairs are too few for the first analysis")
        return Outcome(last.verdict.decision, last.pairs, ends_s[last.pairs - 1])

    return Method(f"flamegate, τ = {drop_pct:g} %", analyses[-1], judge)


def within_budget(drop_pct: float, budget_s: float) -> Method:
    """Return the gate under ``--flamegate-budget=BUDGET_S``, if it also profiles."""
    return flamegate(drop_pct, plan_pair_counts(budget_s), PAIRS_SHARE * budget_s)


def flamegate_up_to(drop_pct: float, most: int) -> Method:
    """Return the gate with a budget that suffices for ``most`` pairs."""
    return flamegate(drop_pct, plan_analyses(most), math.inf)

"""This package's own rule on kept pairs: the code that gates, on the differences of its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.replay import Method, Outcome
from pytest_flamegate.gate import FIRST_ANALYSES, plan_analyses
from pytest_flamegate.gate.pairs import interim_analyses, pair_rates
from pytest_flamegate.gate.signals import log_time_of_drop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.streams import Pair


def flamegate(drop_pct: float, looks: Sequence[int] = FIRST_ANALYSES) -> Method:
    """Return the gate that allows a drop of ``drop_pct`` %, with that plan of looks."""
    rates, threshold = pair_rates(looks), log_time_of_drop(drop_pct)

    def judge(pairs: Sequence[Pair]) -> Outcome:
        differences = [pair.difference for pair in pairs]
        last = interim_analyses(differences, threshold, rates, looks, ended=True)[-1]
        took_s = sum(pair.took_s for pair in pairs[: last.pairs])
        return Outcome(last.verdict.decision, last.pairs, took_s)

    return Method(f"flamegate, τ = {drop_pct:g} %", looks[-1], judge)


def flamegate_up_to(drop_pct: float, most: int) -> Method:
    """Return the gate with the looks that a budget for ``most`` pairs plans."""
    return flamegate(drop_pct, plan_analyses(most))

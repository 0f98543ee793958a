from __future__ import annotations

import random

import pytest

from benchmarks.ours import flamegate, flamegate_up_to
from pytest_flamegate.gate import FIRST_ANALYSES
from tests.benchmarks.made import pairs

QUIET = [0.1, -0.1, 0.2, -0.2, 0.0] * 6
"""Percent by which heads of unchanged code differ here."""


@pytest.mark.parametrize(
    ("shift_pct", "decision"), [(0.0, "pass"), (10.0, "regressed"), (-10.0, "improved")]
)
def test_our_rule_decides_at_its_first_look_where_it_can(shift_pct: float, decision: str) -> None:
    found = flamegate(5.0).judge(pairs(*(shift_pct + each for each in QUIET[:28])))
    assert (found.decision, found.pairs, found.took_s) == (decision, 5, 10.0)


def test_our_rule_may_be_undecided_after_its_last_look() -> None:
    rng = random.Random(1)
    found = flamegate_up_to(2.0, 28).judge(pairs(*(rng.gauss(1.0, 10.0) for _ in range(28))))
    assert (found.decision, found.pairs) == ("inconclusive", 28)


def test_the_default_budget_ends_it() -> None:
    rng = random.Random(1)
    noisy = pairs(*(rng.gauss(1.0, 10.0) for _ in range(28)))
    found = flamegate(2.0).judge(noisy)
    assert (found.decision, found.pairs) == ("inconclusive", 18)  # 2 s each, 35 s allowed


def test_a_larger_budget_plans_more_looks() -> None:
    assert flamegate_up_to(2.0, 28).most == FIRST_ANALYSES[-1]
    assert flamegate_up_to(2.0, 57).most == 57

"""The rules of honesty over a receipt alone, in the order in which they are reported.

They are grouped by what they look at: the kernels' names, the figures against each
other, and what the receipt says about its own run. A new rule is one function in its
group; a new group is one more name below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.rules import bricks, claim, figures, origin, profile, runs, suspicions
from pytest_flamegate.receipt.rules.rule import Rulebook

if TYPE_CHECKING:
    from pytest_flamegate.receipt.rules.subject import Case, Claim


CHECKS: Rulebook[Case] = Rulebook(
    origin.CROSSCHECK_ORIGIN_CHECKS,
    runs.CHECKS,
    runs.CROSSCHECK_TIMES_CHECKS,
    figures.CROSSCHECK_FIGURES_CHECKS,
    figures.CHECKS,
    profile.CROSSCHECK_PROFILE_CHECKS,
    bricks.CHECKS,
    profile.CHECKS,
    origin.CHECKS,
)
"""Broken: the evidence contradicts the receipt or itself, and the receipt is refused."""

SUSPICIONS: Rulebook[Case] = Rulebook(suspicions.SUSPICIONS)
"""Broken: something looks unlike what is measured. That alone says nothing of honesty."""

SHORTFALLS: Rulebook[Case] = Rulebook(
    origin.CROSSCHECK_ORIGIN_SHORTFALLS,
    runs.SHORTFALLS,
    figures.SHORTFALLS,
    profile.SHORTFALLS,
    origin.SHORTFALLS,
    suspicions.SHORTFALLS,
)
"""Broken: something was not observed. That lowers the grade and refuses nothing."""

RULES: Rulebook[Claim] = Rulebook(claim.RULES_KERNELS_RULES, claim.RULES_FIGURES_RULES, claim.RULES)
"""Broken: the receipt is refused."""

NOTICES: Rulebook[Claim] = Rulebook(claim.NOTICES)
"""Worth knowing, and no reason to refuse."""

"""The rules of honesty over a receipt alone, in the order in which they are reported.

They are grouped by what they look at: the kernels' names, the figures against each
other, and what the receipt says about its own run. A new rule is one function in its
group; a new group is one more name below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt import rules_conduct, rules_figures, rules_kernels
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from pytest_flamegate.receipt.claim import Claim

RULES: Rulebook[Claim] = Rulebook(rules_kernels.RULES, rules_figures.RULES, rules_conduct.RULES)
"""Broken: the receipt is refused."""

NOTICES: Rulebook[Claim] = Rulebook(rules_kernels.NOTICES)
"""Worth knowing, and no reason to refuse."""

"""The rules of honesty, in the order in which breaches are reported.

A new rule is one function in the module of its subject, and its remedy in ``receipt/codes.toml``;
a new module is one more name below.
"""

from pytest_flamegate.receipt.rules import (
    bricks,
    claim,
    figures,
    kernels,
    origin,
    plausibility,
    profile,
    prompts,
    runs,
)
from pytest_flamegate.receipt.rules.rule import Claim, Rulebook, Submission

RULES: Rulebook[Claim] = Rulebook(kernels.RULES, claim.RULES)
"""Broken if the receipt contradicts itself. The receipt is rejected."""

NOTICES: Rulebook[Claim] = Rulebook(kernels.NOTICES)
"""Worth knowing, and no reason to reject the receipt."""

CHECKS: Rulebook[Submission] = Rulebook(
    *(origin.CHECKS, runs.CHECKS, prompts.CHECKS, figures.CHECKS),
    *(profile.CHECKS, bricks.CHECKS, kernels.CHECKS),
)
"""Broken if the evidence contradicts the receipt or itself. The receipt is rejected."""

SUSPICIONS: Rulebook[Submission] = Rulebook(plausibility.SUSPICIONS)
"""Broken if something is unlike measured data. That alone proves nothing."""

SHORTFALLS: Rulebook[Submission] = Rulebook(
    *(origin.SHORTFALLS, runs.SHORTFALLS, figures.SHORTFALLS),
    *(profile.SHORTFALLS, kernels.SHORTFALLS, plausibility.SHORTFALLS),
)
"""Broken if something was not observed. That lowers the grade and rejects nothing."""

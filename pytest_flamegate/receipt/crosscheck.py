"""The rules over receipt and evidence together, in the order in which they are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt import (
    crosscheck_bricks,
    crosscheck_device,
    crosscheck_figures,
    crosscheck_hotspots,
    crosscheck_origin,
    crosscheck_profile,
    crosscheck_reported,
    crosscheck_runs,
    crosscheck_suspicions,
    crosscheck_times,
)
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from pytest_flamegate.receipt.case import Case

CHECKS: Rulebook[Case] = Rulebook(
    crosscheck_origin.CHECKS,
    crosscheck_runs.CHECKS,
    crosscheck_times.CHECKS,
    crosscheck_figures.CHECKS,
    crosscheck_reported.CHECKS,
    crosscheck_profile.CHECKS,
    crosscheck_bricks.CHECKS,
    crosscheck_hotspots.CHECKS,
    crosscheck_device.CHECKS,
)
"""Broken: the evidence contradicts the receipt or itself, and the receipt is refused."""

SUSPICIONS: Rulebook[Case] = Rulebook(crosscheck_suspicions.SUSPICIONS)
"""Broken: something looks unlike what is measured. That alone says nothing of honesty."""

SHORTFALLS: Rulebook[Case] = Rulebook(
    crosscheck_origin.SHORTFALLS,
    crosscheck_runs.SHORTFALLS,
    crosscheck_figures.SHORTFALLS,
    crosscheck_profile.SHORTFALLS,
    crosscheck_device.SHORTFALLS,
    crosscheck_suspicions.SHORTFALLS,
)
"""Broken: something was not observed. That lowers the grade and refuses nothing."""

"""How often a verdict may be wrong, as far as that is known.

The rule spends nominal rates over its analyses (`rule`). Whether a machine keeps them is known
only if the rule was replayed on real pairs: by a calibration of this machine, or on the kept pairs
of one engine and threshold that ``SIMULATIONS`` lists. For anything else a verdict says that its
error rates are not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.statistics import Count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.gate.rule import ErrorRates


@dataclass(frozen=True, slots=True)
class ReportedRates:
    """The error rates that a verdict reports, 0 to 1; None if they are not known.

    ``basis`` says how they are known, as sentences without the last full stop.
    """

    false_alarm: float | None
    miss: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class Simulation:
    """A replay of the whole rule on kept pairs of unchanged code.

    It stands for gates of the same engine, workload and threshold with the default budget.
    ``alarms`` counts gates that share no pair.
    """

    engine: str
    workload: str
    threshold_pct: float
    alarms: Count
    pairs: int
    date: str

    @property
    def words(self) -> str:
        """One sentence without its full stop."""
        return (
            f"replayed with the default budget on {self.pairs:,} pairs of unchanged code "
            f"({self.date}, two busy cores): {self.alarms.failures} of {self.alarms.trials} gates "
            f"raised an alarm (≤ {100 * self.alarms.upper:.1f} %)"
        )


SIMULATIONS = (Simulation("embedded", "passage", 5.0, Count(0, 257), 1687, "2026-11-21"),)
"""Recomputed from benchmarks/data by tests/gate/test_error_rates.py."""


def nominal_rates(rates: ErrorRates) -> ReportedRates:
    """Return that the error rates of a comparison with a stored baseline are not known."""
    spent = f", spent over {rates.analyses} analyses" if rates.analyses > 1 else ""
    return ReportedRates(
        None,
        None,
        f"not calibrated. The rule allows {100 * rates.false_alarm:g} % false alarms for tokens "
        f"per second, as many for all shares together, and {100 * rates.miss:g} % misses{spent}",
    )


def pair_error_rates(
    workload: Mapping[str, object],
    threshold_pct: float,
    rates: ErrorRates,
    *,
    default_plan: bool,
) -> ReportedRates:
    """Return the error rates of a comparison in pairs that no calibration covers.

    Args:
        workload: The recipe in the evidence.
        threshold_pct: The allowed drop.
        rates: The nominal rates.
        default_plan: The analyses are those of the default budget.
    """
    nominal = (
        f"The rule allows {100 * rates.false_alarm:g} % false alarms and {100 * rates.miss:g} % "
        f"misses, spent over {rates.analyses} analyses"
    )
    found = _find(SIMULATIONS, workload, threshold_pct) if default_plan else None
    if found is None:
        return ReportedRates(
            None, None, f"not calibrated on this machine: flamegate calibrate does. {nominal}"
        )
    return ReportedRates(
        found.alarms.upper,
        None,
        f"{found.words}. Not calibrated on this machine: flamegate calibrate does. {nominal}",
    )


def _find(
    simulations: Sequence[Simulation], workload: Mapping[str, object], threshold_pct: float
) -> Simulation | None:
    wanted = workload.get("engine"), workload.get("name"), threshold_pct
    matching = (
        each for each in simulations if (each.engine, each.workload, each.threshold_pct) == wanted
    )
    return next(matching, None)

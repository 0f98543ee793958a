"""From two sides measured in pairs to a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.gate.bricks import judge_bricks
from pytest_flamegate.gate.combining import combined, helped_by, ordered, share_signal
from pytest_flamegate.gate.comparability import compare
from pytest_flamegate.gate.cost import explained_by
from pytest_flamegate.gate.hotspots import ShareDrift, judge_shares
from pytest_flamegate.gate.instructions import instruction_signals, reasons_of
from pytest_flamegate.gate.judgement import budgeted, check_settings, copied, not_comparable
from pytest_flamegate.gate.measurement import measurement_of
from pytest_flamegate.gate.pairs import (
    FIRST_LOOKS,
    Look,
    estimate_of,
    looks_at,
    pair_differences,
)
from pytest_flamegate.gate.phases import phase_changes
from pytest_flamegate.gate.signals import (
    ErrorRates,
    Known,
    Reason,
    log_time_of_drop,
    rate_change_pct,
)
from pytest_flamegate.gate.throughput import (
    rate_signal,
    wall_signal,
)
from pytest_flamegate.gate.verdict import Verdict, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.pairs import PairDifference, Side
    from pytest_flamegate.receipt.types import Evidence
    from pytest_flamegate.workload.spec import Thresholds

SHARE_LOOKS = 2
"""How often shares are looked at: when the budget's part for profiles is spent, and at its end."""


PAIR_MISS_RATE = 0.02
"""Less than elsewhere: with 5 % the first look, at five pairs, let 1.1 % of the slowdowns of
exactly the threshold pass under load."""


SIMULATED = (
    "Replayed on 1,687 pairs of one code on a busy machine of two cores: no alarm in 243 gates "
    "at 5 % (≤ 1.2 %)."
)
"""What is known of the rule where nothing was calibrated; docs/gate.md has the rest."""


def pair_rates(looks: Sequence[int]) -> ErrorRates:
    """Return the error rates of a comparison, spent over its planned looks."""
    return ErrorRates(miss=PAIR_MISS_RATE, looks=len(looks))


def last_look(
    base: Side, head: Side, drop_pct: float, looks: Sequence[int], *, ended: bool
) -> Look | None:
    """Return the last look at tokens per second that was due; None before the first.

    Raises UndecidedError where the two sides are no pairs.
    """
    differences = [pair.quiet for pair in pair_differences(base, head)]
    rates = pair_rates(looks)
    taken = looks_at(differences, log_time_of_drop(drop_pct), rates, looks, ended=ended)
    return taken[-1] if taken else None


def judge_pairs(
    base: Evidence,
    head: Evidence,
    thresholds: Thresholds,
    *,
    grade: str,
    looks: Sequence[int] = FIRST_LOOKS,
    ended: bool = True,
    share_drift: ShareDrift = "cost",
    known: Known | None = None,
) -> Verdict:
    """Judge ``head`` against ``base``, both measured in the same pairs.

    ``looks`` is the plan that was made beforehand, ``ended`` that no more pairs will come,
    ``known`` what is known of the rule's error rates (nominal without). Raises UsageError for
    settings that mean nothing; anything wrong with the evidence is a verdict.
    """
    check_settings(thresholds, share_drift, len(looks))
    refusal = copied(base, head) or _swapped(base, head)
    if refusal is not None:
        return refused("dishonest", [refusal], grade=grade)
    comparability = compare(base, head)
    if not comparability.comparable:
        alone = judge_bricks(None, head, thresholds, ErrorRates(looks=SHARE_LOOKS))
        return budgeted(not_comparable(comparability, grade), alone)
    try:
        old, new = measurement_of(base), measurement_of(head)
        differences = pair_differences(base, head)
        counts = instruction_signals(base, head)
        look = last_look(base, head, thresholds.tokens_per_second_pct, looks, ended=ended)
        _check_spread(differences)
    except UndecidedError as error:
        return refused("inconclusive", [Reason.of(error)], grade=grade)
    rates = pair_rates(looks)
    if look is None:
        return refused("inconclusive", [_few(len(differences), looks[0])], grade=grade)
    decided = differences[: look.pairs]
    rate = rate_signal(
        old,
        new,
        look.verdict,
        rate_change_pct(look.estimate.mean_diff),
        thresholds.tokens_per_second_pct,
        helped=look.verdict.decision == "inconclusive" and not ended,
    )
    shares = judge_shares(
        old,
        new,
        thresholds,
        look.verdict,
        ErrorRates(looks=SHARE_LOOKS),
        share_drift,
        estimate_of([pair.cpu for pair in decided]),
    )
    # The passes of both sides ran in turn: no batch drifted from the other.
    bricks = judge_bricks(base, head, thresholds, ErrorRates(looks=SHARE_LOOKS), drift_sd=0.0)
    name = combined(rate, shares, bricks)
    known = known or nominal(rates)
    return Verdict(
        verdict=name,
        reasons=(*ordered(name, rate, shares, bricks), *reasons_of(counts)),
        grade=grade,
        signals=(
            rate,
            wall_signal(old, new),
            *counts,
            *map(share_signal, shares.hotspots),
            *bricks.signals,
        ),
        smallest_detectable_pct=rate.smallest_detectable_pct,
        false_alarm_rate=known.false_alarm,
        miss_rate=known.miss,
        error_rate_basis=known.basis,
        hotspots=shares.hotspots,
        attribution=shares.costs,
        explained_by=explained_by(shares.costs),
        phases=phase_changes(base, head, decided, rates),
        pairs=look.pairs,
        looks=tuple(looks),
        against=base.commit.revision if base.commit else None,
        helped_by=helped_by(rate, shares, bricks),
        baseline_processes=len(old.timed),
        current_processes=len(new.timed),
        cpu_pressure_pct=new.cpu_pressure_pct,
        bricks=bricks.changes,
    )


def nominal(rates: ErrorRates) -> Known:
    """Return what the rule promises by its arithmetic alone."""
    return Known(
        rates.false_alarm,
        rates.miss,
        f"nominal: ≤ {100 * rates.false_alarm:g} % false alarms and ≤ {100 * rates.miss:g} % "
        f"misses, spent over {rates.looks} looks. {SIMULATED} Not calibrated on this machine: "
        "flamegate calibrate does",
    )


def _swapped(base: Evidence, head: Evidence) -> Reason | None:
    if (base.side, head.side) == ("base", "head"):
        return None
    return Reason(
        "E_SIDES_SWAPPED",
        f"What was given as the base was measured as {base.side or 'no side'}, and what was given "
        f"as the head as {head.side or 'no side'}. Give each on its own side.",
    )


def _check_spread(differences: Sequence[PairDifference]) -> None:
    if len(differences) > 1 and len({pair.quiet for pair in differences}) == 1:
        raise UndecidedError(
            "E_CONSTANT_SAMPLES",
            f"All {len(differences)} pairs differ by exactly the same.",
            "Measure again: real pairs vary, so either these were copied or the clock is coarse.",
        )


def _few(pairs: int, first: int) -> Reason:
    return Reason(
        "E_FEW_PAIRS",
        f"{pairs} pair(s) were measured, and the first look needs {first}. "
        "Give it more time (--flamegate-budget sets the seconds).",
    )

"""The cases that really measure: a slowed function, the same code, another function faster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate import exit_code, headline
from pytest_flamegate.gate.signals import in_words
from pytest_flamegate.selftest.case import Happened, case, is_open
from pytest_flamegate.selftest.frames import below, means, share_of

if TYPE_CHECKING:
    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.selftest.bench import Bench

CLEAR = 1.3
"""How far past the threshold a drop has to be for a gate that missed it to be called wrong."""


@case("slowed", "{extra} of {frame}", "regressed, exit code 1", ("injection",))
def slowed(bench: Bench) -> Happened:
    """Expect extra work in one function to close the gate."""
    verdict = bench.slowed.verdict
    if verdict.verdict == "regressed" and exit_code(verdict) == 1 and not is_open(verdict):
        return Happened(_told(verdict), "ok", headline(verdict))
    if verdict.verdict == "inconclusive":
        return Happened(_told(verdict), "undecided", headline(verdict))
    small = _too_small(bench) if verdict.verdict == "pass" else None
    if small is not None:
        return Happened(_told(verdict), "undecided", small)
    return Happened(_told(verdict), "differs", headline(verdict))


@case("named", "{extra} of {frame}", "{frame} is named", ("injection", "profile"))
def named(bench: Bench) -> Happened:
    """Expect the verdict on extra work to say in which function it is."""
    assert bench.asked.slowed is not None
    frame, verdict = bench.asked.slowed.frame, bench.slowed.verdict
    names = verdict.explained_by[:1] or tuple(row.name for row in verdict.attribution[:1])
    if verdict.verdict != "regressed" or not names:
        return Happened("nothing is named", "undecided", headline(verdict))
    if means(frame, names[0]):
        return Happened(names[0], "ok", headline(verdict))
    if below(frame, names[0], bench.slowed.head):
        return Happened(f"{names[0]}, which it calls", "ok", headline(verdict))
    # What explains it is certain; the row with the largest change alone is not.
    return Happened(names[0], "differs" if verdict.explained_by else "undecided", headline(verdict))


@case("same code", "nothing: the same code twice", "not regressed")
def same_code(bench: Bench) -> Happened:
    """Expect the same code not to close the gate; noise may leave it undecided."""
    verdict = bench.same.verdict
    if verdict.verdict in ("pass", "improved", "inconclusive"):
        return Happened(_told(verdict), "ok", headline(verdict))
    rate = verdict.false_alarm_rate
    promised = f" One in {1 / rate:.0f} may be a false alarm: run it again." if rate else ""
    return Happened(_told(verdict), "differs", headline(verdict) + promised)


@case("faster", "{another} made faster", "improved or pass", ("injection", "other"))
def another_faster(bench: Bench) -> Happened:
    """Expect the gate to stay open: beside a faster function the others only weigh more."""
    verdict = bench.faster.verdict
    if verdict.verdict in ("improved", "pass") and is_open(verdict) and exit_code(verdict) == 0:
        return Happened(_told(verdict), "ok", headline(verdict))
    undecided = verdict.verdict == "inconclusive"
    return Happened(_told(verdict), "undecided" if undecided else "differs", headline(verdict))


@case(
    "neighbours",
    "{another} made faster",
    "shares rise, nothing costs more",
    ("injection", "other", "profile"),
)
def neighbours(bench: Bench) -> Happened:
    """Expect of none whose share rose to be told that it costs more."""
    verdict = bench.faster.verdict
    dearer = [spot.name for spot in verdict.hotspots if spot.finding == "costs_more"]
    if dearer:
        return Happened(f"{dearer[0]} costs more", "differs", headline(verdict))
    rates = verdict.false_alarm_rate or 0.0
    rose = [
        spot.share
        for spot in verdict.hotspots
        if spot.share.shift_pp > 0.0 and spot.share.p_adjusted <= rates
    ]
    if not rose:
        return Happened("no share rose for certain", "undecided", headline(verdict))
    most = max(rose, key=lambda share: share.shift_pp)
    return Happened(f"{most.name} {most.shift_pp:+.1f} pp, costs no more", "ok", headline(verdict))


def _told(verdict: Verdict) -> str:
    """Return the verdict and by how much tokens per second changed."""
    rate = verdict.signal()
    if rate is None or rate.change_pct is None:
        return f"{verdict.verdict}, {verdict.reasons[0].code}"
    return f"{verdict.verdict}, {in_words(rate.change_pct)}"


def _too_small(bench: Bench) -> str | None:
    """Say why the gate was right to let so little work pass; None where it was not."""
    injection = bench.asked.slowed
    assert injection is not None
    share = share_of(injection.frame, bench.slowed.base)
    if share is None:
        return f"No profile says what part of the time {injection.frame} takes."
    allowed_pct = bench.asked.workload.thresholds.tokens_per_second_pct
    # What x percent more of a part s does to tokens per second: 1 / (1 + s·x).
    drop_pct = 100.0 * (1.0 - 1.0 / (1.0 + share * injection.extra_pct / 100.0))
    if drop_pct >= CLEAR * allowed_pct:
        return None
    left = 1.0 - CLEAR * allowed_pct / 100.0
    enough = f"Say --extra {math.ceil(100.0 * (1.0 / left - 1.0) / share)}%" if left > 0 else ""
    return (
        f"{injection.frame} takes {100.0 * share:.0f} % of the time, so "
        f"+{injection.extra_pct:g} % of it is {drop_pct:.1f} % of tokens per second, and "
        f"{allowed_pct:g} % is allowed. {enough or 'Allow less'}, or slow a hotter function."
    )

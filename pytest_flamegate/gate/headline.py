"""The verdict in one line: the answer first, then how sure, then where."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_flamegate.gate.hotspots import WAITING
from pytest_flamegate.gate.shares import OTHER
from pytest_flamegate.gate.signals import describe_rate_change

if TYPE_CHECKING:
    from pytest_flamegate.gate.hotspots import CostChange, Hotspot
    from pytest_flamegate.gate.signals import Signal
    from pytest_flamegate.gate.verdict import Verdict


ALL_OF_IT = 0.9
MOST_OF_IT = 0.5
_WORTH_NAMING = 0.1
_BUSY_PCT = 20.0


def headline(verdict: Verdict) -> str:
    """Return the verdict as one line, without a line break at its end."""
    return f"{verdict.verdict.replace('_', ' ')}: {_body(verdict)}"


def _body(verdict: Verdict) -> str:
    rate = verdict.signal()
    if rate is None or verdict.verdict in {"dishonest", "error", "not_comparable"}:
        return _first_reason(verdict)
    if verdict.verdict == "no_baseline":
        return _rate_alone(rate, verdict.current_processes)
    if rate.change_pct is None:
        return _first_reason(verdict)
    if verdict.verdict == "inconclusive":
        return _inconclusive(verdict, rate)
    if verdict.verdict == "pass":
        return _passed(verdict, rate)
    return _moved(verdict, rate)


def _first_reason(verdict: Verdict) -> str:
    others = len(verdict.reasons) - 1
    more = f" And {others} more." if others > 0 else ""
    return verdict.reasons[0].message + more


def _rate_alone(rate: Signal, processes: int) -> str:
    assert rate.current is not None
    return (
        f"{rate.current:.4g} {rate.unit} on the quiet clock ({1e3 / rate.current:.3g} ms/"
        f"{rate.unit.partition('s/')[0]}), "
        f"{processes} processes; accept it with --flamegate-update"
    )


def _inconclusive(verdict: Verdict, rate: Signal) -> str:
    if rate.decision != "inconclusive":
        return f"{verdict.reasons[0].message} Tokens per second: {_range(rate)}."
    parts = [f"{_range(rate)} after {_measured(verdict)}"]
    pressure = verdict.cpu_pressure_pct
    if pressure is not None and pressure >= _BUSY_PCT:
        parts.append(f"something waited for a CPU {pressure:.0f} % of the time")
    smallest = rate.smallest_detectable_pct
    remedy = (
        "give it more time (--flamegate-budget)"
        if "timed" in verdict.helped_by or verdict.pairs is not None
        else "compare in pairs (--flamegate-against=REV)"
    )
    if smallest is not None and rate.threshold_pct is not None and smallest > rate.threshold_pct:
        remedy = f"on this machine ask for ≥ {math.ceil(smallest)} % or {remedy}"
    return "; ".join([*parts, remedy])


def _measured(verdict: Verdict) -> str:
    if verdict.pairs is not None:
        return f"{verdict.pairs} pairs"
    return f"{verdict.current_processes} processes"


def _passed(verdict: Verdict, rate: Signal) -> str:
    seen = ""
    if verdict.smallest_detectable_pct is not None:
        seen = f"; could have seen {verdict.smallest_detectable_pct:.1f} %"
    if rate.ci_high_pct is not None and rate.ci_high_pct < 0.0:
        return f"{_estimate(rate)}, certainly slower and within what is allowed{seen}"
    return f"{_range(rate)} (threshold {rate.threshold_pct:g}){seen}"


def _moved(verdict: Verdict, rate: Signal) -> str:
    """Say what regressed or improved: the rate, or else the shares and the bricks."""
    if rate.decision == verdict.verdict:
        return _estimate(rate) + _where(verdict)
    moved = [_drift(each) for each in verdict.hotspots if each.decision == verdict.verdict]
    moved += [
        _cost_of(signal)
        for change in verdict.bricks
        for signal in change.signals
        if signal.decision == verdict.verdict
    ]
    return f"{'; '.join(moved)}; {rate.unit} {_range(rate)}"


def _estimate(rate: Signal) -> str:
    assert rate.change_pct is not None
    ends = sorted(abs(end) for end in (rate.ci_low_pct, rate.ci_high_pct) if end is not None)
    interval = " … ".join(f"{end:.1f}" for end in ends)
    threshold = f", threshold {rate.threshold_pct:g}" if rate.change_pct < 0.0 else ""
    return f"{describe_rate_change(rate.change_pct)} ({interval}{threshold})"


def _range(rate: Signal) -> str:
    """Return ``between 1.0 % faster and 7.9 % slower``, the faster end first."""
    assert rate.ci_low_pct is not None
    assert rate.ci_high_pct is not None
    ends = (describe_rate_change(end) for end in (rate.ci_high_pct, rate.ci_low_pct))
    return f"between {' and '.join(ends)}"


def _where(verdict: Verdict) -> str:
    """Name the functions that explain the change, where any certainly does."""
    alpha = verdict.false_alarm_rate or 0.0
    rows = [row for row in verdict.attribution if row.explains is not None and row.name != OTHER]
    certain = [row for row in rows if row.p_adjusted <= alpha and (row.explains or 0.0) > 0.0]
    if not certain:
        return _likely(rows)
    first = max(certain, key=lambda row: row.explains or 0.0)
    if (first.explains or 0.0) >= ALL_OF_IT:
        return f", all of it in {_named(first)}"
    if (first.explains or 0.0) >= MOST_OF_IT:
        return f", most of it in {_explained(first)}"
    named = [row for row in certain if (row.explains or 0.0) >= _WORTH_NAMING][:3]
    return f", {', '.join(map(_explained, named))}" if named else ""


def _likely(rows: list[CostChange]) -> str:
    """Name the function that most likely explains it, where no single one certainly does."""
    first = max(rows, key=lambda row: row.explains or 0.0, default=None)
    if first is None or (first.explains or 0.0) < MOST_OF_IT:
        return ""
    return (
        f", most likely in {_named(first)} ({first.baseline_us:,.0f} → {first.current_us:,.0f} µs)"
    )


def _explained(row: CostChange) -> str:
    return f"{_named(row)} ({100 * (row.explains or 0.0):.0f} %)"


def _named(row: CostChange) -> str:
    return "waiting, off the CPU" if row.name == WAITING else row.name


def _cost_of(brick: Signal) -> str:
    """Return ``RmsNorm 9.8 → 12.3 µs/token (+25.5 %, threshold 10)`` and the like."""
    name, unit = brick.name.partition(":")[2], brick.unit.replace("us/", "µs/")
    if brick.baseline is None:
        return f"{name} {brick.current:.3g} {unit} ({brick.change_pct:.1f} % over its budget)"
    return (
        f"{name} {brick.baseline:.3g} → {brick.current:.3g} {unit} "
        f"({brick.change_pct:+.1f} %, threshold {brick.threshold_pct:g})"
    )


def _drift(hotspot: Hotspot) -> str:
    share = hotspot.share
    return (
        f"{share.name} {100 * share.baseline_share:.1f} → {100 * share.current_share:.1f} % "
        f"of the samples ({share.shift_pp:+.1f} pp, threshold {hotspot.threshold_pp:g})"
    )

"""The verdict in one sentence: the answer first, then how sure, then which function."""

from __future__ import annotations

import math

from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.costs import WAITING, CostChange
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.shares import OTHER
from pytest_flamegate.gate.signals import (
    Signal,
    describe_interval,
    describe_range,
    describe_rate_change,
)
from pytest_flamegate.gate.verdict import Verdict

ALL_OF_IT = 0.9
MOST_OF_IT = 0.5
_WORTH_NAMING = 0.1
_BUSY_PCT = 20.0


def headline(verdict: Verdict) -> str:
    """Return the verdict as one line, such as ``regressed: 6.2 % slower (5.1 … 7.4, …), …``."""
    return f"{verdict.verdict.replace('_', ' ')}: {_describe(verdict)}"


def _describe(verdict: Verdict) -> str:
    rate = verdict.signal()
    if rate is None or verdict.verdict in {"dishonest", "error", "not_comparable"}:
        return _describe_first_reason(verdict)
    if verdict.verdict == "no_baseline":
        return _describe_uncompared(verdict, rate)
    if rate.change_pct is None:
        return _describe_first_reason(verdict)
    if verdict.verdict == "inconclusive":
        return _describe_inconclusive(verdict, rate)
    if verdict.verdict == "pass":
        return _describe_pass(verdict, rate)
    return _describe_change(verdict, rate)


def _describe_first_reason(verdict: Verdict) -> str:
    others = len(verdict.reasons) - 1
    more = f" And {others} more." if others > 0 else ""
    return verdict.reasons[0].message + more


def _describe_uncompared(verdict: Verdict, rate: Signal) -> str:
    current = rate.current or 0.0
    one = rate.unit.partition("s/")[0]
    return (
        f"{significant(current, 4)} {rate.unit} on the quiet clock "
        f"({significant(1e3 / current)} ms/{one}), {verdict.current_processes} processes. "
        f"{verdict.reasons[0].message}"
    )


def _describe_inconclusive(verdict: Verdict, rate: Signal) -> str:
    if rate.decision != "inconclusive":
        return f"{verdict.reasons[0].message} Tokens per second: {_describe_estimate(rate)}."
    parts = [f"{_describe_ends(rate)} after {_describe_effort(verdict)}"]
    pressure = verdict.cpu_pressure_pct
    if pressure is not None and pressure >= _BUSY_PCT:
        parts.append(f"CPU pressure was {pressure:.0f} %")
    smallest = rate.smallest_detectable_pct
    remedy = (
        "give it more time (--flamegate-budget)"
        if "timed" in verdict.helped_by or verdict.pairs is not None
        else "compare in pairs (--flamegate-against=REV)"
    )
    if smallest is not None and rate.threshold_pct is not None and smallest > rate.threshold_pct:
        remedy = f"allow a drop of {math.ceil(smallest)} %, which can be decided here, or {remedy}"
    return "; ".join([*parts, remedy])


def _describe_effort(verdict: Verdict) -> str:
    if verdict.pairs is not None:
        return f"{verdict.pairs} pairs"
    return f"{verdict.current_processes} processes"


def _describe_pass(verdict: Verdict, rate: Signal) -> str:
    detectable = ""
    if verdict.smallest_detectable_pct is not None:
        detectable = f"; could have seen {verdict.smallest_detectable_pct:.1f} %"
    certain = ""
    if rate.ci_high_pct is not None and rate.ci_high_pct < 0.0:
        certain = f", certainly less than the {rate.threshold_pct:g} % allowed"
    return f"{_describe_estimate(rate)}{certain}{detectable}"


def _describe_change(verdict: Verdict, rate: Signal) -> str:
    """Describe the rate that regressed or improved, or else the shares and the bricks."""
    if rate.decision == verdict.verdict:
        return _describe_estimate(rate) + _describe_cause(verdict)
    moved = [_describe_drift(each) for each in verdict.hotspots if each.decision == verdict.verdict]
    moved += [
        _describe_brick(signal)
        for change in verdict.bricks
        for signal in change.signals
        if signal.decision == verdict.verdict
    ]
    return f"{'; '.join(moved)}; {rate.unit} {_describe_estimate(rate)}"


def _describe_estimate(rate: Signal) -> str:
    """Return ``6.2 % slower (5.1 … 7.4, threshold 5)``; an improvement needs no threshold."""
    low, high, change = rate.ci_low_pct or 0.0, rate.ci_high_pct or 0.0, rate.change_pct or 0.0
    threshold = "" if rate.decision == "improved" else f", threshold {rate.threshold_pct:g}"
    return f"{describe_rate_change(change)} ({describe_interval(low, high)}{threshold})"


def _describe_ends(rate: Signal) -> str:
    return describe_range(rate.ci_low_pct or 0.0, rate.ci_high_pct or 0.0)


def _describe_cause(verdict: Verdict) -> str:
    """Name the functions that explain the change, if any certainly does."""
    rows = [row for row in verdict.attribution if row.explains is not None and row.name != OTHER]
    certain = [row for row in rows if row.is_certain and (row.explains or 0.0) > 0.0]
    if not certain:
        return _describe_likely_cause(rows)
    first = max(certain, key=lambda row: row.explains or 0.0)
    if (first.explains or 0.0) >= ALL_OF_IT:
        return f", all of it in {_name(first)}"
    if (first.explains or 0.0) >= MOST_OF_IT:
        return f", most of it in {_describe_part(first)}"
    named = [row for row in certain if (row.explains or 0.0) >= _WORTH_NAMING][:3]
    return f", {', '.join(map(_describe_part, named))}" if named else ""


def _describe_likely_cause(rows: list[CostChange]) -> str:
    """Name the function that most likely explains the change, if no single one certainly does."""
    first = max(rows, key=lambda row: row.explains or 0.0, default=None)
    if first is None or (first.explains or 0.0) < MOST_OF_IT:
        return ""
    before, after = significant(first.baseline_us), significant(first.current_us)
    return f", most likely in {_name(first)} ({before} → {after} µs)"


def _describe_part(row: CostChange) -> str:
    return f"{_name(row)} ({row.explains_pct or 0.0:.0f} %)"


def _name(row: CostChange) -> str:
    return "waiting, off the CPU" if row.name == WAITING else row.name


def _describe_brick(brick: Signal) -> str:
    """Return ``RmsNorm 9.80 → 12.3 µs/token (+25.5 %, threshold 10)`` and the like."""
    name, unit = brick.name.partition(":")[2], brick.unit.replace("us/", "µs/")
    current = significant(brick.current or 0.0)
    if brick.baseline is None:
        return f"{name} {current} {unit} ({brick.change_pct or 0.0:.1f} % over its budget)"
    return (
        f"{name} {significant(brick.baseline)} → {current} {unit} "
        f"({brick.change_pct or 0.0:+.1f} %, threshold {brick.threshold_pct:g})"
    )


def _describe_drift(hotspot: HotspotChange) -> str:
    share = hotspot.share
    return (
        f"{share.name} {100 * share.baseline_share:.1f} → {100 * share.current_share:.1f} % "
        f"of the samples ({share.shift_pp:+.1f} pp, threshold {hotspot.threshold_pp:g})"
    )

"""The verdict: one of eight words with its reasons and figures, and the sentence that it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.bricks import BrickChange
from pytest_flamegate.gate.call_limits import describe_calls
from pytest_flamegate.gate.causes import describe_cause
from pytest_flamegate.gate.costs import CostChange
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.lines import LineChange
from pytest_flamegate.gate.pairs import DOUBTS, PhaseChange
from pytest_flamegate.gate.rule import (
    BRICK,
    CALLS,
    TOKENS_PER_SECOND,
    FieldDifference,
    ProcessKind,
    Reason,
    Signal,
    describe_interval,
    describe_rate_change,
)
from pytest_flamegate.profile.calls import CallChange
from pytest_flamegate.receipt.types import VerdictName

Tone = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, slots=True)
class VerdictKind:
    """How a verdict is treated, whatever its reasons and figures.

    A test fails if the tone is ``bad``; under CI and if strict is set also if it is ``unsure``.
    ``is_change`` says that the code certainly became slower or faster, ``is_compared`` that the
    run was compared with another one. A run that is not valid cannot become a baseline.
    """

    exit_code: int
    tone: Tone
    is_change: bool = False
    is_compared: bool = True
    is_valid: bool = True

    @property
    def passes(self) -> bool:
        """Whether the verdict says that nothing got slower."""
        return self.tone == "good"


KINDS: Mapping[VerdictName, VerdictKind] = MappingProxyType(
    {
        "pass": VerdictKind(0, "good"),
        "improved": VerdictKind(0, "good", is_change=True),
        "regressed": VerdictKind(1, "bad", is_change=True),
        "dishonest": VerdictKind(3, "bad", is_compared=False, is_valid=False),
        "inconclusive": VerdictKind(4, "unsure"),
        "not_comparable": VerdictKind(4, "unsure", is_compared=False),
        "no_baseline": VerdictKind(4, "unsure", is_compared=False),
        "error": VerdictKind(5, "bad", is_compared=False, is_valid=False),
    }
)
"""Every verdict. Its name is in ``VerdictName`` and in the schema of verdicts too."""

PairMethod = Literal["shared core", "one after the other"]
"""How both sides of a pair ran: at the same time, or in turn."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one workload. It is complete when made: nothing is added later.

    ``reasons`` begin with those that decided and end with notes on the run. The two rates are
    those of tokens per second; None if they are not known. ``lines`` certainly changed their cost;
    ``reported_lines`` did so according to the job that measured, and were not judged again.
    ``calls`` are the functions that are called more or less often. ``more_processes`` are the
    kinds of process of which more could settle an open question. ``differences`` are those that
    forbid a comparison.
    """

    verdict: VerdictName
    reasons: tuple[Reason, ...]
    grade: str
    signals: tuple[Signal, ...] = ()
    smallest_detectable_pct: float | None = None
    false_alarm_rate: float | None = None
    miss_rate: float | None = None
    error_rate_basis: str = ""
    differences: tuple[FieldDifference, ...] = ()
    hotspots: tuple[HotspotChange, ...] = ()
    attribution: tuple[CostChange, ...] = ()
    explained_by: tuple[str, ...] = ()
    lines: tuple[LineChange, ...] = ()
    reported_lines: tuple[LineChange, ...] = ()
    calls: tuple[CallChange, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    pairs: int | None = None
    pair_method: PairMethod | None = None
    analyses: tuple[int, ...] = ()
    against: str | None = None
    more_processes: tuple[ProcessKind, ...] = ()
    baseline_processes: int = 0
    current_processes: int = 0
    cpu_pressure_pct: float | None = None
    bricks: tuple[BrickChange, ...] = ()

    def signal(self, name: str = TOKENS_PER_SECOND) -> Signal | None:
        """Return the signal of that name, None if there is none."""
        return next((signal for signal in self.signals if signal.name == name), None)

    @property
    def kind(self) -> VerdictKind:
        """How a verdict of this name is treated."""
        return KINDS[self.verdict]

    @property
    def word(self) -> str:
        """The name of the verdict in a word or two."""
        return self.verdict.replace("_", " ")

    @property
    def is_new(self) -> bool:
        """Whether the base does not have the workload yet, which is no fault of the change."""
        has_note = any(reason.code == "I_NEW_WORKLOAD" for reason in self.reasons)
        return has_note and self.verdict == "no_baseline"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return 0 if self.is_new else self.kind.exit_code

    def fails_test(self, *, ci: bool, strict: bool) -> bool:
        """Whether the test fails: an undecided verdict does under CI and if strict is set."""
        if self.kind.passes or self.is_new:
            return False
        return self.kind.tone == "bad" or ci or strict

    @property
    def warnings(self) -> tuple[Reason, ...]:
        """The reasons that warn about how the run was observed."""
        return tuple(reason for reason in self.reasons if reason.code.startswith("W_"))

    @property
    def is_transient(self) -> bool:
        """Whether only the state of the machine differs, which may pass."""
        return {difference.code for difference in self.differences} == {"E_MACHINE_STATE"}

    @property
    def wanted_processes(self) -> tuple[ProcessKind, ...]:
        """The processes that could settle the verdict; none if it is settled or none could."""
        if self.verdict == "not_comparable" and self.is_transient:
            return ("timed",)
        return self.more_processes if self.verdict == "inconclusive" else ()

    @property
    def is_suspicious(self) -> bool:
        """Whether a comparison in pairs with the baseline's commit would say more."""
        if self.verdict == "not_comparable":
            return self.is_transient
        return self.kind.is_compared and not self.kind.passes and bool(self.signals)


# --- in one sentence -----------------------------------------------------------------------

_WORTH_ALLOWING_PCT = 20.0
"""The largest drop that the advice may tell the user to allow."""
_BUSY_PCT = 20.0
_MOST_CALLS = 3
"""Functions named in the headline whose calls rose too much."""


def headline(verdict: Verdict) -> str:
    """Return the verdict as one line: the answer, then how sure, then which function.

    For example ``regressed: 6.2 % slower (5.1 … 7.4 %, threshold 5 %), all of it in gemv``.
    """
    return f"{verdict.word}: {_describe(verdict)}"


def _describe(verdict: Verdict) -> str:
    rate = verdict.signal()
    if rate is not None and verdict.verdict == "no_baseline":
        current = rate.current or 0.0
        one = rate.unit.partition("s/")[0]
        return (
            f"{significant(current, 4)} {rate.unit} on the quiet clock "
            f"({significant(1e3 / current)} ms/{one}), {verdict.current_processes} processes. "
            f"{verdict.reasons[0].message}"
        )
    if rate is None or rate.change_pct is None or not verdict.kind.is_compared:
        others = len(verdict.reasons) - 1
        return verdict.reasons[0].message + (f" And {others} more." if others > 0 else "")
    if verdict.verdict == "inconclusive":
        return _describe_inconclusive(verdict, rate)
    if verdict.verdict == "regressed":
        return _describe_change(verdict, rate)
    if verdict.verdict == "improved":
        words = _describe_change(verdict, rate)
    else:
        words = _describe_estimate(rate)
        if rate.ci_high_pct is not None and rate.ci_high_pct < 0.0:
            words += f", certainly less than the {rate.threshold_pct:g} % allowed"
    if verdict.smallest_detectable_pct is not None:
        words += f"; could have seen {verdict.smallest_detectable_pct:.1f} %"
    return words


def _describe_inconclusive(verdict: Verdict, rate: Signal) -> str:
    if rate.decision != "inconclusive" or verdict.reasons[0].code in DOUBTS:
        return f"{verdict.reasons[0].message} Tokens per second: {_describe_estimate(rate)}."
    effort = f"{verdict.current_processes} processes"
    if verdict.pairs is not None:
        effort = f"{verdict.pairs} pairs"
    parts = [f"{_describe_estimate(rate)} after {effort}"]
    pressure = verdict.cpu_pressure_pct
    is_busy = pressure is not None and pressure >= _BUSY_PCT
    if is_busy and verdict.pairs is None:
        parts.append(f"CPU pressure was {pressure:.0f} %")
    elif is_busy:
        parts.append(f"other programs had {pressure:.0f} % of the core")
    smallest = rate.smallest_detectable_pct
    if smallest is not None:
        parts.append(f"could have seen {smallest:.1f} %")
    remedy = (
        "give it more time (--flamegate-budget)"
        if "timed" in verdict.more_processes or verdict.pairs is not None
        else "compare in pairs (--flamegate-against=REV)"
    )
    if is_busy:
        remedy = f"measure again when less runs beside it, or {remedy}"
    if smallest is not None and (rate.threshold_pct or math.inf) < smallest <= _WORTH_ALLOWING_PCT:
        remedy += f", or allow a drop of {math.ceil(smallest)} %, which can be decided here"
    return "; ".join([*parts, remedy])


def _describe_change(verdict: Verdict, rate: Signal) -> str:
    """Describe the rate that regressed or improved, or else the shares and the bricks."""
    if rate.decision == verdict.verdict:
        return _describe_estimate(rate) + describe_cause(verdict.attribution, verdict.lines)
    moved = [_describe_drift(each) for each in verdict.hotspots if each.decision == verdict.verdict]
    moved += [
        _describe_brick(signal)
        for change in verdict.bricks
        for signal in change.signals
        if signal.decision == verdict.verdict
    ]
    over = [s for s in verdict.signals if s.decision == "regressed" and s.name.startswith(CALLS)]
    moved += [describe_calls(signal) for signal in over[:_MOST_CALLS]]
    return f"{'; '.join(moved)}; {rate.unit} {_describe_estimate(rate)}"


def _describe_estimate(rate: Signal) -> str:
    """Return ``6.2 % slower (5.1 … 7.4 %, threshold 5 %)``; an improvement needs no threshold."""
    low, high, change = rate.ci_low_pct or 0.0, rate.ci_high_pct or 0.0, rate.change_pct or 0.0
    threshold = "" if rate.decision == "improved" else f", threshold {rate.threshold_pct:g} %"
    if rate.decision == "regressed" and -change < (rate.threshold_pct or 0.0):
        threshold = f": certain, and perhaps more than the {rate.threshold_pct:g} % allowed"
    return f"{describe_rate_change(change)} ({describe_interval(low, high)}{threshold})"


def _describe_brick(brick: Signal) -> str:
    """Return ``RmsNorm 9.80 → 12.3 µs/token (+25.5 %, threshold 10 %)`` and the like."""
    name, unit = brick.name.removeprefix(BRICK), brick.unit.replace("us/", "µs/")
    current = significant(brick.current or 0.0)
    if brick.baseline is None:
        return f"{name} {current} {unit} ({brick.change_pct or 0.0:.1f} % over its budget)"
    return (
        f"{name} {significant(brick.baseline)} → {current} {unit} "
        f"({brick.change_pct or 0.0:+.1f} %, threshold {brick.threshold_pct:g} %)"
    )


def _describe_drift(hotspot: HotspotChange) -> str:
    share = hotspot.share
    return (
        f"{share.name} {100 * share.baseline_share:.1f} → {100 * share.current_share:.1f} % "
        f"of the samples ({share.shift_pp:+.1f} pp, threshold {hotspot.threshold_pp:g} pp)"
    )

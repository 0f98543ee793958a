"""Judge whether a share drifted past its threshold, and whether the function itself costs more.

A share moves if its own function changes and if any other does. So each drift is separated by
the cost per token: `costs_more` is a regression; `share_moved` (the cost did not rise) is excused
if the whole certainly got faster, unless drift is strict. A drift that no evidence excuses fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.config.thresholds import MIN_PROCESSES, Thresholds
from pytest_flamegate.core.text import significant
from pytest_flamegate.gate.costs import (
    OTHER,
    CostChange,
    ShareChange,
    cost_changes,
    observed_frames,
    share_changes,
)
from pytest_flamegate.gate.measurement import MORE_TIME, Measurement
from pytest_flamegate.gate.rule import Decision, ErrorRates, Helper, RateVerdict, Reason, Signal
from pytest_flamegate.gate.statistics import Estimate

ShareDrift = Literal["cost", "strict"]
"""``cost`` excuses a drift if the cost did not rise while the whole got faster."""
Finding = Literal[
    "unchanged", "costs_more", "costs_less", "share_moved", "unsettled", "new", "vanished"
]
"""``share_moved``: the share moved and the cost did not rise; ``unsettled``: it may have risen."""
_FINDING_WORDS: dict[Finding, str] = {
    "unchanged": "",
    "costs_more": "it costs more per token",
    "costs_less": "it costs less per token",
    "share_moved": "its share moved, its cost did not rise",
    "unsettled": "its share moved, and whether its cost rose is not settled",
    "new": "it is new",
    "vanished": "it is gone",
}
_NAMED = 5


@dataclass(frozen=True, slots=True)
class HotspotChange:
    """One judged function: how its share moved, the finding, and the decision."""

    share: ShareChange
    threshold_pp: float
    finding: Finding
    decision: Decision
    reason: Reason | None = None
    helped_by: tuple[Helper, ...] = ()

    @property
    def name(self) -> str:
        """The function's name, or the bucket of the rest."""
        return self.share.name

    @property
    def coarse(self) -> bool:
        """Whether a drift as large as the threshold could have been missed."""
        return self.decision == "pass" and self.share.detectable_pp > self.threshold_pp

    @property
    def signal(self) -> Signal:
        """The share as a figure, in percent of the samples."""
        share = self.share
        return Signal(
            name=f"share:{share.name}",
            baseline=100.0 * share.baseline_share,
            current=100.0 * share.current_share,
            unit="share_pct",
            direction="lower_is_better",
            decision=self.decision,
            change_pct=share.shift_pp,
            ci_low_pct=share.ci_low_pp,
            ci_high_pct=share.ci_high_pp,
            threshold_pct=self.threshold_pp,
            smallest_detectable_pct=share.detectable_pp,
            reasons=(self.reason,) if self.reason is not None else (),
            helped_by=self.helped_by,
        )


@dataclass(frozen=True, slots=True)
class JudgedShares:
    """All judged functions, hottest first, every cost, and why something was not judged."""

    hotspots: tuple[HotspotChange, ...] = ()
    costs: tuple[CostChange, ...] = ()
    reasons: tuple[Reason, ...] = ()
    helped_by: tuple[Helper, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """The facts about the whole that judging one function needs.

    ``rate`` is the decision about tokens per second, None without one. A function's cost counts
    as not risen if it rose by at most ``tolerance_us`` per token.
    """

    rate: RateVerdict | None
    tolerance_us: float
    rates: ErrorRates
    drift: ShareDrift


def judge_shares(
    baseline: Measurement,
    current: Measurement,
    thresholds: Thresholds,
    rate: RateVerdict | None,
    rates: ErrorRates,
    drift: ShareDrift,
    cpu: Estimate | None = None,
) -> JudgedShares:
    """Judge every hotspot's share.

    If shares cannot be judged a reason says why: ``E_HOTSPOT_UNKNOWN`` (a declared function is in
    no profile), ``E_FEW_PROCESSES`` (below three profiled processes a side). ``rate`` is the
    decision about tokens per second, ``cpu`` the change of log CPU time per token, if pairs
    measured it.
    """
    declared = [name for name in thresholds.hotspots_pp if name != "*"]
    counts = len(baseline.profiled), len(current.profiled)
    if min(counts) < MIN_PROCESSES:
        return _unjudged(declared, *counts)
    shares = share_changes(baseline.profiled, current.profiled, declared, rates.alpha)
    costs: tuple[CostChange, ...] = ()
    if min(len(baseline.timed), len(current.timed)) >= MIN_PROCESSES:
        costs = cost_changes(
            shares,
            baseline,
            current,
            rates,
            whole_changed=rate is not None and rate.is_certain,
            cpu=cpu,
        )
    by_name = {cost.name: cost for cost in costs}
    allowed = thresholds.tokens_per_second_pct / 100.0
    whole = Whole(rate, allowed * 1e6 / baseline.quiet_tokens_per_second, rates, drift)
    hotspots = tuple(
        _judge_share(share, by_name.get(share.name), thresholds.share_pp(share.name), whole)
        for share in shares
    )
    observed = observed_frames(baseline.profiled, current.profiled)
    return JudgedShares(hotspots, costs, tuple(_general_reasons(declared, observed, hotspots)))


def _unjudged(declared: list[str], baseline: int, current: int) -> JudgedShares:
    """Return why the shares of so many profiled processes a side were not judged."""
    helped_by: tuple[Helper, ...] = ()
    if baseline or current:
        reason = Reason(
            "E_FEW_PROCESSES",
            f"Shares need {MIN_PROCESSES} profiled processes a side; there are {baseline} at the "
            f"baseline and {current} now. {MORE_TIME[:-1]}, or accept a new baseline.",
        )
        if baseline >= MIN_PROCESSES:  # no time spent now adds a process to the baseline
            helped_by = ("profiled",)
    elif declared:
        reason = Reason(
            "E_HOTSPOT_UNKNOWN",
            f"A share is declared for {', '.join(sorted(declared))}, and nothing was profiled. "
            "Choose a profiler (--flamegate-profiler) or remove the declared share.",
        )
    else:
        reason = Reason("I_NO_PROFILE", "No profile was taken; no share was judged.")
    return JudgedShares(reasons=(reason,), helped_by=helped_by)


def _general_reasons(
    declared: list[str], observed: tuple[str, ...], hotspots: tuple[HotspotChange, ...]
) -> Iterator[Reason]:
    """Name declared functions that are in no profile, and thresholds that the samples miss."""
    for name in sorted(declared):
        if name not in observed:
            yield Reason(
                "E_HOTSPOT_UNKNOWN",
                f"{name} is declared with a share and is in neither profile. Functions there: "
                f"{', '.join(observed[:_NAMED]) or 'none'}{', …' * (len(observed) > _NAMED)}. "
                "Correct the name in hotspots.",
            )
    coarse = [
        f"{hotspot.name} {hotspot.share.detectable_pp:.1f} pp of {hotspot.threshold_pp:g}"
        for hotspot in hotspots
        if hotspot.coarse
    ]
    if coarse:
        yield Reason(
            "I_SHARES_COARSE",
            "Smallest drifts of a share that could have been seen for certain: "
            f"{', '.join(coarse[:_NAMED])}{', …' * (len(coarse) > _NAMED)}. More time takes more "
            "samples (--flamegate-budget sets the seconds).",
        )


def _judge_share(
    share: ShareChange, cost: CostChange | None, threshold_pp: float, whole: Whole
) -> HotspotChange:
    moved = share.p_adjusted <= whole.rates.alpha
    finding = _find(share, cost, whole, moved=moved)
    decision: Decision = "pass"
    helped_by: tuple[Helper, ...] = ()
    reason: Reason | None = None
    if abs(share.shift_pp) > threshold_pp:
        if moved:
            decision, helped_by = decide_drift(cost, whole)
        elif not is_excused(cost, whole):
            decision, helped_by = "inconclusive", ("profiled",)
        reason = _share_reason(share, cost, threshold_pp, finding, decision, certain=moved)
    return HotspotChange(
        share=share,
        threshold_pp=threshold_pp,
        finding=finding,
        decision=decision,
        reason=reason,
        helped_by=helped_by,
    )


def decide_drift(cost: CostChange | None, whole: Whole) -> tuple[Decision, tuple[Helper, ...]]:
    """Decide about a share that certainly drifted past its threshold."""
    rate = whole.rate
    if whole.drift == "strict":
        return "regressed", ()
    if rate is None or cost is None:
        return "inconclusive", ("timed",)
    if cost.change_us > 0.0 and cost.p_adjusted <= whole.rates.alpha:
        return "regressed", ()
    if not rate.faster:
        # The whole may yet prove faster; only then could the drift be excused.
        may_be_faster = rate.decision == "inconclusive" and rate.low + rate.high < 0.0
        return ("inconclusive", ("timed",)) if may_be_faster else ("regressed", ())
    if is_excused(cost, whole):
        return "improved", ()
    return "inconclusive", ("profiled",)


def is_excused(cost: CostChange | None, whole: Whole) -> bool:
    """Say whether a drift is excused: the cost did not rise, in a whole that got faster."""
    return (
        whole.drift == "cost"
        and whole.rate is not None
        and whole.rate.faster
        and cost is not None
        and cost.no_more_than_us <= whole.tolerance_us
    )


def _find(share: ShareChange, cost: CostChange | None, whole: Whole, *, moved: bool) -> Finding:
    if moved and share.presence != "both":
        return share.presence
    if cost is not None and cost.p_adjusted <= whole.rates.alpha:
        return "costs_more" if cost.change_us > 0.0 else "costs_less"
    if not moved:
        return "unchanged"
    if cost is not None and cost.no_more_than_us <= whole.tolerance_us:
        return "share_moved"
    return "unsettled"


def _share_reason(
    share: ShareChange,
    cost: CostChange | None,
    threshold_pp: float,
    finding: Finding,
    decision: Decision,
    *,
    certain: bool,
) -> Reason:
    """Return why a share past its threshold was judged as it was."""
    name = "The rest of the profile" if share.name == OTHER else share.name
    shift = (
        f"{name} went from {100 * share.baseline_share:.1f} % to {100 * share.current_share:.1f} % "
        f"of the samples ({share.shift_pp:+.1f} percentage points, {threshold_pp:g} allowed)"
    )
    words = _FINDING_WORDS[finding]
    if cost is not None:
        words += f" ({significant(cost.baseline_us)} → {significant(cost.current_us)} µs)"
    code, why = "E_SHARE_DRIFT", f": {words}."
    if not certain and decision == "pass":
        code = "I_SHARE_MOVED"
        why = (
            ", which may be chance. The whole got faster and it costs no more, so it is excused "
            "either way."
        )
    elif not certain:
        code, why = "E_SHARE_UNSETTLED", f", which may be chance with so few samples. {MORE_TIME}"
    elif decision == "improved":
        code, why = "I_SHARE_MOVED", f": {words}, and the whole got faster."
    elif decision == "inconclusive":
        code = "E_SHARE_UNSETTLED"
        why = (
            f": {words}. It is excused if its cost did not rise in a whole that got faster, which "
            "is not shown yet."
        )
    return Reason(code, shift + why)

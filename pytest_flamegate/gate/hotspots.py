"""Judge whether a share drifted past its threshold, and whether the function itself costs more.

A share moves if its own function changes and if any other does, so a drift alone is no
regression unless drift is strict. A function whose cost per token certainly rose is one, unless
the whole passes and functions that are gone or got cheaper save as much: work may have moved from
there. A new function is one if it costs more than those functions save together: otherwise it may
be one of them renamed, or a part of one. If it is not settled whether a cost rose, the drift passes
with the whole, and is reported.
"""

import math
from collections.abc import Iterator, Sequence
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
from pytest_flamegate.gate.rule import (
    FAVOURABLE,
    SHARE,
    SHARE_UNIT,
    Decision,
    ErrorRates,
    ProcessKind,
    RateVerdict,
    Reason,
    Signal,
    list_names,
)
from pytest_flamegate.gate.statistics import Estimate

ShareDrift = Literal["cost", "strict"]
"""``cost`` fails a drift whose cost certainly rose, ``strict`` every drift."""
Finding = Literal[
    "unchanged", "costs_more", "costs_less", "share_moved", "unsettled", "new", "vanished"
]
"""``share_moved``: the share moved and the cost did not rise; ``unsettled``: it may have risen."""
_LONGEST_SAMPLING_S = 300.0
"""More seconds of samples than a user would wait for."""
_NO_SAMPLING = (
    "Sampling cannot settle it here: allow a larger drift (hotspots), or clock the part with "
    "bricks."
)
_FINDING_WORDS: dict[Finding, str] = {
    "unchanged": "",
    "costs_more": "it costs more per token",
    "costs_less": "it costs less per token",
    "share_moved": "its share moved, its cost did not rise",
    "unsettled": "its share moved, and whether its cost rose is not settled",
    "new": "it is new",
    "vanished": "it is gone",
}


@dataclass(frozen=True, slots=True)
class HotspotChange:
    """One judged function: how its share moved, the finding, and the decision."""

    share: ShareChange
    threshold_pp: float
    finding: Finding
    decision: Decision
    reason: Reason | None = None
    more_processes: tuple[ProcessKind, ...] = ()

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
            name=f"{SHARE}{share.name}",
            baseline=100.0 * share.baseline_share,
            current=100.0 * share.current_share,
            unit=SHARE_UNIT,
            direction="lower_is_better",
            decision=self.decision,
            change_pct=share.shift_pp,
            ci_low_pct=share.ci_low_pp,
            ci_high_pct=share.ci_high_pp,
            threshold_pct=self.threshold_pp,
            smallest_detectable_pct=share.detectable_pp,
            reasons=(self.reason,) if self.reason is not None else (),
            more_processes=self.more_processes,
        )


@dataclass(frozen=True, slots=True)
class JudgedShares:
    """All judged functions, hottest first, every cost, and why something was not judged."""

    hotspots: tuple[HotspotChange, ...] = ()
    costs: tuple[CostChange, ...] = ()
    reasons: tuple[Reason, ...] = ()
    more_processes: tuple[ProcessKind, ...] = ()


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
    sampled_s: float
    """The time that the profiles of a side cover, 0 if it is not known."""
    new_functions_cost: bool
    """Whether new functions certainly cost more than gone and cheaper ones save."""
    functions_cost: bool
    """Whether new, gone, cheaper and slower functions together certainly cost more."""


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

    If shares cannot be judged a reason says why: ``E_FUNCTION_UNKNOWN`` (a declared function is in
    no profile), ``E_FEW_PROCESSES`` (below three profiled processes a side). ``rate`` is the
    decision about tokens per second, ``cpu`` the change of log CPU time per token, if pairs
    measured it.
    """
    declared = [name for name in thresholds.hotspots_pp if name != "*"]
    counts = len(baseline.profiled), len(current.profiled)
    if min(counts) < MIN_PROCESSES:
        return _unjudged(declared, *counts)
    shares = share_changes(
        baseline.profiled, current.profiled, declared, rates.alpha, baseline.profiler
    )
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
    tolerance_us = allowed * 1e6 / baseline.quiet_tokens_per_second
    sampled_s = min(baseline.sampled_s, current.sampled_s)
    found = [(share.presence, by_name[share.name]) for share in shares if share.name in by_name]
    new = [cost for presence, cost in found if presence != "both" or cost.ci_high_us < 0.0]
    slower = [cost for presence, cost in found if presence == "both" and cost.ci_low_us > 0.0]
    whole = Whole(
        rate,
        tolerance_us,
        rates,
        drift,
        sampled_s,
        new_functions_cost=_costs_more(new),
        functions_cost=_costs_more([*new, *slower]),
    )
    hotspots = tuple(
        _judge_share(share, by_name.get(share.name), thresholds.share_pp(share.name), whole)
        for share in shares
    )
    observed = observed_frames(baseline.profiled, current.profiled)
    reasons = tuple(_general_reasons(declared, observed, hotspots, sampled_s))
    return JudgedShares(hotspots, costs, reasons)


def _unjudged(declared: list[str], baseline: int, current: int) -> JudgedShares:
    """Return why the shares of so many profiled processes a side were not judged."""
    more_processes: tuple[ProcessKind, ...] = ()
    if baseline or current:
        reason = Reason(
            "E_FEW_PROCESSES",
            f"Shares need {MIN_PROCESSES} profiled processes a side; there are {baseline} at the "
            f"baseline and {current} now. {MORE_TIME[:-1]}, or accept a new baseline.",
        )
        if baseline >= MIN_PROCESSES:  # no time spent now adds a process to the baseline
            more_processes = ("profiled",)
    elif declared:
        reason = Reason(
            "E_FUNCTION_UNKNOWN",
            f"A share is declared for {', '.join(sorted(declared))}, and nothing was profiled. "
            "Choose a profiler (--flamegate-profiler) or remove the declared share.",
        )
    else:
        reason = Reason("I_NO_PROFILE", "No profile was taken; no share was judged.")
    return JudgedShares(reasons=(reason,), more_processes=more_processes)


_UNFIT = {
    "E_FEW_SAMPLES": "A profile has too few samples",
    "E_STACKS_CUT": "Most stacks of a profile do not begin in the workload",
}


def leave_shares_open(thresholds: Thresholds, drift: ShareDrift, code: str) -> JudgedShares:
    """Return that a profile judges no share: ``code`` says why, if shares are required."""
    required = sorted(name for name in thresholds.hotspots_pp if name != "*")
    if drift == "strict":
        required.append("flamegate_share_drift = strict")
    message = f"{_UNFIT[code]}, so no share was judged"
    if not required:
        return JudgedShares(reasons=(Reason("I_NO_PROFILE", f"{message}."),))
    return JudgedShares(
        reasons=(Reason(code, f"{message}, and {', '.join(required)} asks for it."),)
    )


def _general_reasons(
    declared: list[str],
    observed: tuple[str, ...],
    hotspots: tuple[HotspotChange, ...],
    sampled_s: float,
) -> Iterator[Reason]:
    """Name declared functions that are in no profile, and thresholds that the samples miss."""
    for name in sorted(declared):
        if name not in observed:
            yield Reason.advise(
                "E_FUNCTION_UNKNOWN",
                f"{name} is declared with a share and is in neither profile. Functions there: "
                f"{list_names(observed)}.",
            )
    found = [hotspot for hotspot in hotspots if hotspot.coarse]
    coarse = [
        f"{hotspot.name} {hotspot.share.detectable_pp:.1f} pp ({hotspot.threshold_pp:g} allowed)"
        for hotspot in found
    ]
    if found:
        most = max(each.share.detectable_pp / each.threshold_pp for each in found)
        yield Reason(
            "I_SHARES_COARSE",
            "Too few samples to see the limit of every share; for certain a drift shows from: "
            f"{list_names(coarse)}. {_more_samples(sampled_s, most)}",
        )


def _more_samples(sampled_s: float, factor: float) -> str:
    """Return how much sampling makes the smallest certain change ``factor`` times smaller."""
    if not sampled_s or factor <= 1.0:
        return MORE_TIME
    needed_s = sampled_s * factor**2
    remedy = MORE_TIME if needed_s <= _LONGEST_SAMPLING_S else _NO_SAMPLING
    return (
        f"That takes about {significant(needed_s)} s of samples on each side, and there are "
        f"{significant(sampled_s)} s. {remedy}"
    )


def _judge_share(
    share: ShareChange, cost: CostChange | None, threshold_pp: float, whole: Whole
) -> HotspotChange:
    moved = share.p_adjusted <= whole.rates.alpha
    finding = _find(share, cost, whole, moved=moved)
    decision: Decision = "pass"
    more_processes: tuple[ProcessKind, ...] = ()
    reason: Reason | None = None
    if abs(share.shift_pp) > threshold_pp:
        if moved:
            decision, more_processes = decide_drift(share, cost, whole)
        elif not passes_with_whole(cost, whole):
            decision, more_processes = "inconclusive", ("profiled",)
        reason = _share_reason(share, cost, threshold_pp, finding, decision, whole, certain=moved)
    return HotspotChange(
        share=share,
        threshold_pp=threshold_pp,
        finding=finding,
        decision=decision,
        reason=reason,
        more_processes=more_processes,
    )


def _costs_more(costs: Sequence[CostChange]) -> bool:
    """Return whether functions together certainly cost more.

    The errors of the costs are added as if they were independent. They are not: a sample in one
    function is none in another, so the sum is known better than that.
    """
    error_us = math.hypot(*((cost.ci_high_us - cost.ci_low_us) / 2.0 for cost in costs))
    return sum(cost.change_us for cost in costs) > error_us


def decide_drift(
    share: ShareChange, cost: CostChange | None, whole: Whole
) -> tuple[Decision, tuple[ProcessKind, ...]]:
    """Decide about a share that certainly drifted past its threshold."""
    if whole.drift == "strict":
        return "regressed", ()
    if whole.rate is None or cost is None:
        return "inconclusive", ("timed",)
    rose = cost.change_us > 0.0 and cost.p_adjusted <= whole.rates.alpha
    if rose and share.presence == "both":
        # Work that only moved here from another function costs the whole nothing.
        costs = whole.functions_cost and not whole.rate.faster
        passes = whole.rate.decision in FAVOURABLE and not costs
        return ("pass" if passes else "regressed"), ()
    if rose and whole.new_functions_cost and not whole.rate.faster:
        return "regressed", ()
    if passes_with_whole(cost, whole):
        return ("improved" if whole.rate.faster else "pass"), ()
    return "inconclusive", ("profiled",)


def passes_with_whole(cost: CostChange | None, whole: Whole) -> bool:
    """Return whether a drift passes: its cost did not rise, or is open and the whole passes."""
    if whole.drift == "strict" or whole.rate is None or cost is None:
        return False
    return _has_not_risen(cost, whole) or whole.rate.decision in FAVOURABLE


def _has_not_risen(cost: CostChange, whole: Whole) -> bool:
    return cost.no_more_than_us <= whole.tolerance_us


def _find(share: ShareChange, cost: CostChange | None, whole: Whole, *, moved: bool) -> Finding:
    if moved and share.presence != "both":
        return share.presence
    if cost is not None and cost.p_adjusted <= whole.rates.alpha:
        return "costs_more" if cost.change_us > 0.0 else "costs_less"
    if not moved:
        return "unchanged"
    if cost is not None and _has_not_risen(cost, whole):
        return "share_moved"
    return "unsettled"


def _share_reason(
    share: ShareChange,
    cost: CostChange | None,
    threshold_pp: float,
    finding: Finding,
    decision: Decision,
    whole: Whole,
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
    if decision in FAVOURABLE:
        code, why = "I_SHARE_MOVED", f": {words}."
        if not certain:
            why = ", which may be chance."
        elif finding == "new":
            why = f": {words}. It may not cost more than gone and cheaper functions save."
        if finding == "costs_more":
            why += " The whole passes, and functions that are gone or cost less may save as much."
        else:
            why += " A share fails only if its function certainly costs more per token."
    elif not certain:
        more = _more_samples(whole.sampled_s, share.detectable_pp / abs(share.shift_pp))
        code, why = "E_SHARE_UNSETTLED", f", which may be chance with so few samples. {more}"
    elif decision == "inconclusive":
        more = MORE_TIME
        if cost is not None:
            least_us = max(whole.tolerance_us, abs(cost.change_us))
            more = _more_samples(whole.sampled_s, (cost.ci_high_us - cost.change_us) / least_us)
        code, why = "E_SHARE_UNSETTLED", f": {words}. {more}"
    return Reason(code, shift + why)

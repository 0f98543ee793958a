"""Judge whether a share drifted past its threshold, and tell costing more from weighing more.

A share moves when its own function changes and when any other does. So each drift is
told apart by the cost per token: `costs_more` is a regression; `share_moved` (the cost
did not rise) is excused when the whole certainly got faster, unless drift is strict.
A drift that no evidence excuses fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.gate.rule import view_change
from pytest_flamegate.gate.shares import OTHER, ShareChange, observed_frames, share_changes
from pytest_flamegate.gate.signals import MIN_PROCESSES, Reason
from pytest_flamegate.gate.statistics import Estimate, combine, holm, welch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.config.thresholds import Thresholds
    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.gate.rule import RateVerdict
    from pytest_flamegate.gate.signals import Decision, ErrorRates, Helper


WAITING = "(waiting)"
"""Quiet time off the CPU: sleeps, locks, input and output."""
MOST = 0.8
"""The part of a change that has to be explained before the frames behind it are named."""
_WAITING_WORTH_SAYING = 0.01
_US_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class CostChange:
    """What one function costs per token in µs, before and after.

    The interval (each row for itself) errs with the false-alarm rate of a look;
    ``no_more_than_us`` bounds the change from above with the miss rate of a look;
    ``p_adjusted`` is Holm's over all rows. ``explains`` is the fraction of the whole
    change that this row makes up, None where the whole did not certainly change.
    """

    name: str
    baseline_us: float
    current_us: float
    change_us: float
    ci_low_us: float
    ci_high_us: float
    no_more_than_us: float
    p_adjusted: float
    explains: float | None = None

    @property
    def certain(self) -> bool:
        """Whether its interval excludes that nothing changed."""
        return self.ci_low_us > 0.0 or self.ci_high_us < 0.0


def cost_changes(
    shares: Sequence[ShareChange],
    baseline: Measurement,
    current: Measurement,
    rates: ErrorRates,
    *,
    whole_changed: bool,
    cpu: Estimate | None = None,
) -> tuple[CostChange, ...]:
    """Return the cost of every row of ``shares``, and of waiting where there is any.

    Largest change first. ``whole_changed`` says whether tokens per second certainly changed;
    ``cpu`` is the change of log CPU time per token where pairs told it, else the two sides do.
    ValueError below two timed processes a side.
    """
    if cpu is None:
        cpu = cpu_change(baseline, current)
    cpu_us = baseline.cpu_s_per_token * _US_PER_S
    rows = [_hotspot(share, cpu_us, cpu) for share in shares]
    waiting = _waiting(baseline, current)
    if waiting is not None:
        rows.append(waiting)
    adjusted = holm([estimate.p_two_sided for _, _, estimate in rows])
    total = math.fsum(estimate.mean_diff for _, _, estimate in rows)
    changes = [
        CostChange(
            name=name,
            baseline_us=before,
            current_us=before + estimate.mean_diff,
            change_us=estimate.mean_diff,
            ci_low_us=estimate.lower(rates.alpha / 2),
            ci_high_us=estimate.upper(rates.alpha / 2),
            no_more_than_us=estimate.upper(rates.beta),
            p_adjusted=p,
        )
        for (name, before, estimate), p in zip(rows, adjusted, strict=True)
    ]
    if whole_changed and total != 0.0:
        changes = [replace(change, explains=change.change_us / total) for change in changes]
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_us), change.name)))


def explaining_functions(costs: Sequence[CostChange], part: float = MOST) -> tuple[str, ...]:
    """Return the fewest rows that together explain ``part`` of the change of the whole.

    Only rows that certainly changed count, the one that explains most first. There are none
    where the whole did not certainly change, or all of them together explain less.
    """
    rows = sorted(
        (cost for cost in costs if (cost.explains or 0.0) > 0.0 and cost.certain),
        key=lambda cost: (-(cost.explains or 0.0), cost.name),
    )
    chosen: list[str] = []
    explained = 0.0
    for row in rows:
        chosen.append(row.name)
        explained += row.explains or 0.0
        if explained >= part:
            return tuple(chosen)
    return ()


def cpu_change(baseline: Measurement, current: Measurement) -> Estimate:
    """Return the change of the logarithm of CPU time per token, the machine's own taken out.

    It lies somewhere between its views. ValueError below two timed processes a side.
    """
    seen = view_change(
        baseline, current, lambda side: side.log_cpu, lambda side: side.log_cpu_ratio
    )
    estimates = seen.estimates
    apart = max(e.mean_diff for e in estimates) - min(e.mean_diff for e in estimates)
    widest = max(estimates, key=lambda estimate: estimate.standard_error)
    error = math.hypot(widest.standard_error, apart / 2)
    return Estimate(seen.middle, error, widest.df)


def _hotspot(share: ShareChange, cpu_us: float, cpu: Estimate) -> tuple[str, float, Estimate]:
    before = share.baseline_share * cpu_us
    after_cpu_us = cpu_us * math.exp(cpu.mean_diff)
    after = share.current_share * after_cpu_us
    old_variance, old_df = share.baseline_variance
    new_variance, new_df = share.current_variance
    variance, df = combine(
        [
            (cpu_us**2 * old_variance, old_df),
            (after_cpu_us**2 * new_variance, new_df),
            ((after * cpu.standard_error) ** 2, cpu.df),
        ]
    )
    return share.name, before, Estimate(after - before, math.sqrt(variance), df)


def _waiting(baseline: Measurement, current: Measurement) -> tuple[str, float, Estimate] | None:
    """Return the row of waiting; it does not scale with the machine's speed."""
    shares = (
        side.waiting_s_per_token * side.quiet_tokens_per_second for side in (baseline, current)
    )
    if max(shares) < _WAITING_WORTH_SAYING:
        return None
    old, new = (
        [process.waiting_s_per_token * _US_PER_S for process in side.timed]
        for side in (baseline, current)
    )
    return WAITING, baseline.waiting_s_per_token * _US_PER_S, welch(old, new)


ShareDrift = Literal["cost", "strict"]
"""``cost`` excuses a drift whose cost did not rise while the whole got faster."""
Finding = Literal[
    "unchanged", "costs_more", "costs_less", "share_moved", "unsettled", "new", "vanished"
]
"""``share_moved``: the share did, the cost did not; ``unsettled``: the cost may have."""
_FRAMES_NAMED = 5


@dataclass(frozen=True, slots=True)
class Hotspot:
    """One judged function: how its share and cost moved, what that is, and the decision.

    ``cost`` is None where too few timed processes tell the CPU time.
    """

    share: ShareChange
    cost: CostChange | None
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


@dataclass(frozen=True, slots=True)
class Shares:
    """All judged functions, hottest first, every cost, and why something was not judged."""

    hotspots: tuple[Hotspot, ...] = ()
    costs: tuple[CostChange, ...] = ()
    reasons: tuple[Reason, ...] = ()
    helped_by: tuple[Helper, ...] = ()


@dataclass(frozen=True, slots=True)
class _Context:
    """What judging one function needs to know of the whole."""

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
) -> Shares:
    """Judge every hotspot's share; ``rate`` is what tokens per second said (None if refused).

    ``cpu`` is the change of log CPU time per token where pairs told it.

    Where shares cannot be judged the reason says why: ``E_NO_PROFILE`` (a frame's share
    is declared and nothing was profiled), ``E_FEW_PROFILES`` (below three profiled
    processes a side), ``E_HOTSPOT_UNKNOWN`` (a declared frame is in neither profile).
    """
    declared = [name for name in thresholds.hotspots_pp if name != "*"]
    counts = len(baseline.profiled), len(current.profiled)
    if counts == (0, 0):
        return _without_profile(declared)
    if min(counts) < MIN_PROCESSES:
        return _too_few(*counts)
    shares = share_changes(baseline.profiled, current.profiled, declared, rates.alpha)
    costs: tuple[CostChange, ...] = ()
    if min(len(baseline.timed), len(current.timed)) >= MIN_PROCESSES:
        costs = cost_changes(
            shares,
            baseline,
            current,
            rates,
            whole_changed=rate is not None and (rate.slower or rate.faster),
            cpu=cpu,
        )
    by_name = {cost.name: cost for cost in costs}
    allowed = thresholds.tokens_per_second_pct / 100.0
    context = _Context(rate, allowed * 1e6 / baseline.quiet_tokens_per_second, rates, drift)
    hotspots = tuple(
        _judge_one(share, by_name.get(share.name), thresholds, context) for share in shares
    )
    return Shares(
        hotspots=hotspots,
        costs=costs,
        reasons=(*_unknown(declared, baseline, current), *_coarse(hotspots)),
    )


def _without_profile(declared: list[str]) -> Shares:
    reason = Reason("I_NO_PROFILE", "No profile was taken; no share was judged.")
    if declared:
        reason = Reason(
            "E_NO_PROFILE",
            f"A share is declared for {', '.join(sorted(declared))}, and nothing was profiled. "
            "Choose a profiler (--flamegate-profiler) or remove the declared share.",
        )
    return Shares(reasons=(reason,))


def _too_few(baseline: int, current: int) -> Shares:
    reason = Reason(
        "E_FEW_PROFILES",
        f"Shares need {MIN_PROCESSES} profiled processes a side, and there are {baseline} at the "
        f"baseline and {current} now. Give it more time (--flamegate-budget sets the seconds), "
        "or accept a new baseline.",
    )
    # No time spent now adds a process to the baseline.
    return Shares(reasons=(reason,), helped_by=("profiled",) if baseline >= MIN_PROCESSES else ())


def _coarse(hotspots: tuple[Hotspot, ...]) -> tuple[Reason, ...]:
    """Say for which functions the samples were too few for the threshold asked for."""
    rows = [hotspot for hotspot in hotspots if hotspot.coarse]
    if not rows:
        return ()
    told = ", ".join(
        f"{hotspot.name} {hotspot.share.detectable_pp:.1f} pp of {hotspot.threshold_pp:g}"
        for hotspot in rows[:_FRAMES_NAMED]
    )
    return (
        Reason(
            "I_SHARES_COARSE",
            f"Drifts of a share that could have been seen for certain: {told}"
            f"{', …' * (len(rows) > _FRAMES_NAMED)}. More time takes more samples "
            "(--flamegate-budget sets the seconds).",
        ),
    )


def _unknown(
    declared: list[str], baseline: Measurement, current: Measurement
) -> tuple[Reason, ...]:
    seen = observed_frames(baseline.profiled, current.profiled)
    return tuple(
        Reason(
            "E_HOTSPOT_UNKNOWN",
            f"{name} is declared with a share and is not in either profile; frames seen: "
            f"{', '.join(seen[:_FRAMES_NAMED]) or 'none'}{', …' * (len(seen) > _FRAMES_NAMED)}. "
            "Correct the name in hotspots.",
        )
        for name in sorted(declared)
        if name not in seen
    )


def _judge_one(
    share: ShareChange, cost: CostChange | None, thresholds: Thresholds, context: _Context
) -> Hotspot:
    threshold = thresholds.share_pp(share.name)
    moved = share.p_adjusted <= context.rates.alpha
    finding = _finding(share, cost, context, moved=moved)
    decision: Decision = "pass"
    helped_by: tuple[Helper, ...] = ()
    reason: Reason | None = None
    if abs(share.shift_pp) > threshold:
        if moved:
            decision, helped_by = _drifted(cost, context)
        elif not _excused(cost, context):
            decision, helped_by = "inconclusive", ("profiled",)
        reason = _reason(share, cost, threshold, finding, decision, confirmed=moved)
    return Hotspot(
        share=share,
        cost=cost,
        threshold_pp=threshold,
        finding=finding,
        decision=decision,
        reason=reason,
        helped_by=helped_by,
    )


def _drifted(cost: CostChange | None, context: _Context) -> tuple[Decision, tuple[Helper, ...]]:
    """Decide about a share that certainly drifted past its threshold."""
    rate = context.rate
    if context.drift == "strict":
        return "regressed", ()
    if rate is None or cost is None:
        return "inconclusive", ("timed",)
    if _costs_more(cost, context.rates.alpha):
        return "regressed", ()
    if not rate.faster:
        # The whole may yet prove faster; only then could the drift be excused.
        undecided = rate.decision == "inconclusive" and rate.low + rate.high < 0.0
        return ("inconclusive", ("timed",)) if undecided else ("regressed", ())
    if _excused(cost, context):
        return "improved", ()
    return "inconclusive", ("profiled",)


def _excused(cost: CostChange | None, context: _Context) -> bool:
    """Say whether a drift, certain or not, is excused: no dearer, in a whole that got faster."""
    return (
        context.drift == "cost"
        and context.rate is not None
        and context.rate.faster
        and cost is not None
        and cost.no_more_than_us <= context.tolerance_us
    )


def _costs_more(cost: CostChange, alpha: float) -> bool:
    return cost.change_us > 0.0 and cost.p_adjusted <= alpha


def _finding(
    share: ShareChange, cost: CostChange | None, context: _Context, *, moved: bool
) -> Finding:
    if moved and share.presence != "both":
        return "new" if share.presence == "new" else "vanished"
    if cost is not None and cost.p_adjusted <= context.rates.alpha:
        return "costs_more" if cost.change_us > 0.0 else "costs_less"
    if not moved:
        return "unchanged"
    if cost is not None and cost.no_more_than_us <= context.tolerance_us:
        return "share_moved"
    return "unsettled"


_FINDING_WORDS: dict[Finding, str] = {
    "unchanged": "",
    "costs_more": "it costs more per token",
    "costs_less": "it costs less per token",
    "share_moved": "the share moved, the cost did not",
    "unsettled": "the share moved, and whether the cost did is not settled",
    "new": "it is new",
    "vanished": "it vanished",
}


def _reason(
    share: ShareChange,
    cost: CostChange | None,
    threshold: float,
    finding: Finding,
    decision: Decision,
    *,
    confirmed: bool,
) -> Reason:
    name = "The rest of the profile" if share.name == OTHER else share.name
    shift = (
        f"{name} went from {100 * share.baseline_share:.1f} % to {100 * share.current_share:.1f} % "
        f"of the samples ({share.shift_pp:+.1f} pp, {threshold:g} allowed)"
    )
    if not confirmed and decision == "pass":
        return Reason(
            "I_SHARE_EXCUSED",
            f"{shift}, which may be chance; the whole got faster and it costs no more, so it is "
            "excused either way.",
        )
    if not confirmed:
        return Reason("E_SHARE_NOISE", f"{shift}, which these samples cannot tell from chance.")
    words = _FINDING_WORDS[finding]
    if cost is not None:
        words += f" ({cost.baseline_us:.3g} → {cost.current_us:.3g} µs)"
    if decision == "improved":
        return Reason("I_SHARE_MOVED", f"{shift}: {words}, and the whole got faster.")
    if decision == "inconclusive":
        return Reason(
            "E_SHARE_UNEXPLAINED",
            f"{shift}: {words}. Only a cost that did not rise in a whole that got faster "
            "excuses it, and that is not shown yet.",
        )
    return Reason("E_SHARE_DRIFT", f"{shift}: {words}.")

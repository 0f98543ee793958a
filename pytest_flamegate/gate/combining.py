"""What the rate, the shares and the bricks say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.gate.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.gate.bricks import Bricks
    from pytest_flamegate.gate.hotspots import Hotspot, Shares
    from pytest_flamegate.gate.signals import Helper, Reason
    from pytest_flamegate.gate.verdict import VerdictName


def share_signal(hotspot: Hotspot) -> Signal:
    """Return one judged share as a signal, in percent of the samples."""
    share = hotspot.share
    return Signal(
        name=f"share:{share.name}",
        baseline=100.0 * share.baseline_share,
        current=100.0 * share.current_share,
        unit="share_pct",
        direction="lower_is_better",
        decision=hotspot.decision,
        change_pct=share.shift_pp,
        ci_low_pct=share.ci_low_pp,
        ci_high_pct=share.ci_high_pp,
        threshold_pct=hotspot.threshold_pp,
        smallest_detectable_pct=share.detectable_pp,
        reasons=(hotspot.reason,) if hotspot.reason is not None else (),
        helped_by=hotspot.helped_by,
    )


def combined(rate: Signal, shares: Shares, bricks: Bricks) -> VerdictName:
    """Return the verdict that the rate, the shares and the bricks make together."""
    decisions = {rate.decision, *(hotspot.decision for hotspot in shares.hotspots)}
    decisions.update(signal.decision for signal in bricks.signals)
    if "regressed" in decisions:
        return "regressed"
    reasons = (*shares.reasons, *bricks.reasons)
    if "inconclusive" in decisions or any(r.code.startswith("E_") for r in reasons):
        return "inconclusive"
    return "improved" if "improved" in decisions else "pass"


def ordered(name: VerdictName, rate: Signal, shares: Shares, bricks: Bricks) -> tuple[Reason, ...]:
    """Put the reasons that decided first; tokens per second leads among equals."""
    judged: list[tuple[bool, Sequence[Reason]]] = [(rate.decision == name, rate.reasons)]
    judged += [
        (hotspot.decision == name, (hotspot.reason,))
        for hotspot in shares.hotspots
        if hotspot.reason is not None
    ]
    judged += [(signal.decision == name, signal.reasons) for signal in bricks.signals]
    general = (*shares.reasons, *bricks.reasons)
    undecided = [reason for reason in general if reason.code.startswith("E_")]
    informing = [reason for reason in general if not reason.code.startswith("E_")]
    judged += [(name == "inconclusive", undecided), (False, informing)]
    deciding = [reason for decides, reasons in judged if decides for reason in reasons]
    beside = [reason for decides, reasons in judged if not decides for reason in reasons]
    return tuple(deciding + beside)


def helped_by(rate: Signal, shares: Shares, bricks: Bricks) -> tuple[Helper, ...]:
    """Return of which processes more could settle what is open."""
    wanted: set[Helper] = {*rate.helped_by, *shares.helped_by, *bricks.helped_by}
    for signal in bricks.signals:
        wanted.update(signal.helped_by)
    for hotspot in shares.hotspots:
        wanted.update(hotspot.helped_by)
    return tuple(sorted(wanted))

"""Verdicts for the reports to show; figures made up, shapes real."""

from dataclasses import replace

from pytest_flamegate.config.thresholds import BrickBudget
from pytest_flamegate.gate.brick_costs import BrickCost, LayerGrowth
from pytest_flamegate.gate.bricks import BrickChange
from pytest_flamegate.gate.costs import CostChange, ShareChange
from pytest_flamegate.gate.edits import Place
from pytest_flamegate.gate.hotspots import HotspotChange
from pytest_flamegate.gate.lines import LineChange
from pytest_flamegate.gate.pairs import PhaseChange
from pytest_flamegate.gate.rule import Reason, Signal
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.profile.calls import CallChange


def signal(name: str, unit: str, decision: str, **figures: float | None) -> Signal:
    """Return a compared figure; a larger one is worse, unless it is a rate."""
    is_rate = unit == "tokens/s"
    return Signal(
        name=name,
        unit=unit,
        direction="higher_is_better" if is_rate else "lower_is_better",
        decision=decision,  # type: ignore[arg-type]
        **figures,  # type: ignore[arg-type]
    )


def rate(decision: str = "regressed", **changes: float | None) -> Signal:
    figures: dict[str, float | None] = {
        "baseline": 518.0, "current": 486.0, "change_pct": -6.2, "ci_low_pct": -7.4,
        "ci_high_pct": -5.1, "threshold_pct": 5.0, "smallest_detectable_pct": 1.9,
    }  # fmt: skip
    return signal("tokens_per_second", "tokens/s", decision, **figures | changes)


WALL = signal("tokens_per_second_wall", "tokens/s", "not_gated", baseline=515.0, current=480.0,
              change_pct=-6.8)  # fmt: skip


def share(
    name: str, before: float, after: float, finding: str, decision: str = "pass"
) -> tuple[HotspotChange, Signal]:
    change = ShareChange(
        name=name,
        baseline_share=before,
        current_share=after,
        presence="both",
        shift_pp=100 * (after - before),
        ci_low_pp=100 * (after - before) - 0.5,
        ci_high_pp=100 * (after - before) + 0.5,
        p_adjusted=0.001,
        detectable_pp=0.7,
        baseline_variance=(1e-6, 5.0),
        current_variance=(1e-6, 5.0),
    )
    hotspot = HotspotChange(
        share=change,
        threshold_pp=3.0,
        finding=finding,  # type: ignore[arg-type]
        decision=decision,  # type: ignore[arg-type]
    )
    figures = {"ci_low_pct": change.ci_low_pp, "ci_high_pct": change.ci_high_pp}
    return hotspot, signal(
        f"share:{name}", "share_pct", decision, baseline=100 * before, current=100 * after,
        change_pct=change.shift_pp, threshold_pct=3.0, **figures,
    )  # fmt: skip


def cost(
    name: str, before: float, after: float, half: float, p: float, explains: float | None
) -> CostChange:
    change = after - before
    return CostChange(
        name=name,
        baseline_us=before,
        current_us=after,
        change_us=change,
        ci_low_us=change - half,
        ci_high_us=change + half,
        no_more_than_us=change + half,
        p_adjusted=p,
        explains=explains,
    )


def regressed() -> Verdict:
    norm, norm_signal = share("rms_norm", 0.032, 0.088, "costs_more", "regressed")
    attention, attention_signal = share("attention", 0.043, 0.040, "share_moved")
    return Verdict(
        verdict="regressed",
        reasons=(
            Reason("E_SLOWER", "Tokens per second: 6.2 % slower, between 7.4 % slower and 5.1 %."),
            Reason("E_SHARE_DRIFT", "rms_norm went from 3.2 % to 8.8 % of the samples."),
        ),
        grade="OBSERVED",
        signals=(rate(), WALL, norm_signal, attention_signal),
        smallest_detectable_pct=1.9,
        false_alarm_rate=0.01,
        error_rate_basis="nominal 1 %; not calibrated on this machine",
        hotspots=(norm, attention),
        attribution=(
            cost("rms_norm", 62.0, 181.0, 9.0, 0.0001, 0.98),
            cost("ternary_gemv", 1383.0, 1386.0, 12.0, 0.9, 0.02),
            cost("attention", 83.0, 82.0, 5.0, 0.9, -0.01),
        ),
        baseline_processes=14,
        current_processes=14,
        cpu_pressure_pct=12.0,
    )


CHANGED_LINE = Place("src/norm.c", 221, 224, is_changed=True)


def changed_line_cost() -> CostChange:
    """What the changed lines cost, in all that they call."""
    return CostChange(str(CHANGED_LINE), 30.0, 110.0, 80.0, 71.0, 89.0, 1e-4, 0.67)


CALLS = (
    CallChange("Model.norm", "src/norm.py", "decode", 24.0, 48.0, ("Model.step", "Model.layer")),
    CallChange("Model.norm", "src/norm.py", "prefill", 24.0, 48.0, ("Model.step", "Model.layer")),
    CallChange("encode", "src/tokens.py", "prefill", 1.0, 2.0, ("(workload)",)),
    CallChange("numpy.ndarray.dot", "", "decode", 24.0, 48.0),
)


def in_pairs() -> Verdict:
    """The same regression, compared with a revision."""
    return replace(
        regressed(),
        miss_rate=0.02,
        explained_by=("rms_norm", "quantize"),
        lines=(LineChange(CHANGED_LINE, changed_line_cost()),),
        calls=CALLS,
        phases=(
            PhaseChange("prefill", 39.9, 40.1, -0.5, -2.0, 1.1, certain=False),
            PhaseChange("decode", 1.93, 2.06, -6.2, -7.4, -5.1, certain=True),
        ),
        pairs=14,
        pair_method="shared core",
        analyses=(4, 6, 8, 10, 14, 20, 28),
        against="4f2c91a0c2d1f6b7a8e9d0c1b2a3948576e5d4c3",
        bricks=(grown(),),
    )


def no_baseline() -> Verdict:
    return Verdict(
        verdict="no_baseline",
        reasons=(Reason("E_NO_BASELINE", "No baseline is accepted for this workload here."),),
        grade="OBSERVED",
        signals=(rate("no_baseline", baseline=None, change_pct=None),),
        current_processes=3,
    )


def inconclusive() -> Verdict:
    return Verdict(
        verdict="inconclusive",
        reasons=(
            Reason("E_NOISE", "Tokens per second: between 7.9 % slower and 1.0 % faster, so ..."),
        ),
        grade="OBSERVED",
        signals=(
            rate("inconclusive", change_pct=-3.5, ci_low_pct=-7.9, ci_high_pct=1.0),
            WALL,
        ),
        smallest_detectable_pct=8.0,
        false_alarm_rate=0.01,
        error_rate_basis="nominal 1 %; not calibrated on this machine",
        more_processes=("timed",),
        baseline_processes=28,
        current_processes=28,
        cpu_pressure_pct=84.0,
    )


def brick(name: str, before: float | None, now: float, unit: str, allowed: float) -> Signal:
    """A judged brick; without ``before`` one call is held to its budget."""
    change = 100.0 * (now / before - 1.0) if before else 20.0
    decision = "regressed" if change > allowed else "pass"
    return signal(
        f"brick:{name}", unit, decision, baseline=before, current=now, change_pct=change,
        ci_low_pct=change - 3.0, ci_high_pct=change + 3.0, threshold_pct=allowed,
    )  # fmt: skip


def grown() -> BrickChange:
    """A brick that cost more, most of it in one layer."""
    before, after = (
        BrickCost((each / 8,) * 5, (8.0,) * 5, 0.02, ((0, each / 2), (1, 6.0)), True)
        for each in (12.0, 15.0)
    )
    judged = brick("RmsNorm", 12.0, 15.0, "us/token", 10.0)
    budget = BrickBudget(growth_pct=10.0)
    return BrickChange("RmsNorm", budget, before, after, (judged,), LayerGrowth(0, 6.0, 9.0))

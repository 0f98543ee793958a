"""Signals, costs and metrics as cells of a table: the same on a page and in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures

if TYPE_CHECKING:
    from pytest_flamegate.gate.cost import CostChange
    from pytest_flamegate.gate.signals import Signal
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.receipt.types import Metric

SHARE = "share_pct"
NONE = "–"

_TITLES = {
    "tokens_per_second": "throughput",
    "quiet_s_per_token": "quiet time for each token",
    "cpu_s_per_token": "CPU time for each token",
    "time_to_first_token_ms": "time to first token (TTFT)",
    "time_per_output_token_ms": "time per output token (TPOT)",
    "inter_token_latency_ms": "inter-token latency (ITL), median",
    "inter_token_latency_p95_ms": "inter-token latency (ITL), 95th percentile",
    "prefill_tokens_per_second": "prefill",
    "decode_tokens_per_second": "decode",
    "load_ms": "load, start to ready",
}


def metric_title(metric: Metric) -> str:
    """Return what a metric is called by people; its own name where there is nothing better."""
    return _TITLES.get(metric.name, metric.name.replace("_", " "))


def metric_value(metric: Metric) -> str:
    """Return a metric's value with its unit, times in the unit that reads best."""
    if metric.unit == "s":
        return figures.seconds(metric.value)
    if metric.unit == "ms":
        return figures.seconds(metric.value / 1e3)
    if metric.unit == "us":
        return figures.seconds(metric.value / 1e6)
    if metric.unit == "tokens":
        return f"{figures.tidy(metric.value)} tokens"
    return f"{figures.significant(metric.value)} {metric.unit}"


def _amount(signal: Signal, value: float | None) -> str:
    if value is None:
        return NONE
    if signal.unit == SHARE:
        return f"{value:.1f} %"
    return f"{figures.significant(value)} {signal.unit.replace('us/', 'µs/')}"


def amounts(signal: Signal) -> tuple[str, ...]:
    """Return a rate's figures without their unit: before and now, or now alone."""
    known = [value for value in (signal.baseline, signal.current) if value is not None]
    return tuple(figures.significant(value) for value in known) or (NONE,)


def signal_cells(signal: Signal) -> tuple[str, str, str, str, str, str, str, str]:
    """Return eight cells.

    Name, baseline, now, change, interval, allowed, smallest visible, decision.
    """
    unit = "pp" if signal.unit == SHARE else "%"
    low, high, smallest = signal.ci_low_pct, signal.ci_high_pct, signal.smallest_detectable_pct
    return (
        signal.name,
        _amount(signal, signal.baseline),
        _amount(signal, signal.current),
        NONE if signal.change_pct is None else f"{signal.change_pct:+.1f} {unit}",
        NONE if low is None or high is None else f"{low:+.1f} … {high:+.1f} {unit}",
        NONE if signal.threshold_pct is None else f"{signal.threshold_pct:g} {unit}",
        NONE if smallest is None else f"{figures.tidy(smallest)} {unit}",
        signal.decision.replace("_", " "),
    )


def certain(verdict: Verdict, cost: CostChange) -> bool:
    """Say whether a function's cost certainly changed, at the verdict's false-alarm rate."""
    return cost.p_adjusted <= (verdict.false_alarm_rate or 0.0)


def cost_cells(cost: CostChange) -> tuple[str, str, str, str, str]:
    """Return five cells: name, before, after, change with half its interval, what it explains."""
    half_us = 0.5 * (cost.ci_high_us - cost.ci_low_us)
    return (
        cost.name,
        _micros(cost.baseline_us),
        _micros(cost.current_us),
        f"{'+' if cost.change_us > 0 else ''}{_micros(cost.change_us)} ±{_micros(half_us)}",
        NONE if cost.explains is None else f"{100 * cost.explains:.0f} %",
    )


def _micros(value_us: float) -> str:
    return figures.micros(value_us * 1e-6)

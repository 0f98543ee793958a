"""The judged bricks of a failed test: what each cost and costs, and what was allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.report import figures
from pytest_flamegate.report.signals import NONE
from pytest_flamegate.report.text import columns, visible

if TYPE_CHECKING:
    from pytest_flamegate.gate.signals import Signal
    from pytest_flamegate.gate.verdict import Verdict

PREFIX = "brick:"
"""What the signal of a brick is called, before its name."""
_PER_CALL = "us/call"
_MOST = 6


def brick_lines(verdict: Verdict) -> list[str]:
    """Return a line for each brick that cost too much; nothing where none did."""
    found = [
        each
        for each in verdict.signals
        if each.name.startswith(PREFIX) and each.decision == "regressed"
    ]
    rows: list[tuple[str, ...]] = []
    for signal in found[:_MOST]:
        label = "bricks" if not rows else ""
        name = visible(signal.name.removeprefix(PREFIX))
        rows.append((label, name, *_costs(signal), _said(signal) + _where(verdict, signal)))
    lines = columns(rows, right=(2, 4), indent=2, gap=2)
    if len(found) > _MOST:
        lines.append(f"  and {figures.plural(len(found) - _MOST, 'more brick')} in verdict.json")
    return lines


def _where(verdict: Verdict, signal: Signal) -> str:
    """Name the layer that most of the growth is in, where one is told."""
    for change in verdict.bricks:
        if change.grown is not None and signal in change.signals and signal.baseline is not None:
            before, now = map(
                figures.significant, (change.grown.baseline_us, change.grown.current_us)
            )
            return f", most of it in layer {change.grown.layer} ({before} → {now})"
    return ""


def _costs(signal: Signal) -> tuple[str, str, str]:
    now = NONE if signal.current is None else figures.significant(signal.current)
    unit = signal.unit.replace("us/", "µs/")
    if signal.baseline is None:
        return "", "", f"{now} {unit}"
    return figures.significant(signal.baseline), "→", f"{now} {unit}"


def _said(signal: Signal) -> str:
    """Say the change with its interval, and what it was held to."""
    if signal.change_pct is None:
        return ""
    low, high = signal.ci_low_pct, signal.ci_high_pct
    between = "" if low is None or high is None else f" ({low:+.1f} … {high:+.1f})"
    change = f"{signal.change_pct:+.1f} %{between}"
    if signal.unit == _PER_CALL:
        return f"{change} against its budget"
    return change if signal.threshold_pct is None else f"{change}, {signal.threshold_pct:g} allowed"

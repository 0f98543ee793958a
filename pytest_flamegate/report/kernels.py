"""A kernel benchmark in the field's words: calls, elements, bytes and GFLOP in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.kernel_rates import NAMES
from pytest_flamegate.receipt.metrics import value_of
from pytest_flamegate.report import figures

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence

_CALLS = NAMES[0]
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def kernel_line(evidence: Evidence) -> str | None:
    """Return what was derived of the calls in one line; None where no benchmark was measured."""
    found = {metric.name: metric for metric in evidence.metrics if metric.name in NAMES}
    if not found:
        return None
    told = [
        f"{figures.significant(metric.value)} {metric.unit}"
        if metric.unit[:1].isupper() and metric.unit != "B/s"
        else _prefixed(metric.value, metric.unit)
        for name in NAMES
        if (metric := found.get(name)) is not None
    ]
    calls = evidence.workload.get("calls")
    told.append(f"{figures.plural(calls, 'call')} a round" if isinstance(calls, int) else "")
    if evidence.workload.get("setup"):
        told.append("its setup is measured with each call")
    return " · ".join(filter(None, told))


def call_cells(evidence: Evidence | None) -> tuple[str, str] | None:
    """Return calls per second and the quiet time of one; None where no benchmark was measured."""
    rate = value_of(evidence.metrics, _CALLS) if evidence is not None else None
    if evidence is None or rate is None:
        return None
    spent, calls = value_of(evidence.metrics, "quiet_s_per_token"), evidence.workload.get("calls")
    if not isinstance(calls, int) or calls < 1:  # a file that nobody verified may say anything
        return None
    each = "–" if spent is None else f"{figures.seconds(spent / calls)}/call"
    return f"{figures.significant(rate)} calls", each


def _prefixed(value: float, unit: str) -> str:
    for size, letter in _PREFIXES:
        if value >= size:
            between = "" if unit == "B/s" else " "
            return f"{figures.significant(value / size)} {letter}{between}{unit}"
    return f"{figures.significant(value)} {unit}"

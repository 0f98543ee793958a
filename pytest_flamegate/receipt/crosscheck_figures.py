"""Cross-checks over the metrics: what is written down recomputes from what was seen.

Gates and reports read the metrics, so an edit of one is an edit of the verdict.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.metrics import overhead_pct, rate_of
from pytest_flamegate.receipt.registry import Rulebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.case import Case
    from pytest_flamegate.receipt.types import Metric
    from pytest_flamegate.workload.observation import Run

FIGURE_AGREEMENT = 1e-4
"""The tool writes every digit; this leaves room for a copy that kept four of them."""

CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."
_PREFILL = "prefill_tokens_per_second"
_READING = ("formula", "unit", "direction", "clock", "samples", "provenance")


@CHECKS.rule(
    "E_METRIC_MISMATCH",
    "Every metric that the timed runs can reproduce recomputes from them.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _metric_mismatch(case: Case) -> Iterator[str]:
    # Not its value alone: a flipped direction turns a loss into a gain.
    for name, times in Counter(metric.name for metric in case.evidence.metrics).items():
        if times > 1:
            yield f"The metric {shown(name)} stands {times} times."
    silent = [run.pid for run in case.timed if not _generates(run)]
    if silent and rate_of(case.evidence.runs) is not None:
        yield f"The timed run of process {silent[0]} holds no tokens that a metric could be of."
    expected = _expected(case)
    for metric in case.evidence.metrics:
        if metric.name in expected:
            yield from _departures(metric, expected[metric.name])


_GOES_BY = {
    "prefill_tokens_per_second": "time_to_first_token_ms",
    "decode_tokens_per_second": "time_per_output_token_ms",
    "inter_token_latency_p95_ms": "inter_token_latency_ms",
}


@SHORTFALLS.rule(
    "W_METRIC_MISSING",
    "Every metric that the timed runs give is there.",
    todo="Measure again; an older version may not have written it.",
    protects=Grade.OBSERVED,
)
def _metric_missing(case: Case) -> Iterator[str]:
    # A figure that is not there cannot have got worse.
    told = {metric.name for metric in case.evidence.metrics}
    expected = _expected(case)
    for name in expected:
        # A time that nobody saw is left out, and what goes by it too.
        seen = expected[_GOES_BY.get(name, name)].value > 0
        if name not in told and seen:
            yield f"The runs give {shown(name)}, and no metric is called so."


def _expected(case: Case) -> dict[str, Metric]:
    """Return the metrics that the timed runs give, none where they hold no rate."""
    if rate_of(case.evidence.runs) is None or not all(map(_generates, case.timed)):
        return {}
    return {metric.name: metric for metric in case.recomputed}


def _departures(metric: Metric, known: Metric) -> Iterator[str]:
    if abs(metric.value - known.value) > FIGURE_AGREEMENT * abs(known.value):
        yield (
            f"{shown(metric.name)} is {metric.value:.6g} {shown(metric.unit)}, and the runs "
            f"give {known.value:.6g}."
        )
    for field in _READING:
        told, meant = getattr(metric, field), getattr(known, field)
        if told != meant:
            yield f"The {field} of {shown(metric.name)} is {shown(told)}, not {shown(meant)}."


@CHECKS.rule(
    "E_OVERHEAD_MISMATCH",
    "What profiling is said to cost recomputes from the runs.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _overhead_mismatch(case: Case) -> Iterator[str]:
    # A profile that cost little is believed more.
    profile = case.evidence.profile
    if profile is None or profile.overhead_pct is None:
        return
    known = overhead_pct(case.evidence.runs, case.evidence.clock_scope)
    if known is None:
        return
    if abs(profile.overhead_pct - known) > FIGURE_AGREEMENT * (100.0 + abs(known)):
        yield (
            f"Profiling is said to cost {profile.overhead_pct:.4g} %, and the runs give "
            f"{known:.4g} %."
        )


def _generates(run: Run) -> bool:
    sequences = [gaps for block in run.blocks for gaps in block.sequences_ns]
    judged = sum(block.judged_tokens for block in run.blocks)
    return judged > 0 and all(sequences)

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
from pytest_flamegate.receipt.reported import AT_LEAST, engine_metrics, of_engine

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
    for (name, _), times in Counter(map(_known_by, case.evidence.metrics)).items():
        if times > 1:
            yield f"The metric {shown(name)} stands {times} times."
    yield from _told_by_nobody(case)
    silent = [run.pid for run in case.timed if not _generates(run)]
    if silent and rate_of(case.evidence.runs) is not None:
        yield f"The timed run of process {silent[0]} holds no tokens that a metric could be of."
    expected = _expected(case)
    for metric in case.evidence.metrics:
        if (known := expected.get(_known_by(metric))) is not None:
            yield from _departures(metric, known)


def _told_by_nobody(case: Case) -> Iterator[str]:
    # Where nothing ran, figures are ingested from elsewhere, and nothing here vouches for them.
    told = {_known_by(metric) for metric in engine_metrics(case.timed)}
    for metric in case.evidence.metrics:
        if case.timed and of_engine(metric) and _known_by(metric) not in told:
            yield (
                f"{shown(metric.name)} is said to be the engine's own ({shown(metric.formula)}), "
                f"and not {AT_LEAST} reports of the timed runs give it."
            )


def _known_by(metric: Metric) -> tuple[str, str]:
    """Return what a metric is known by: its name, and of the engine's own also who told it."""
    return metric.name, metric.formula if of_engine(metric) else ""


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
    told = set(map(_known_by, case.evidence.metrics))
    expected = _expected(case)
    for metric in expected.values():
        # A time that nobody saw is left out, and what goes by it too.
        behind = expected.get((_GOES_BY.get(metric.name, ""), ""), metric)
        if _known_by(metric) not in told and (behind.value > 0 or of_engine(metric)):
            yield f"The runs give {shown(metric.name)}, and no metric is called so."


def _expected(case: Case) -> dict[tuple[str, str], Metric]:
    """Return the metrics that the timed runs give, none where they hold no rate."""
    if rate_of(case.evidence.runs) is None or not all(map(_generates, case.timed)):
        return {}
    return {_known_by(metric): metric for metric in case.recomputed}


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

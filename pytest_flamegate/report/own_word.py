"""What an engine says of itself, beside what was observed, and what each of the two is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.formulas import meaning_of
from pytest_flamegate.receipt.reported import observed_as, of_engine, source_of
from pytest_flamegate.report.signals import NONE, metric_title, metric_value
from pytest_flamegate.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.types import Evidence, Metric, Receipt

TITLE = "The engine's own figures"
HEAD = ("figure", "told by", "engine", "observer", "what the two are")
RIGHT = (2, 3)
_TOLD = ("engine_decode_tokens_per_second", "engine_tokens_per_second")
_KERNELS = 4
_ROWS = 60
_TITLES = {
    "engine_tokens": "tokens generated",
    "engine_prompt_tokens": "tokens of the prompt",
    "engine_load_ms": "load",
    "engine_prefill_ms": "prefill",
    "engine_decode_ms": "decode, in all",
    "engine_total_ms": "total",
    "engine_embed_us": "embedding",
    "engine_forward_us": "forward pass",
    "engine_logits_us": "logits",
    "engine_sample_us": "sampling",
    "engine_tokens_per_second": "throughput",
    "engine_prefill_tokens_per_second": "prefill rate",
    "engine_decode_tokens_per_second": "decode rate",
}


def observed(evidence: Evidence) -> list[Metric]:
    """Return the metrics that are not the engine's own word."""
    return [metric for metric in evidence.metrics if not of_engine(metric)]


def own_rows(evidence: Evidence) -> list[tuple[str, str, str, str, str]]:
    """Return five cells for each figure of the engine's own; no rows where it told none.

    Of very many the first are shown, and a last row says how many more there are.
    """
    told = [metric for metric in evidence.metrics if of_engine(metric)]
    rows = [
        (
            _TITLES.get(metric.name, metric_title(metric)),
            visible(source_of(metric), 80),
            metric_value(metric),
            NONE if beside is None else metric_value(beside),
            _what(metric, beside),
        )
        for metric in told[:_ROWS]
        for beside in [observed_as(metric, evidence.metrics)]
    ]
    if len(told) > _ROWS:
        rows.append((f"{len(told) - _ROWS:,} more, in evidence.json", NONE, NONE, NONE, ""))
    return rows


def own_lines(evidence: Evidence, receipt: Receipt | None) -> list[str]:
    """Return what a terminal says of the engine's own word: one line each of rate and kernels."""
    lines = []
    rates = [metric for name in _TOLD for metric in evidence.metrics if metric.name == name]
    if rates:
        beside = observed_as(rates[0], evidence.metrics)
        seen = f", observed {metric_value(beside)}" if beside is not None else ""
        what = _what(rates[0], beside)
        lines.append(
            f"the engine's own word ({visible(source_of(rates[0]), 80)}, not gated): "
            f"{metric_value(rates[0])}{seen}{f' ({what})' if what else ''}"
        )
    if alone := _by_word_alone(evidence, receipt):
        more = f" and {len(alone) - _KERNELS} more" if len(alone) > _KERNELS else ""
        named = ", ".join(visible(name, 40) for name in alone[:_KERNELS])
        lines.append(f"kernels by the engine's word alone, seen by no profiler: {named}{more}")
    return lines


def _by_word_alone(evidence: Evidence, receipt: Receipt | None) -> Sequence[str]:
    """Return the claimed kernels that no profile showed."""
    seen = {each.name for each in evidence.kernels if each.source == "profile"}
    claimed = receipt.kernels if receipt is not None else ()
    return [name for name in claimed if name not in seen]


def _what(metric: Metric, beside: Metric | None) -> str:
    told = meaning_of(metric.formula)
    seen = meaning_of(beside.formula) if beside is not None else None
    return "; ".join(
        f"{who}: {words}" for who, words in (("engine", told), ("observer", seen)) if words
    )

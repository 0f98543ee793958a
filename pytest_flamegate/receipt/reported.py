"""Figures and kernels made of what engines say of themselves; none of it was observed.

An engine's figure is a metric of its own, ``engine_`` before its name, with the formula
``SOURCE:FIGURE/median`` and the provenance ``ingested``: shown beside the observer's, never gated.
Rates that follow from what one source tells are ``derived``. Their formula says of how many tokens
they are: ``n`` those that were observed in the sequence, ``(n-1)`` one less, as some engines count
the evaluations after the first token, ``predicted-tokens`` whatever the engine counted.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_flamegate.receipt.characters import hidden_in_name
from pytest_flamegate.receipt.types import KernelSighting, Metric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_flamegate.receipt.policies import Policy
    from pytest_flamegate.receipt.types import Direction
    from pytest_flamegate.workload.observation import Run
    from pytest_flamegate.workload.reported import Report

PREFIX = "engine_"
AT_LEAST = 3
"""A median of fewer says nothing."""
MAX_KERNELS = 64
_NAME_BYTES = 128


class Figure(NamedTuple):
    """The unit of a reported figure, and which way is better."""

    unit: str
    direction: Direction


_MORE: Direction = "higher_is_better"
_LESS: Direction = "lower_is_better"
FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        # Every metric has a direction; that of a count means nothing, for nothing gates on it.
        "tokens": Figure("tokens", _MORE),
        "prompt_tokens": Figure("tokens", _MORE),
        "load_ms": Figure("ms", _LESS),
        "prefill_ms": Figure("ms", _LESS),
        "decode_ms": Figure("ms", _LESS),
        "total_ms": Figure("ms", _LESS),
        "embed_us": Figure("us", _LESS),
        "forward_us": Figure("us", _LESS),
        "logits_us": Figure("us", _LESS),
        "sample_us": Figure("us", _LESS),
        "tokens_per_second": Figure("tokens/s", _MORE),
        "prefill_tokens_per_second": Figure("tokens/s", _MORE),
        "decode_tokens_per_second": Figure("tokens/s", _MORE),
    }
)
"""The figures that become metrics. Others stay in the report, where whoever reads it finds them."""

_OBSERVED_AS = {
    "engine_load_ms": "load_ms",
    "engine_prefill_ms": "time_to_first_token_ms",
    "engine_tokens_per_second": "tokens_per_second",
    "engine_prefill_tokens_per_second": "prefill_tokens_per_second",
    "engine_decode_tokens_per_second": "decode_tokens_per_second",
}
_RATES = frozenset(name for name, figure in FIGURES.items() if figure.unit == "tokens/s")
_COUNTED: Mapping[float, str] = {0: "n", -1: "(n-1)", 1: "(n+1)"}


class Told(NamedTuple):
    """One value of a figure: by whom, by what formula, and whether we computed it."""

    name: str
    source: str
    formula: str
    value: float
    provenance: Literal["ingested", "derived"]


def engine_metrics(timed: Iterable[Run]) -> tuple[Metric, ...]:
    """Return the median of every figure that one source reported three times at least.

    Each value is of a report of a timed run. They stand in the order of ``FIGURES``, and of their
    sources; a figure that two sources tell stands twice, under its name and two formulas.
    """
    values: dict[tuple[str, str], list[Told]] = {}
    for run in timed:
        for report in run.reported:
            for told in _told(report, run.tokens_per_sequence):
                values.setdefault((told.name, told.source), []).append(told)
    known = list(FIGURES)
    ordered = sorted(values.items(), key=lambda entry: (known.index(entry[0][0]), entry[0][1]))
    found = (_metric(told) for _, told in ordered if len(told) >= AT_LEAST)
    return tuple(metric for metric in found if math.isfinite(metric.value))


def _told(report: Report, observed: int) -> Iterator[Told]:
    figures, source = report.figures, report.source
    for name in FIGURES.keys() & figures.keys():
        # Engines print a rate of 0 where there was none.
        if figures[name] > 0 or name not in _RATES:
            yield Told(name, source, name, figures[name], "ingested")
    for name, tokens, time_ms, formula in (
        ("decode_tokens_per_second", "tokens", "decode_ms", None),
        ("prefill_tokens_per_second", "prompt_tokens", "prefill_ms", "prompt-tokens/prefill-time"),
    ):
        if formula is None:  # the first token may have come of the prompt, before that time
            tokens = "decode_tokens" if "decode_tokens" in figures else tokens
        count, spent_ms = figures.get(tokens, 0.0), figures.get(time_ms, 0.0)
        if name in figures or count <= 0 or spent_ms <= 0:
            continue
        rate = 1e3 * count / spent_ms
        if math.isfinite(rate):
            counted = _COUNTED.get(count - observed, "predicted-tokens")
            yield Told(name, source, formula or f"{counted}/decode-time", rate, "derived")


def _metric(told: Sequence[Told]) -> Metric:
    first = told[0]
    figure = FIGURES[first.name]
    formulas = {each.formula for each in told}
    # Sequences of different lengths: then nothing but the engine's count holds of all of them.
    formula = first.formula if len(formulas) == 1 else "predicted-tokens/decode-time"
    return Metric(
        name=PREFIX + first.name,
        value=statistics.median(each.value for each in told),
        formula=f"{first.source}:{formula}/median",
        unit=figure.unit,
        direction=figure.direction,
        clock="wall",
        samples=len(told),
        provenance=first.provenance,
    )


def of_engine(metric: Metric) -> bool:
    """Whether a metric is said to be the engine's own word, or to follow from it."""
    return metric.provenance == "ingested" or metric.name.startswith(PREFIX)


def source_of(metric: Metric) -> str:
    """Return who told a figure of the engine's own."""
    return metric.formula.removesuffix("/median").rpartition(":")[0]


def observed_as(metric: Metric, found: Iterable[Metric]) -> Metric | None:
    """Return the observer's figure to hold an engine's against; None where it has none of it."""
    wanted = _OBSERVED_AS.get(metric.name)
    return next((each for each in found if each.name == wanted), None)


def engine_kernels(runs: Iterable[Run], seen: Collection[str]) -> tuple[KernelSighting, ...]:
    """Return the kernels that engines report over all ``runs``, less those that were ``seen``.

    A name that the profile shows stays the profile's. What is no name (too long, or with a hidden
    character) and what never ran stays in the report. The most frequent first.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for report in run.reported:
            for name, count in report.kernels.items():
                counts[name, report.source] += count
    told = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(
        KernelSighting(name, "engine", count, source)
        for (name, source), count in told
        if count and name not in seen and _is_name(name)
    )[:MAX_KERNELS]


def _is_name(name: str) -> bool:
    return hidden_in_name(name) is None and len(name.encode("utf-8", "replace")) <= _NAME_BYTES


def claimed_kernels(
    sightings: Sequence[KernelSighting],
    *,
    named_by_profile: bool,
    backend: Literal["cpu", "cuda"],
    policy: Policy,
) -> tuple[str, ...]:
    """Return the names that a receipt claims: the profile's, then what else must be said.

    An engine's word is claimed where the profile names no function that is known to compute, or
    none that the engine's kernel policy asks for, and where it names the GPU kernels that a
    profiler of the CPU cannot see; such a receipt stays below OBSERVED
    (``W_KERNELS_FROM_ENGINE``). A mock is claimed whatever else was seen, so that it is refused.
    Elsewhere the engine's word stays in the evidence, and takes nothing from what was observed; so
    does a GPU kernel where no device was seen to compute.
    """
    shown = [each.name for each in sightings if each.source == "profile"]
    enough = named_by_profile and any(map(policy.shows_cpu_compute, shown))
    for each in sightings:
        if each.source == "profile" or each.name in shown:
            continue
        if backend == "cuda":
            wanted = not enough or policy.shows_gpu_compute(each.name)
        else:
            wanted = not enough and not policy.names_gpu(each.name)
        if wanted or "mock" in each.name.casefold():
            shown.append(each.name)
    return tuple(shown)

"""Figures and kernels that engines report about themselves, as metrics and claims of a receipt."""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from pytest_flamegate.core.text import NAME_BYTES, find_hidden_character
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.receipt.policies import Policy
from pytest_flamegate.receipt.types import Direction, KernelSighting, Metric

PREFIX = "engine_"
MIN_REPORTS = 3
"""A median of fewer reports says nothing."""
MAX_KERNELS = 64

_MORE: Direction = "higher_is_better"
_LESS: Direction = "lower_is_better"
FIGURES: Mapping[str, tuple[str, Direction]] = MappingProxyType(
    {
        # Every metric has a direction. That of a count means nothing, because no gate reads it.
        **dict.fromkeys(("tokens", "prompt_tokens"), ("tokens", _MORE)),
        **dict.fromkeys(("load_ms", "prefill_ms", "decode_ms", "total_ms"), ("ms", _LESS)),
        **dict.fromkeys(("embed_us", "forward_us", "logits_us", "sample_us"), ("us", _LESS)),
        **dict.fromkeys(
            ("tokens_per_second", "prefill_tokens_per_second", "decode_tokens_per_second"),
            ("tokens/s", _MORE),
        ),
    }
)
"""Unit and direction of the figures that become metrics, in their order. Others stay in reports."""

_OBSERVED = {
    "engine_load_ms": "load_ms",
    "engine_prefill_ms": "time_to_first_token_ms",
    "engine_tokens_per_second": "tokens_per_second",
    "engine_prefill_tokens_per_second": "prefill_tokens_per_second",
    "engine_decode_tokens_per_second": "decode_tokens_per_second",
}
_COUNTED: Mapping[float, str] = {0: "n", -1: "(n-1)", 1: "(n+1)"}


class ReportedValue(NamedTuple):
    """One value of a figure and its formula, and whether flamegate derived it."""

    value: float
    formula: str
    provenance: Literal["ingested", "derived"] = "ingested"


def engine_metrics(timed: Iterable[Run]) -> tuple[Metric, ...]:
    """Return the median of each figure that one source reported at least three times.

    Only reports of timed runs count. A figure of two sources is listed twice, with two formulas.
    """
    values: dict[tuple[str, str], list[ReportedValue]] = {}
    for run in timed:
        for report in run.reported:
            for name, value in _read_values(report, run.tokens_per_sequence):
                values.setdefault((name, report.source), []).append(value)
    known = list(FIGURES)
    ordered = sorted(values.items(), key=lambda entry: (known.index(entry[0][0]), entry[0][1]))
    found = (
        _make_metric(name, source, each)
        for (name, source), each in ordered
        if len(each) >= MIN_REPORTS
    )
    return tuple(metric for metric in found if math.isfinite(metric.value))


def _read_values(report: Report, observed: int) -> Iterator[tuple[str, ReportedValue]]:
    """Yield the figures of a report, and the rates that follow from them."""
    figures = report.figures
    for name in FIGURES.keys() & figures.keys():
        # Engines print a rate of 0 if there was none.
        if figures[name] > 0 or FIGURES[name][0] != "tokens/s":
            yield name, ReportedValue(figures[name], name)
    # The first token may come from the prompt, before the decode time begins.
    decoded = figures.get("decode_tokens", figures.get("tokens", 0.0))
    counted = _COUNTED.get(decoded - observed, "predicted-tokens")
    prompt = figures.get("prompt_tokens", 0.0)
    for name, count, time_ms, formula in (
        ("decode_tokens_per_second", decoded, "decode_ms", f"{counted}/decode-time"),
        ("prefill_tokens_per_second", prompt, "prefill_ms", "prompt-tokens/prefill-time"),
    ):
        spent_ms = figures.get(time_ms, 0.0)
        if name not in figures and count > 0 and spent_ms > 0:
            rate = 1e3 * count / spent_ms
            if math.isfinite(rate):
                yield name, ReportedValue(rate, formula, "derived")


def _make_metric(name: str, source: str, values: Sequence[ReportedValue]) -> Metric:
    first = values[0]
    unit, direction = FIGURES[name]
    # For sequences of different lengths only the engine's own count describes all of them.
    same = len({each.formula for each in values}) == 1
    formula = first.formula if same else "predicted-tokens/decode-time"
    stated, value = f"{source}:{formula}/median", statistics.median(each.value for each in values)
    count, provenance = len(values), first.provenance
    return Metric(PREFIX + name, value, stated, unit, direction, "wall", count, provenance)


def of_engine(metric: Metric) -> bool:
    """Whether a metric was reported by the engine, or follows from its reports."""
    return metric.provenance == "ingested" or metric.name.startswith(PREFIX)


def source_of(metric: Metric) -> str:
    """Return the source of a reported metric."""
    return metric.formula.removesuffix("/median").rpartition(":")[0]


def observed_as(metric: Metric, found: Iterable[Metric]) -> Metric | None:
    """Return the observed metric of the same quantity as a reported one, if there is one."""
    wanted = _OBSERVED.get(metric.name)
    return next((each for each in found if each.name == wanted), None)


def engine_kernels(runs: Iterable[Run], seen: Collection[str]) -> tuple[KernelSighting, ...]:
    """Return the kernels that engines report over all ``runs``, the most frequent first.

    Kernels that were ``seen`` in the profile are left out, and so are kernels that never ran and
    texts that are no names (too long, or with a hidden character).
    """
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for report in run.reported:
            for name, count in report.kernels.items():
                counts[name, report.source] += count
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(
        KernelSighting(name, "engine", count, source)
        for (name, source), count in ordered
        if count
        and name not in seen
        and find_hidden_character(name) is None
        and len(name.encode("utf-8", "replace")) <= NAME_BYTES
    )[:MAX_KERNELS]


def claimed_kernels(
    sightings: Sequence[KernelSighting],
    *,
    named_by_profile: bool,
    backend: Literal["cpu", "cuda"],
    policy: Policy,
) -> tuple[str, ...]:
    """Return the kernels that a receipt claims: the profile's, then necessary ones of the engine.

    A reported kernel is claimed if the profile names no function that is known to compute, or none
    that the kernel policy asks for, or if it is a GPU kernel, which a profiler of the CPU cannot
    see. Such a receipt stays below OBSERVED (``W_KERNELS_FROM_ENGINE``). A mock is always claimed,
    so that it is rejected. A GPU kernel is not claimed for the backend ``cpu``.
    ``named_by_profile`` says whether the profile shows a function that is known to compute.
    """
    claimed = [each.name for each in sightings if each.source == "profile"]
    enough = named_by_profile and any(policy.roles(name).shows_cpu_compute for name in claimed)
    for each in sightings:
        if each.source == "profile" or each.name in claimed:
            continue
        if backend == "cuda":
            wanted = not enough or policy.roles(each.name).shows_gpu_compute
        else:
            wanted = not enough and not policy.roles(each.name).names_gpu
        if wanted or "mock" in each.name.casefold():
            claimed.append(each.name)
    return tuple(claimed)

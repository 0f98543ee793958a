"""GuideLLM's ``benchmarks.json``, reports of version 1 and 2.

``schemas/base/request_stats.py``: TTFT is the first token less the request's start; TPOT
``(last token - start) / output_tokens``, the first token's wait included; ITL
``(last token - first token) / (output_tokens - 1)``, which other tools call TPOT. In
``benchmark/schemas/metrics.py`` both are weighted by the tokens of each request, so that their
mean is that of tokens and not of requests. Rates are distributions over time; only their means,
events over the run's duration, are taken. The CSV and YAML of the same run are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.receipt.imports.reading import (
    MAX_TEXT,
    Gatherer,
    documents,
    malformed,
    object_in,
    plain_name,
    requests,
    says,
    settings_of,
    text,
    unique,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.receipt.imports.reading import Imported, Setting, Statistic


TOOL = "GuideLLM"
_TIMES = (
    ("time_to_first_token_ms", "time_to_first_token_ms", "first-token-request", 1.0),
    ("time_per_output_token_ms", "time_per_output_token_ms", "latency/n, by token", 1.0),
    ("inter_token_latency_ms", "inter_token_latency_ms", "(latency-ttft)/(n-1), by token", 1.0),
    ("request_latency", "request_latency_ms", "end-request", 1e3),
)
_RATES = (
    ("output_tokens_per_second", "output_tokens_per_second", "output-tokens/duration"),
    ("tokens_per_second", "total_tokens_per_second", "(input-tokens+output-tokens)/duration"),
    ("requests_per_second", "requests_per_second", "requests/duration"),
)
_STATISTICS: tuple[Statistic, ...] = ("mean", "median", "p90", "p95", "p99")
_OTHER_FORMS = (b"benchmarks:\n- config:", b"Run Info,Run Info,", b"guidellm_version:")


def recognises(data: bytes) -> bool:
    """Whether it is the tool's report."""
    return says(data, b'"benchmarks"', b'"time_per_output_token_ms"', b'"inter_token_latency_ms"')


def read(data: bytes) -> tuple[Imported, ...]:
    """Return each benchmark of the report, one a strategy or rate."""
    report = object_in(documents(data)[0], TOOL, "the report")
    found = report.get("benchmarks")
    if not isinstance(found, list) or not found:
        raise malformed(TOOL, "benchmarks must be a list with an entry.")
    benchmarks = [object_in(each, TOOL, "a benchmark") for each in found]
    names = unique([_name(each) for each in benchmarks])
    metadata = report.get("metadata")
    version = text(metadata.get("guidellm_version")) if isinstance(metadata, dict) else ""
    return tuple(
        _one(each, name, f"benchmarks.{index}.metrics.", version)
        for index, (each, name) in enumerate(zip(benchmarks, names, strict=True))
    )


def recognises_other_form(data: bytes) -> bool:
    """Whether it is the same report as YAML or CSV."""
    return any(mark in data[: 1 << 16] for mark in _OTHER_FORMS)


def refuse_other_form(data: bytes) -> tuple[Imported, ...]:
    """Refuse it, saying what is read."""
    raise ReceiptError(
        "E_UNKNOWN_FORMAT",
        f"The file of {len(data):,} bytes is GuideLLM's report as YAML or CSV.",
        "Give benchmarks.json of the same run: guidellm writes it with --output kind=json.",
    )


def _config(benchmark: Mapping[str, object]) -> Mapping[str, object]:
    # Reports of version 1 call it args.
    config = benchmark.get("config", benchmark.get("args"))
    return config if isinstance(config, dict) else {}


def _part(of: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = of.get(name)
    return part if isinstance(part, dict) else {}


def _name(benchmark: Mapping[str, object]) -> str:
    strategy = _part(_config(benchmark), "strategy")
    rate = strategy.get("rate") or strategy.get("streams")
    told = f"-{rate:g}" if isinstance(rate, (int, float)) and not isinstance(rate, bool) else ""
    return plain_name(f"{text(strategy.get('type_'))}{told}".replace(".", "-"), "benchmark")


def _one(benchmark: Mapping[str, object], result: str, prefix: str, version: str) -> Imported:
    metrics = object_in(benchmark.get("metrics"), TOOL, "metrics")
    totals = _part(metrics, "request_totals")
    requests(totals.get("successful"), TOOL, f"{prefix}request_totals.successful")
    gathered = Gatherer(TOOL, prefix)
    for field, name, formula, scale in _TIMES:
        successful = _part(_part(metrics, field), "successful")
        percentiles = _part(successful, "percentiles")
        for statistic in _STATISTICS:
            inside = statistic.startswith("p")
            place = f"{field}.successful.{'percentiles.' if inside else ''}{statistic}"
            gathered.add(
                name,
                (percentiles if inside else successful).get(statistic),
                formula,
                statistic,
                place,
                scale=scale,
                samples=whole(successful.get("count"), TOOL, f"{field}.successful.count"),
                stddev=successful.get("std_dev") if statistic == "mean" else None,
            )
    for field, name, formula in _RATES:
        successful = _part(_part(metrics, field), "successful")
        gathered.add(name, successful.get("mean"), formula, "total", f"{field}.successful.mean")
    config = _config(benchmark)
    backend, strategy = _part(config, "backend"), _part(config, "strategy")
    settings: dict[str, Setting] = settings_of(
        strategy, ("type_", "rate", "streams", "max_concurrency", "worker_count")
    )
    settings.update(settings_of(benchmark, ("start_time", "end_time", "duration")))
    settings.update(settings_of(totals, ("successful", "errored", "incomplete")))
    model = text(backend.get("model"))[:MAX_TEXT]
    return gathered.imported(result, version=version, model=model, settings=settings)

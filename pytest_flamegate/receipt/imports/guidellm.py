"""GuideLLM's ``benchmarks.json``, reports of version 1 and 2.

``schemas/base/request_stats.py``: TTFT is the first token less the request's start; TPOT is
``(last token - start) / output_tokens``, with the first token's wait included; ITL is
``(last token - first token) / (output_tokens - 1)``, which other tools call TPOT. In
``benchmark/schemas/metrics.py`` both are weighted by the tokens of each request, so that their
mean is over tokens and not over requests. Rates are distributions over time; only their means,
events over the run's duration, are imported. The CSV and YAML of the same run are not read.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.receipt.imports.imported import Imported
from pytest_flamegate.receipt.imports.mapping import (
    Collector,
    FieldTable,
    Figure,
    find_object,
    make_rates,
    read_requests,
    read_settings,
    require_object,
    text_or_empty,
)
from pytest_flamegate.receipt.imports.reading import (
    contains,
    file_name,
    malformed_error,
    read_documents,
    unique_names,
)

TOOL = "GuideLLM"
_TABLE = FieldTable(
    times=(
        Figure("time_to_first_token_ms", "time_to_first_token_ms", "first-token-request"),
        Figure("time_per_output_token_ms", "time_per_output_token_ms", "latency/n, by token"),
        Figure(
            "inter_token_latency_ms", "inter_token_latency_ms", "(latency-ttft)/(n-1), by token"
        ),
        Figure("request_latency", "request_latency_ms", "end-request", 1e3),
    ),
    rates=make_rates(
        "output_tokens_per_second", "tokens_per_second", "requests_per_second", counted=False
    ),
    statistics={
        "mean": "{}.successful.mean",
        "median": "{}.successful.median",
        "p90": "{}.successful.percentiles.p90",
        "p95": "{}.successful.percentiles.p95",
        "p99": "{}.successful.percentiles.p99",
    },
    rate="{}.successful.mean",
    spread="{}.successful.std_dev",
    samples="{}.successful.count",
)
_STRATEGY = ("type_", "rate", "streams", "max_concurrency", "worker_count")
_OTHER_FORMS = (b"benchmarks:\n- config:", b"Run Info,Run Info,", b"guidellm_version:")


def is_report(data: bytes) -> bool:
    """Whether it is the tool's report as JSON."""
    marks = (b'"benchmarks"', b'"time_per_output_token_ms"', b'"inter_token_latency_ms"')
    return contains(data, *marks)


def read_report(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each benchmark in the report, one for each strategy or rate."""
    report = require_object(read_documents(data)[0], "the report")
    found = report.get("benchmarks")
    if not isinstance(found, list) or not found:
        raise malformed_error("benchmarks must be a list with an entry")
    benchmarks = [require_object(each, "a benchmark") for each in found]
    names = unique_names([_name(each) for each in benchmarks])
    version = text_or_empty(find_object(report, "metadata").get("guidellm_version"))
    return tuple(
        _read(each, name, f"benchmarks.{index}.metrics.", version)
        for index, (each, name) in enumerate(zip(benchmarks, names, strict=True))
    )


def is_other_form(data: bytes) -> bool:
    """Whether it is the same report as YAML or CSV."""
    return any(mark in data[: 1 << 16] for mark in _OTHER_FORMS)


def reject_other_form(data: bytes) -> tuple[Imported, ...]:
    """Raise an error that names the form which can be read."""
    raise ReceiptError(
        "E_UNKNOWN_FORMAT",
        f"The file of {len(data):,} bytes is GuideLLM's report as YAML or CSV.",
        "Give benchmarks.json of the same run: guidellm writes it with --output kind=json.",
    )


def _config(benchmark: Mapping[str, object]) -> Mapping[str, object]:
    # Reports of version 1 call it args.
    return find_object(benchmark, "config" if "config" in benchmark else "args")


def _name(benchmark: Mapping[str, object]) -> str:
    strategy = find_object(_config(benchmark), "strategy")
    rate = strategy.get("rate") or strategy.get("streams")
    number = f"-{rate:g}" if isinstance(rate, (int, float)) and not isinstance(rate, bool) else ""
    kind = text_or_empty(strategy.get("type_"))
    return file_name(f"{kind}{number}".replace(".", "-"), "benchmark")


def _read(benchmark: Mapping[str, object], result: str, prefix: str, version: str) -> Imported:
    metrics = require_object(benchmark.get("metrics"), "metrics")
    totals = find_object(metrics, "request_totals")
    read_requests(totals.get("successful"), f"{prefix}request_totals.successful")
    collector = Collector(TOOL, prefix)
    collector.add_table(_TABLE, metrics)
    config = _config(benchmark)
    settings = read_settings(find_object(config, "strategy"), _STRATEGY)
    settings.update(read_settings(benchmark, ("start_time", "end_time", "duration")))
    settings.update(read_settings(totals, ("successful", "errored", "incomplete")))
    model = text_or_empty(find_object(config, "backend").get("model"))
    return collector.finish(result, version=version, model=model, settings=settings)

"""inference-perf's ``summary_lifecycle_metrics.json`` and ``stage_N_lifecycle_metrics.json``.

``reportgen/base.py`` (``compute_request_latency_metrics``), all in seconds: TTFT is the first
output token less the start; ``time_per_output_token`` is ``(last - first token) / (n - 1)``;
``normalized_time_per_output_token`` is the whole request, to its end, over its tokens;
``inter_token_latency`` are all gaps of all requests. With a tokenizer each token of a chunk has
the chunk's time, without one each chunk is one token: the file does not state which, and the
formula says so. Throughputs are sums over the time from the first start to the last end. The file
states neither the tool's version nor the model.
"""

from __future__ import annotations

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
)
from pytest_flamegate.receipt.imports.reading import contains, read_documents

TOOL = "inference-perf"
# A request that did not stream has no token times, so only two figures are of all requests.
_TABLE = FieldTable(
    times=(
        Figure("time_to_first_token", "time_to_first_token_ms", "first-token-request", 1e3),
        Figure("time_per_output_token", "time_per_output_token_ms", "(latency-ttft)/(n-1)", 1e3),
        Figure(
            "normalized_time_per_output_token",
            "normalized_time_per_output_token_ms",
            "(end-request)/n",
            1e3,
            counted=True,
        ),
        Figure("inter_token_latency", "inter_token_latency_ms", "token-or-chunk-gap", 1e3),
        Figure("request_latency", "request_latency_ms", "end-request", 1e3, counted=True),
    ),
    rates=make_rates(
        "output_tokens_per_sec", "total_tokens_per_sec", "requests_per_sec", counted=True
    ),
    statistics={
        "mean": "latency.{}.mean",
        "median": "latency.{}.median",
        "p90": "latency.{}.p90",
        "p95": "latency.{}.p95",
        "p99": "latency.{}.p99",
    },
    rate="throughput.{}",
)
_LOAD = ("count", "send_duration", "requested_rate", "achieved_rate", "concurrency")


def is_summary(data: bytes) -> bool:
    """Whether it is a summary, of a run or of a stage."""
    return contains(data, b'"load_summary"', b'"successes"', b'"failures"')


def read_summary(data: bytes) -> tuple[Imported, ...]:
    """Return the one result."""
    report = require_object(read_documents(data)[0], "the report")
    successes = require_object(report.get("successes"), "successes")
    for part in ("latency", "throughput"):
        require_object(successes.get(part), f"successes.{part}")
    collector = Collector(TOOL, "successes.")
    requests = read_requests(successes.get("count"), "successes.count")
    collector.add_table(_TABLE, successes, requests)
    settings = read_settings(find_object(report, "load_summary"), _LOAD)
    settings.update(read_settings(report, ("benchmark_time_seconds",)))
    return (collector.finish("requests", settings=settings),)

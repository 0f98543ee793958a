"""inference-perf's ``summary_lifecycle_metrics.json`` and ``stage_N_lifecycle_metrics.json``.

``reportgen/base.py`` (``compute_request_latency_metrics``), all in seconds: TTFT is the first
output token less the start; ``time_per_output_token`` is ``(last - first token) / (n - 1)``;
``normalized_time_per_output_token`` is the whole request, to its end, over its tokens;
``inter_token_latency`` are all gaps of all requests. With a tokenizer each token of a chunk has
the chunk's time, without one each chunk is one: the file does not tell which, and the formula
says so. Throughputs are sums over the time from the first start to the last end. The file tells
neither the tool's version nor the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.imports.reading import (
    Gatherer,
    documents,
    object_in,
    requests,
    says,
    settings_of,
)

if TYPE_CHECKING:
    from pytest_flamegate.receipt.imports.reading import Imported, Setting, Statistic


TOOL = "inference-perf"
_TIMES = {
    "time_to_first_token": ("time_to_first_token_ms", "first-token-request"),
    "time_per_output_token": ("time_per_output_token_ms", "(latency-ttft)/(n-1)"),
    "normalized_time_per_output_token": (
        "normalized_time_per_output_token_ms",
        "(end-request)/n",
    ),
    "inter_token_latency": ("inter_token_latency_ms", "token-or-chunk-gap"),
    "request_latency": ("request_latency_ms", "end-request"),
}
_RATES = {
    "output_tokens_per_sec": ("output_tokens_per_second", "output-tokens/duration"),
    "total_tokens_per_sec": (
        "total_tokens_per_second",
        "(input-tokens+output-tokens)/duration",
    ),
    "requests_per_sec": ("requests_per_second", "requests/duration"),
}
_OF_ALL = frozenset({"request_latency", "normalized_time_per_output_token"})
_STATISTICS: tuple[Statistic, ...] = ("mean", "median", "p90", "p95", "p99")


def recognises(data: bytes) -> bool:
    """Whether it is a summary, of a run or of a stage."""
    return says(data, b'"load_summary"', b'"successes"', b'"failures"')


def read(data: bytes) -> tuple[Imported, ...]:
    """Return the one result; ReceiptError where it is malformed."""
    report = object_in(documents(data)[0], TOOL, "the report")
    successes = object_in(report.get("successes"), TOOL, "successes")
    count = requests(successes.get("count"), TOOL, "successes.count")
    latency = object_in(successes.get("latency"), TOOL, "successes.latency")
    throughput = object_in(successes.get("throughput"), TOOL, "successes.throughput")
    gathered = Gatherer(TOOL, "successes.")
    for field, (name, formula) in _TIMES.items():
        # Null where nothing streamed.
        if latency.get(field) is None:
            continue
        told = object_in(latency[field], TOOL, f"successes.latency.{field}")
        for statistic in _STATISTICS:
            gathered.add(
                name,
                told.get(statistic),
                formula,
                statistic,
                f"latency.{field}.{statistic}",
                scale=1e3,
                # What did not stream has no token times, so their number is not known.
                samples=count if field in _OF_ALL else None,
            )
    for field, (name, formula) in _RATES.items():
        gathered.add(
            name, throughput.get(field), formula, "total", f"throughput.{field}", samples=count
        )
    load = report.get("load_summary")
    settings: dict[str, Setting] = settings_of(
        load if isinstance(load, dict) else {},
        ("count", "send_duration", "requested_rate", "achieved_rate", "concurrency"),
    )
    settings.update(settings_of(report, ("benchmark_time_seconds",)))
    return (gathered.imported("requests", version="", model="", settings=settings),)

"""vLLM's ``vllm bench serve --save-result``, and ``latency`` and ``throughput --output-json``.

``vllm/benchmarks/serve.py`` (``calculate_metrics``): TPOT of a request is
``(latency - ttft) / (output_len - 1)``, ITL are all gaps between chunks of all requests,
whatever number of tokens a chunk holds, and throughputs are sums over ``dur_s``, the wall time
of the whole run. ``lib/endpoint_request_func.py``: TTFT ends with the first chunk that has a
choice, also where its text is empty; the latency with the last chunk. Where nothing was timed
it writes 0 (``np.mean(tpots or 0)``). ``latency.py`` times whole batches; the
``tokens_per_second`` of ``throughput.py`` counts prompts and output together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.imports.reading import (
    Gatherer,
    documents,
    malformed,
    object_in,
    requests,
    says,
    settings_of,
    text,
    unique,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.receipt.imports.reading import Imported, Statistic


TOOL = "vLLM bench"
_TIMES = {
    "ttft": ("time_to_first_token_ms", "first-chunk-request"),
    "tpot": ("time_per_output_token_ms", "(latency-ttft)/(n-1)"),
    "itl": ("inter_token_latency_ms", "chunk-gap"),
    "e2el": ("request_latency_ms", "last-chunk-request"),
}
_STATISTICS: dict[str, Statistic] = {
    "mean": "mean",
    "median": "median",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
}
_RATES = {
    "output_throughput": ("output_tokens_per_second", "output-tokens/duration"),
    "total_token_throughput": (
        "total_tokens_per_second",
        "(input-tokens+output-tokens)/duration",
    ),
    "request_throughput": ("requests_per_second", "requests/duration"),
}
_SETTINGS = (
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
    *("total_input_tokens", "total_output_tokens", "elapsed_time", "num_requests"),
    *("total_num_tokens",),
)


def recognises_serve(data: bytes) -> bool:
    """Whether it is a result of ``vllm bench serve``, or several, one a line."""
    return says(data, b'"request_throughput"', b'"total_input_tokens"', b'"duration"')


def read_serve(data: bytes) -> tuple[Imported, ...]:
    """Return each run; ReceiptError where one is malformed."""
    runs = documents(data)
    names = unique(["serve"] * len(runs))
    return tuple(
        _serve(object_in(run, TOOL, "a run"), name) for run, name in zip(runs, names, strict=True)
    )


def recognises_latency(data: bytes) -> bool:
    """Whether it is what ``vllm bench latency`` writes."""
    return says(data, b'"avg_latency"', b'"latencies"', b'"percentiles"')


def read_latency(data: bytes) -> tuple[Imported, ...]:
    """Return the one result, times of whole batches."""
    run = object_in(documents(data)[0], TOOL, "the result")
    latencies = run.get("latencies")
    if not isinstance(latencies, list):
        raise malformed(TOOL, "latencies must be a list.")
    samples = requests(len(latencies), TOOL, "latencies")
    percentiles = object_in(run.get("percentiles"), TOOL, "percentiles")
    gathered = Gatherer(TOOL)
    told: tuple[tuple[Statistic, object, str], ...] = (
        ("mean", run.get("avg_latency"), "avg_latency"),
        ("median", percentiles.get("50"), "percentiles.50"),
        ("p90", percentiles.get("90"), "percentiles.90"),
        ("p99", percentiles.get("99"), "percentiles.99"),
    )
    for statistic, value, field in told:
        gathered.add(
            "batch_latency_ms",
            value,
            "batch-end-start",
            statistic,
            field,
            scale=1e3,
            samples=samples,
            stddev=run.get("std_latency") if statistic == "mean" else None,
        )
    return (gathered.imported("latency", version="", model="", settings={}),)


def recognises_throughput(data: bytes) -> bool:
    """Whether it is what ``vllm bench throughput`` writes."""
    return says(data, b'"elapsed_time"', b'"requests_per_second"', b'"tokens_per_second"')


def read_throughput(data: bytes) -> tuple[Imported, ...]:
    """Return the one result, rates of the whole run."""
    run = object_in(documents(data)[0], TOOL, "the result")
    samples = requests(run.get("num_requests"), TOOL, "num_requests")
    gathered = Gatherer(TOOL)
    for field, name, formula in (
        (
            "tokens_per_second",
            "total_tokens_per_second",
            "(input-tokens+output-tokens)/duration",
        ),
        ("requests_per_second", "requests_per_second", "requests/duration"),
    ):
        gathered.add(name, run.get(field), formula, "total", field, samples=samples)
    settings = settings_of(run, _SETTINGS)
    return (gathered.imported("throughput", version="", model="", settings=settings),)


def _serve(run: Mapping[str, object], result: str) -> Imported:
    samples = requests(run.get("completed"), TOOL, "completed")
    gathered = Gatherer(TOOL)
    for field, (name, formula) in _RATES.items():
        gathered.add(name, run.get(field), formula, "total", field, samples=samples)
    for short, (name, formula) in _TIMES.items():
        for prefix, statistic in _STATISTICS.items():
            field = f"{prefix}_{short}_ms"
            gathered.add(
                name,
                run.get(field),
                formula,
                statistic,
                field,
                # Requests of one token have neither TPOT nor gaps, so their number is not known.
                samples=samples if short in ("ttft", "e2el") else None,
                stddev=run.get(f"std_{short}_ms") if statistic == "mean" else None,
            )
    settings = settings_of(run, _SETTINGS)
    return gathered.imported(result, version="", model=text(run.get("model_id")), settings=settings)

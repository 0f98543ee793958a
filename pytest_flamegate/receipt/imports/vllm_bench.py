"""vLLM's ``vllm bench serve``, ``latency`` and ``throughput``, JSON.

``serve.py`` (``calculate_metrics``): TTFT is the first chunk less the request's start, TPOT of a
request is ``(latency - ttft) / (output_len - 1)``, ITL are all gaps between chunks of all requests,
whatever number of tokens a chunk has, and throughputs are sums over ``dur_s``, the wall time of the
whole run. ``lib/endpoint_request_func.py``: TTFT ends with the first chunk that has a choice, even
if its text is empty; the latency ends with the last chunk. If nothing was timed it writes 0
(``np.mean(tpots or 0)``). ``latency.py`` times whole batches; the ``tokens_per_second`` of
``throughput.py`` counts prompts and output together.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_flamegate.receipt.imports.imported import Imported
from pytest_flamegate.receipt.imports.mapping import (
    Collector,
    FieldTable,
    Figure,
    make_rates,
    read_requests,
    read_settings,
    require_object,
    text_or_empty,
)
from pytest_flamegate.receipt.imports.reading import (
    contains,
    malformed_error,
    read_documents,
    unique_names,
)

TOOL = "vLLM bench"
_SERVE = FieldTable(
    times=(
        Figure("ttft", "time_to_first_token_ms", "first-chunk-request", counted=True),
        # Requests of one token have neither TPOT nor gaps, so their number is unknown.
        Figure("tpot", "time_per_output_token_ms", "(latency-ttft)/(n-1)"),
        Figure("itl", "inter_token_latency_ms", "chunk-gap"),
        Figure("e2el", "request_latency_ms", "last-chunk-request", counted=True),
    ),
    rates=make_rates(
        "output_throughput", "total_token_throughput", "request_throughput", counted=True
    ),
    statistics={
        "mean": "mean_{}_ms",
        "median": "median_{}_ms",
        "p90": "p90_{}_ms",
        "p95": "p95_{}_ms",
        "p99": "p99_{}_ms",
    },
    spread="std_{}_ms",
)
_LATENCY = FieldTable(
    times=(Figure("latency", "batch_latency_ms", "batch-end-start", 1e3, counted=True),),
    rates=(),
    statistics={
        "mean": "avg_{}",
        "median": "percentiles.50",
        "p90": "percentiles.90",
        "p99": "percentiles.99",
    },
    spread="std_{}",
)
_THROUGHPUT = FieldTable(
    times=(),
    rates=make_rates("", "tokens_per_second", "requests_per_second", counted=True)[1:],
    statistics={},
)
_SETTINGS = (
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
    *("total_input_tokens", "total_output_tokens", "elapsed_time", "num_requests"),
    *("total_num_tokens",),
)


def is_serve(data: bytes) -> bool:
    """Whether it is a result of ``vllm bench serve``, or several, one a line."""
    return contains(data, b'"request_throughput"', b'"total_input_tokens"', b'"duration"')


def read_serve(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each run."""
    runs = [require_object(run, "a run") for run in read_documents(data)]
    names = unique_names(["serve"] * len(runs))
    return tuple(
        _read(run, name, _SERVE, "completed") for run, name in zip(runs, names, strict=True)
    )


def is_latency(data: bytes) -> bool:
    """Whether it is a result of ``vllm bench latency``."""
    return contains(data, b'"avg_latency"', b'"latencies"', b'"percentiles"')


def read_latency(data: bytes) -> tuple[Imported, ...]:
    """Return the one result, times of whole batches."""
    run = require_object(read_documents(data)[0], "the result")
    latencies = run.get("latencies")
    if not isinstance(latencies, list):
        raise malformed_error("latencies must be a list")
    require_object(run.get("percentiles"), "percentiles")
    collector = Collector(TOOL)
    collector.add_table(_LATENCY, run, read_requests(len(latencies), "latencies"))
    return (collector.finish("latency"),)


def is_throughput(data: bytes) -> bool:
    """Whether it is a result of ``vllm bench throughput``."""
    return contains(data, b'"elapsed_time"', b'"requests_per_second"', b'"tokens_per_second"')


def read_throughput(data: bytes) -> tuple[Imported, ...]:
    """Return the one result, rates of the whole run."""
    run = require_object(read_documents(data)[0], "the result")
    return (_read(run, "throughput", _THROUGHPUT, "num_requests"),)


def _read(run: Mapping[str, object], result: str, table: FieldTable, requests: str) -> Imported:
    collector = Collector(TOOL)
    collector.add_table(table, run, read_requests(run.get(requests), requests))
    model = text_or_empty(run.get("model_id"))
    return collector.finish(result, model=model, settings=read_settings(run, _SETTINGS))

"""The JSON of tools that load a server: vLLM bench, GuideLLM, inference-perf, AIPerf, GenAI-Perf.

They give one name to different formulas. Those here were read in the source of each tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports.imported import Imported, Statistic, unit_of
from pytest_flamegate.receipt.imports.reading import (
    Collector,
    FieldTable,
    Figure,
    find,
    find_object,
    malformed_error,
    read_documents,
    read_requests,
    read_settings,
    require_object,
    text_or_empty,
    unique_names,
)


def _rates(output: str, total: str, requests: str, *, counted: bool = True) -> tuple[Figure, ...]:
    """Return the three rates that serving benchmarks have, by the names of their fields."""
    everything = "(input-tokens+output-tokens)/duration"
    return (
        Figure(output, "output_tokens_per_second", "output-tokens/duration", 1.0, counted),
        Figure(total, "total_tokens_per_second", everything, 1.0, counted),
        Figure(requests, "requests_per_second", "requests/duration", 1.0, counted),
    )


def _statistics(mean: str, median: str, percentile: str) -> dict[Statistic, str]:
    """Return the paths of the statistics; ``%`` in ``percentile`` stands for 90, 95 and 99."""
    found: dict[Statistic, str] = {"mean": mean, "median": median}
    for each in ("90", "95", "99"):
        found[f"p{each}"] = percentile.replace("%", each)  # type: ignore[index]
    return found


# vLLM. serve.py (calculate_metrics): TTFT is the first chunk less the request's start, TPOT of a
# request is (latency - ttft) / (output_len - 1), ITL are all gaps between chunks of all requests,
# whatever number of tokens a chunk has, and throughputs are sums over the wall time of the run.
# lib/endpoint_request_func.py: TTFT ends with the first chunk that has a choice, even if its text
# is empty; the latency ends with the last chunk. If nothing was timed it writes 0. latency.py
# times whole batches; throughput.py counts prompts and output together.
_VLLM = "vLLM bench"
_VLLM_SERVE = FieldTable(
    times=(
        Figure("ttft", "time_to_first_token_ms", "first-chunk-request", counted=True),
        # Requests of one token have neither TPOT nor gaps, so their number is unknown.
        Figure("tpot", "time_per_output_token_ms", "(latency-ttft)/(n-1)"),
        Figure("itl", "inter_token_latency_ms", "chunk-gap"),
        Figure("e2el", "request_latency_ms", "last-chunk-request", counted=True),
    ),
    rates=_rates("output_throughput", "total_token_throughput", "request_throughput"),
    statistics=_statistics("mean_{}_ms", "median_{}_ms", "p%_{}_ms"),
    spread="std_{}_ms",
)
_VLLM_LATENCY = FieldTable(
    times=(Figure("latency", "batch_latency_ms", "batch-end-start", 1e3, counted=True),),
    rates=(),
    statistics=_statistics("avg_{}", "percentiles.50", "percentiles.%"),
    spread="std_{}",
)
_VLLM_THROUGHPUT = FieldTable(
    times=(), rates=_rates("", "tokens_per_second", "requests_per_second")[1:], statistics={}
)
_VLLM_SETTINGS = (
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
    *("total_input_tokens", "total_output_tokens", "elapsed_time", "num_requests"),
    *("total_num_tokens",),
)


def _read_vllm_runs(
    data: bytes, result: str, table: FieldTable, requests: str
) -> tuple[Imported, ...]:
    runs = read_documents(data)
    found = []
    for run, name in zip(runs, unique_names([result] * len(runs)), strict=True):
        collector = Collector(_VLLM)
        collector.add_table(table, run, read_requests(run.get(requests), requests))
        model = text_or_empty(run.get("model_id"))
        settings = read_settings(run, _VLLM_SETTINGS)
        found.append(collector.finish(name, model=model, settings=settings))
    return tuple(found)


read_vllm_serve = partial(_read_vllm_runs, result="serve", table=_VLLM_SERVE, requests="completed")
read_vllm_throughput = partial(
    _read_vllm_runs, result="throughput", table=_VLLM_THROUGHPUT, requests="num_requests"
)


def read_vllm_latency(data: bytes) -> tuple[Imported, ...]:
    """Return the one result, times of whole batches."""
    run = read_documents(data)[0]
    latencies = run.get("latencies")
    if not isinstance(latencies, list):
        raise malformed_error("latencies must be a list")
    require_object(run.get("percentiles"), "percentiles")
    collector = Collector(_VLLM)
    collector.add_table(_VLLM_LATENCY, run, read_requests(len(latencies), "latencies"))
    return (collector.finish("latency"),)


# GuideLLM, reports of version 1 and 2. schemas/base/request_stats.py: TTFT is the first token less
# the request's start; TPOT is (last token - start) / output_tokens, with the first token's wait
# included; ITL is (last token - first token) / (output_tokens - 1), which other tools call TPOT. In
# benchmark/schemas/metrics.py both are weighted by the tokens of each request, so that their mean
# is over tokens and not over requests. Rates are distributions over time; only their means, events
# over the run's duration, are imported.
_GUIDELLM = FieldTable(
    times=(
        Figure("time_to_first_token_ms", "time_to_first_token_ms", "first-token-request"),
        Figure("time_per_output_token_ms", "time_per_output_token_ms", "latency/n, by token"),
        Figure(
            "inter_token_latency_ms", "inter_token_latency_ms", "(latency-ttft)/(n-1), by token"
        ),
        Figure("request_latency", "request_latency_ms", "end-request", 1e3),
    ),
    rates=_rates(
        "output_tokens_per_second", "tokens_per_second", "requests_per_second", counted=False
    ),
    statistics=_statistics(
        "{}.successful.mean", "{}.successful.median", "{}.successful.percentiles.p%"
    ),
    rate="{}.successful.mean",
    spread="{}.successful.std_dev",
    samples="{}.successful.count",
)
_GUIDELLM_STRATEGY = ("type_", "rate", "streams", "max_concurrency", "worker_count")


def read_guidellm(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each benchmark in the report, one for each strategy or rate."""
    report = read_documents(data)[0]
    listed = report.get("benchmarks")
    if not isinstance(listed, list) or not listed:
        raise malformed_error("benchmarks must be a list with an entry")
    benchmarks = [require_object(each, "a benchmark") for each in listed]
    # Reports of version 1 call it args.
    configs = [find_object(each, "config" if "config" in each else "args") for each in benchmarks]
    names = unique_names([_name_strategy(find_object(each, "strategy")) for each in configs])
    version = text_or_empty(find_object(report, "metadata").get("guidellm_version"))
    found = []
    for index, (benchmark, config) in enumerate(zip(benchmarks, configs, strict=True)):
        prefix = f"benchmarks.{index}.metrics."
        metrics = require_object(benchmark.get("metrics"), "metrics")
        totals = find_object(metrics, "request_totals")
        read_requests(totals.get("successful"), f"{prefix}request_totals.successful")
        collector = Collector("GuideLLM", prefix)
        collector.add_table(_GUIDELLM, metrics)
        settings = {
            **read_settings(find_object(config, "strategy"), _GUIDELLM_STRATEGY),
            **read_settings(benchmark, ("start_time", "end_time", "duration")),
            **read_settings(totals, ("successful", "errored", "incomplete")),
        }
        model = text_or_empty(find_object(config, "backend").get("model"))
        found.append(collector.finish(names[index], version, model, settings))
    return tuple(found)


def _name_strategy(strategy: Mapping[str, object]) -> str:
    """Return a name for its file: letters, digits and dashes."""
    rate = strategy.get("rate") or strategy.get("streams")
    number = f"-{rate:g}" if isinstance(rate, (int, float)) and not isinstance(rate, bool) else ""
    name = f"{text_or_empty(strategy.get('type_'))}{number}"[:60]
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
    return "-".join(part for part in plain.split("-") if part) or "benchmark"


# inference-perf. reportgen/base.py (compute_request_latency_metrics), all in seconds: TTFT is the
# first output token less the start; time_per_output_token is (last - first token) / (n - 1);
# normalized_time_per_output_token is the whole request, to its end, over its tokens;
# inter_token_latency are all gaps of all requests. With a tokenizer each token of a chunk has the
# chunk's time, without one each chunk is one token: the file does not state which, and the formula
# says so. Throughputs are sums over the time from the first start to the last end. A request that
# did not stream has no token times, so only two figures are of all requests.
_INFERENCE_PERF = FieldTable(
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
    rates=_rates("output_tokens_per_sec", "total_tokens_per_sec", "requests_per_sec"),
    statistics=_statistics("latency.{}.mean", "latency.{}.median", "latency.{}.p%"),
    rate="throughput.{}",
)
_LOAD = ("count", "send_duration", "requested_rate", "achieved_rate", "concurrency")


def read_inference_perf(data: bytes) -> tuple[Imported, ...]:
    """Return the one result, of a run or of a stage; the file states no version and no model."""
    report = read_documents(data)[0]
    successes = require_object(report.get("successes"), "successes")
    for part in ("latency", "throughput"):
        require_object(successes.get(part), f"successes.{part}")
    collector = Collector("inference-perf", "successes.")
    requests = read_requests(successes.get("count"), "successes.count")
    collector.add_table(_INFERENCE_PERF, successes, requests)
    settings = {
        **read_settings(find_object(report, "load_summary"), _LOAD),
        **read_settings(report, ("benchmark_time_seconds",)),
    }
    return (collector.finish("requests", settings=settings),)


# AIPerf (metrics/types): TTFT is the first response with content less the request's start;
# inter_token_latency is (request latency - TTFT) / (output tokens - 1) of a request, the formula
# that others call TPOT (with --per-chunk-usage less the first chunk's tokens, which the file does
# not state); inter_chunk_latency are all gaps between responses; the request's latency ends with
# the last response that has content; throughputs are over the benchmark's duration. GenAI-Perf
# (llm_profile_data_parser.py) has the same formulas, rounded to a nanosecond.
_AIPERF = FieldTable(
    times=(
        Figure("time_to_first_token", "time_to_first_token_ms", "first-token-request"),
        Figure("inter_token_latency", "inter_token_latency_ms", "(latency-ttft)/(n-1)"),
        Figure("inter_chunk_latency", "inter_chunk_latency_ms", "chunk-gap"),
        Figure("request_latency", "request_latency_ms", "last-token-request"),
        Figure(
            "output_token_throughput_per_user",
            "output_tokens_per_second_per_user",
            "1/((latency-ttft)/(n-1))",
        ),
    ),
    rates=_rates("output_token_throughput", "total_token_throughput", "request_throughput"),
    statistics=_statistics("{}.avg", "{}.p50", "{}.p%"),
    rate="{}.avg",
    spread="{}.std",
    samples="{}.count",
)
_AIPERF_UNITS = {
    "ms": ("ms",),
    "tokens/s": ("tokens/sec", "tokens/sec/user"),
    "requests/s": ("requests/sec",),
}
"""The names of our units in these tools."""
_AIPERF_RUN = ("start_time", "end_time", "was_cancelled", "is_complete", "benchmark_id")


def read_aiperf(data: bytes) -> tuple[Imported, ...]:
    """Return the one result."""
    report = read_documents(data)[0]
    for figure in (*_AIPERF.times, *_AIPERF.rates):
        stated, expected = report.get(figure.field), _AIPERF_UNITS[unit_of(figure.name)[0]]
        unit = None if stated is None else find(stated, "unit")
        if stated is not None and unit not in expected:
            raise malformed_error(
                f"{figure.field} must be in {' or '.join(expected)}, and is in {quote(unit)}"
            )
    requests = read_requests(find(report, "request_count.avg"), "request_count")
    version = text_or_empty(report.get("aiperf_version"))
    # Only AIPerf states a version, of itself and of its schema.
    collector = Collector("AIPerf" if version or "schema_version" in report else "GenAI-Perf")
    collector.add_table(_AIPERF, report, requests)
    model = _find_aiperf_model(report.get("input_config"))
    settings = read_settings(report, _AIPERF_RUN)
    return (collector.finish("profile", version, model, settings),)


def _find_aiperf_model(config: object) -> str:
    """Return the model's name, which the two tools write in different places."""
    names = find_object(config, "models").get("items")
    if names is None and isinstance(config, dict):
        names = config.get("model_names")
    first = names[0] if isinstance(names, list) and names else ""
    return text_or_empty(first.get("name") if isinstance(first, dict) else first)

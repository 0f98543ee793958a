"""AIPerf's and GenAI-Perf's exports: ``profile_export_aiperf.json`` or ``.csv`` and their like.

AIPerf (``metrics/types``): TTFT is the first response with content less the request's start;
``inter_token_latency`` is ``(request latency - TTFT) / (output tokens - 1)`` of a request, the
formula that others call TPOT (with ``--per-chunk-usage`` less the first chunk's tokens, which the
file does not state); ``inter_chunk_latency`` are all gaps between responses; the request's latency
ends with the last response that has content; throughputs are over the benchmark's duration.
GenAI-Perf (``llm_profile_data_parser.py``) has the same formulas, rounded to a nanosecond. Its
CSV and AIPerf's differ only in headings, and have two decimals.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports.imported import Imported, Setting, unit_of
from pytest_flamegate.receipt.imports.mapping import (
    Collector,
    FieldTable,
    Figure,
    find,
    find_object,
    make_rates,
    read_requests,
    read_settings,
    require_object,
    text_or_empty,
)
from pytest_flamegate.receipt.imports.reading import (
    contains,
    malformed_error,
    name_cells,
    read_documents,
    read_first_line,
    read_rows,
    split_header,
)

_TABLE = FieldTable(
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
    rates=make_rates(
        "output_token_throughput", "total_token_throughput", "request_throughput", counted=True
    ),
    statistics={
        "mean": "{}.avg",
        "median": "{}.p50",
        "p90": "{}.p90",
        "p95": "{}.p95",
        "p99": "{}.p99",
    },
    rate="{}.avg",
    spread="{}.std",
    samples="{}.count",
)
_UNITS = {
    "ms": ("ms",),
    "tokens/s": ("tokens/sec", "tokens/sec/user"),
    "requests/s": ("requests/sec",),
}
"""The names of our units in these tools."""
_RUN = ("start_time", "end_time", "was_cancelled", "is_complete", "benchmark_id")


def is_json(data: bytes) -> bool:
    """Whether it is the JSON of one of the two tools."""
    return contains(data, b'"input_config"', b'"request_latency"', b'"request_throughput"')


def read_json(data: bytes) -> tuple[Imported, ...]:
    """Return the one result."""
    report = require_object(read_documents(data)[0], "the report")
    version = text_or_empty(report.get("aiperf_version"))
    # Only AIPerf states a version, of itself and of its schema.
    tool = "AIPerf" if version or "schema_version" in report else "GenAI-Perf"
    figures = {
        name: value for name, value in report.items() if isinstance(value, dict) and "unit" in value
    }
    model = _model(report.get("input_config"))
    return _read(figures, tool, version, model, read_settings(report, _RUN))


def is_csv(data: bytes) -> bool:
    """Whether it is the table of one of the two tools."""
    return split_header(data)[:2] == ["Metric", "avg"]


def read_csv(data: bytes) -> tuple[Imported, ...]:
    """Return the one result."""
    header: list[str] = []
    figures: dict[str, dict[str, object]] = {}
    for row in read_rows(data):
        if row[0] == "Metric":
            header = row
            continue
        if row[0] == "Endpoint":
            # The machine's telemetry follows the figures.
            break
        cells = name_cells(header, row)
        # A second table has single values instead of statistics.
        cells = {"avg": cells["Value"]} if "Value" in cells else cells
        title, _, unit = row[0].partition(" (")
        name = title.strip().lower().replace(" ", "_")
        if name in figures:
            raise malformed_error(f"the row {quote(row[0])} occurs twice")
        figures[name] = {**cells, "unit": unit.removesuffix(")")}
    # Only AIPerf has sums, between the maximum and the percentiles.
    tool = "AIPerf" if "sum" in read_first_line(data) else "GenAI-Perf"
    return _read(figures, tool, "", "", {})


def _model(config: object) -> str:
    """Return the model's name, which the two tools write in different places."""
    names = find_object(config, "models").get("items")
    if names is None and isinstance(config, dict):
        names = config.get("model_names")
    first = names[0] if isinstance(names, list) and names else ""
    return text_or_empty(first.get("name") if isinstance(first, dict) else first)


def _read(
    figures: Mapping[str, Mapping[str, object]],
    tool: str,
    version: str,
    model: str,
    settings: Mapping[str, Setting],
) -> tuple[Imported, ...]:
    for figure in (*_TABLE.times, *_TABLE.rates):
        unit, expected = find(figures, f"{figure.field}.unit"), _UNITS[unit_of(figure.name)[0]]
        if figure.field in figures and unit not in expected:
            raise malformed_error(
                f"{figure.field} must be in {' or '.join(expected)}, and is in {quote(unit)}"
            )
    requests = read_requests(find(figures, "request_count.avg"), "request_count")
    collector = Collector(tool)
    collector.add_table(_TABLE, figures, requests)
    return (collector.finish("profile", version=version, model=model, settings=settings),)

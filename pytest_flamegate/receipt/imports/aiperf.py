"""AIPerf's and GenAI-Perf's exports: ``profile_export_aiperf.json`` or ``.csv`` and their like.

AIPerf (``metrics/types``): TTFT is the first response with content less the request's start;
``inter_token_latency`` is ``(request latency - TTFT) / (output tokens - 1)`` of a request, the
formula that others call TPOT (with ``--per-chunk-usage`` less the first chunk's tokens, which the
file does not tell); ``inter_chunk_latency`` are all gaps between responses; the request's latency
ends with the last response that has content; throughputs are over the benchmark's duration.
GenAI-Perf (``llm_profile_data_parser.py``) has the same formulas, rounded to a nanosecond. Its
CSV and AIPerf's are alike but for headings, and hold two decimals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports.reading import (
    Gatherer,
    csv_rows,
    delimiter_of,
    documents,
    first_line,
    object_in,
    requests,
    says,
    settings_of,
    text,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.receipt.imports.reading import Imported, Setting, Statistic


_TIMES = {
    "time_to_first_token": ("time_to_first_token_ms", "first-token-request"),
    "inter_token_latency": ("inter_token_latency_ms", "(latency-ttft)/(n-1)"),
    "inter_chunk_latency": ("inter_chunk_latency_ms", "chunk-gap"),
    "request_latency": ("request_latency_ms", "last-token-request"),
}
_USERS = "output_token_throughput_per_user"
_RATES = {
    "output_token_throughput": ("output_tokens_per_second", "output-tokens/duration"),
    "total_token_throughput": (
        "total_tokens_per_second",
        "(input-tokens+output-tokens)/duration",
    ),
    "request_throughput": ("requests_per_second", "requests/duration"),
}
_STATISTICS: Mapping[str, Statistic] = {
    "avg": "mean",
    "p50": "median",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
}
_UNITS = {
    "ms": frozenset({"ms"}),
    "tokens": frozenset({"tokens/sec", "tokens/sec/user"}),
    "requests": frozenset({"requests/sec"}),
}
_SECOND_HEADER = ["Metric", "Value"]


def recognises_json(data: bytes) -> bool:
    """Whether it is the JSON of one of the two."""
    return says(data, b'"input_config"', b'"request_latency"', b'"request_throughput"')


def read_json(data: bytes) -> tuple[Imported, ...]:
    """Return the one result; ReceiptError where it is malformed."""
    report = object_in(documents(data)[0], "AIPerf", "the report")
    version = text(report.get("aiperf_version"))
    # Only AIPerf tells a version, of itself and of its schema.
    own = bool(version) or "schema_version" in report
    tool = "AIPerf" if own else "GenAI-Perf"
    told = {
        name: value for name, value in report.items() if isinstance(value, dict) and "unit" in value
    }
    config = report.get("input_config")
    settings: dict[str, Setting] = settings_of(
        report, ("start_time", "end_time", "was_cancelled", "is_complete", "benchmark_id")
    )
    return _imported(told, tool, version, _model(config), settings)


def recognises_csv(data: bytes) -> bool:
    """Whether it is the table of one of the two, whatever separates its columns."""
    header = first_line(data).removeprefix("\ufeff")
    cells = [cell.strip().strip('"') for cell in header.split(delimiter_of(header))]
    return cells[:2] == ["Metric", "avg"]


def read_csv(data: bytes) -> tuple[Imported, ...]:
    """Return the one result; ReceiptError where a row is malformed or cut off."""
    header: list[str] = []
    told: dict[str, Mapping[str, object]] = {}
    for row in csv_rows(data):
        if row[0] == "Metric":
            header = row
            continue
        if row[0] == "Endpoint":
            # Telemetry of the machine stands behind the figures.
            break
        if len(row) != len(header) or len(set(header)) != len(header):
            raise ReceiptError(
                "E_CSV",
                f"The row {quote(row[0])} has {len(row)} cells, and its header {len(set(header))}.",
                "Give the file as the tool wrote it, or export it again.",
            )
        name, _, unit = row[0].partition(" (")
        cells = dict(zip(header[1:], row[1:], strict=True))
        if header == _SECOND_HEADER:
            cells = {"avg": cells["Value"]}
        key = name.strip().lower().replace(" ", "_")
        if key in told:
            raise ReceiptError(
                "E_CSV", f"The row {quote(row[0])} stands twice.", "Give one run's table."
            )
        told[key] = {**cells, "unit": unit.removesuffix(")")}
    # AIPerf alone has sums, between max and the percentiles.
    tool = "AIPerf" if "sum" in first_line(data) else "GenAI-Perf"
    return _imported(told, tool, "", "", {})


def _model(config: object) -> str:
    """Return the model's name, which the two write in different places."""
    if not isinstance(config, dict):
        return ""
    models = config.get("models")
    items = models.get("items") if isinstance(models, dict) else config.get("model_names")
    first = items[0] if isinstance(items, list) and items else ""
    return text(first.get("name")) if isinstance(first, dict) else text(first)


def _imported(
    told: Mapping[str, Mapping[str, object]],
    tool: str,
    version: str,
    model: str,
    settings: Mapping[str, Setting],
) -> tuple[Imported, ...]:
    count = None
    if "request_count" in told:
        count = requests(told["request_count"].get("avg"), tool, "request_count")
    gathered = Gatherer(tool)
    for field, (name, formula) in (
        *_TIMES.items(),
        (_USERS, ("output_tokens_per_second_per_user", "1/((latency-ttft)/(n-1))")),
    ):
        figures = told.get(field, {})
        _check_unit(figures, tool, field, "tokens" if field == _USERS else "ms")
        for key, statistic in _STATISTICS.items():
            gathered.add(
                name,
                figures.get(key),
                formula,
                statistic,
                f"{field}.{key}",
                samples=whole(figures.get("count"), tool, f"{field}.count"),
                stddev=figures.get("std") if statistic == "mean" else None,
            )
    for field, (name, formula) in _RATES.items():
        figures = told.get(field, {})
        _check_unit(figures, tool, field, "requests" if field.startswith("req") else "tokens")
        gathered.add(name, figures.get("avg"), formula, "total", f"{field}.avg", samples=count)
    return (gathered.imported("profile", version=version, model=model, settings=settings),)


def _check_unit(figures: Mapping[str, object], tool: str, field: str, kind: str) -> None:
    unit = figures.get("unit")
    if figures and text(unit) not in _UNITS[kind]:
        raise ReceiptError(
            "E_IMPORT_FIELD",
            f"{tool}'s {field} is in {quote(unit)}, and {' or '.join(sorted(_UNITS[kind]))} "
            "was expected.",
            "Give the file as the tool wrote it.",
        )

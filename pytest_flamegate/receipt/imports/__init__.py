"""Results of other benchmark tools: claims that flamegate did not observe, one file a format.

They never become receipts, because a receipt states whether a real model ran, on which backend and
with which kernels, and no foreign result states that. Each becomes an ``imported.json`` of grade
SELF_REPORTED. A new format is one module and one line in ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.receipt.imports import (
    aiperf,
    guidellm,
    inference_perf,
    llama_bench,
    vllm_bench,
)

if TYPE_CHECKING:
    from pytest_flamegate.receipt.imports.imported import Imported


class ImportFormat(NamedTuple):
    """A format: whether bytes are of it, and how its results are read."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes], tuple[Imported, ...]]


FORMATS = (
    ImportFormat("llama-bench-json", llama_bench.is_json, llama_bench.read_json),
    ImportFormat("guidellm-json", guidellm.is_report, guidellm.read_report),
    ImportFormat("inference-perf-json", inference_perf.is_summary, inference_perf.read_summary),
    ImportFormat("aiperf-json", aiperf.is_json, aiperf.read_json),
    ImportFormat("vllm-serve-json", vllm_bench.is_serve, vllm_bench.read_serve),
    ImportFormat("vllm-latency-json", vllm_bench.is_latency, vllm_bench.read_latency),
    ImportFormat("vllm-throughput-json", vllm_bench.is_throughput, vllm_bench.read_throughput),
    ImportFormat("llama-bench-csv", llama_bench.is_csv, llama_bench.read_csv),
    ImportFormat("aiperf-csv", aiperf.is_csv, aiperf.read_csv),
    ImportFormat("llama-bench-markdown", llama_bench.is_markdown, llama_bench.read_markdown),
    ImportFormat("guidellm-other", guidellm.is_other_form, guidellm.reject_other_form),
)


def detect_import_format(data: bytes) -> ImportFormat | None:
    """Return the format of ``data``; None if it is none of them."""
    return next((each for each in FORMATS if each.recognises(data)), None)

"""Results of other benchmark tools: claims that flamegate did not observe.

They never become receipts, because a receipt states whether a real model ran, on which backend and
with which kernels, and no foreign result states that. Each becomes an ``imported.json`` of grade
SELF_REPORTED. Only the JSON of a tool is read, which has more digits than its tables.

A new format is one function here or in a module of its own, and one entry in ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pytest_flamegate.receipt.imports import llama_bench, serving
from pytest_flamegate.receipt.imports.imported import Imported


class ImportFormat(NamedTuple):
    """A format: the texts that every file of it contains, and how its results are read."""

    name: str
    marks: tuple[bytes, ...]
    read: Callable[[bytes], tuple[Imported, ...]]

    def recognises(self, data: bytes) -> bool:
        """Whether ``data`` looks like JSON of this format."""
        return data.lstrip()[:1] in (b"{", b"[") and all(mark in data for mark in self.marks)


FORMATS = (
    ImportFormat(
        "llama-bench-json",
        (b'"avg_ts"', b'"n_gen"', b'"n_prompt"'),
        llama_bench.read_llama_bench,
    ),
    ImportFormat(
        "guidellm-json",
        (b'"benchmarks"', b'"time_per_output_token_ms"', b'"inter_token_latency_ms"'),
        serving.read_guidellm,
    ),
    ImportFormat(
        "inference-perf-json",
        (b'"load_summary"', b'"successes"', b'"failures"'),
        serving.read_inference_perf,
    ),
    ImportFormat(
        "aiperf-json",
        (b'"input_config"', b'"request_latency"', b'"request_throughput"'),
        serving.read_aiperf,
    ),
    ImportFormat(
        "vllm-serve-json",
        (b'"request_throughput"', b'"total_input_tokens"', b'"duration"'),
        serving.read_vllm_serve,
    ),
    ImportFormat(
        "vllm-latency-json",
        (b'"avg_latency"', b'"latencies"', b'"percentiles"'),
        serving.read_vllm_latency,
    ),
    ImportFormat(
        "vllm-throughput-json",
        (b'"elapsed_time"', b'"requests_per_second"', b'"tokens_per_second"'),
        serving.read_vllm_throughput,
    ),
)


def detect_import_format(data: bytes) -> ImportFormat | None:
    """Return the format of ``data``; None if it is none of them."""
    return next((each for each in FORMATS if each.recognises(data)), None)

"""The formats of foreign results: a new one is one module and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.receipt.imports import (
    aiperf,
    guidellm,
    inference_perf,
    llama_bench,
    vllm_bench,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.receipt.imports.types import Imported


class Format(NamedTuple):
    """A format: whether bytes are of it, and how its results are read."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes], tuple[Imported, ...]]


FORMATS = (
    Format("llama-bench-json", llama_bench.recognises_json, llama_bench.read_json),
    Format("guidellm-json", guidellm.recognises, guidellm.read),
    Format("inference-perf-json", inference_perf.recognises, inference_perf.read),
    Format("aiperf-json", aiperf.recognises_json, aiperf.read_json),
    Format("vllm-serve-json", vllm_bench.recognises_serve, vllm_bench.read_serve),
    Format("vllm-latency-json", vllm_bench.recognises_latency, vllm_bench.read_latency),
    Format("vllm-throughput-json", vllm_bench.recognises_throughput, vllm_bench.read_throughput),
    Format("llama-bench-csv", llama_bench.recognises_csv, llama_bench.read_csv),
    Format("aiperf-csv", aiperf.recognises_csv, aiperf.read_csv),
    Format("llama-bench-markdown", llama_bench.recognises_markdown, llama_bench.read_markdown),
    Format("guidellm-other", guidellm.recognises_other_form, guidellm.refuse_other_form),
)


def format_of(data: bytes) -> Format | None:
    """Return the format of ``data``; None for what is none of them."""
    return next((each for each in FORMATS if each.recognises(data)), None)

"""The roofline: computed from its inputs, with those that are missing listed and none guessed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_flamegate.graph.roofline import Roofline, compute_roofline, describe_roofline
from pytest_flamegate.observe.gpu import ObservedDevices
from pytest_flamegate.observe.machine import Bandwidth
from pytest_flamegate.receipt.types import Metric
from tests.made import bundle
from tests.receipt.gpu import gpu_run

GB = 1e9
BANDWIDTH = Bandwidth(
    fastest=19.8 * GB,
    median=18 * GB,
    slowest=15 * GB,
    array_bytes=128 << 20,
    passes=9,
    threads=1,
    measured_at="2025-10-13T12:00:00+00:00",
    cache_bytes=32 << 20,
)
FACTS = {
    "weights_bytes_per_token": "38400000",
    "kv_bytes_per_position": "1000",
    "flops_per_token": "19200000",
}


def metric(
    name: str, value: float, formula: str = "1/tpot", provenance: Any = "measured"
) -> Metric:
    return Metric(name, value, formula, "", "higher_is_better", "wall", 9, provenance)


METRICS = (
    metric("decode_tokens_per_second", 315.0),
    metric("prefill_tokens_per_second", 500.0),
    metric("time_to_first_token_ms", 200.0),
)


@dataclass(frozen=True)
class PartialEvidence:
    """The part of evidence that is read: 100 tokens of prompt, 200 generated."""

    engine: dict[str, str] = field(default_factory=lambda: dict(FACTS))
    model: dict[str, str | int] = field(default_factory=lambda: {"bytes_per_token": 3_000_000})
    metrics: tuple[Metric, ...] = METRICS
    tokens: tuple[str, ...] = ("x",) * 200
    device: ObservedDevices | None = None


def compute(evidence: Any, bandwidth: Bandwidth | None = BANDWIDTH, **more: Any) -> Roofline:
    found = compute_roofline(evidence, bandwidth, **more)
    assert found is not None
    return found


def test_all_inputs_known() -> None:
    found = compute(PartialEvidence(), instructions="AVX2", peak_flops=1e11)
    assert found.weights_bytes == 38_400_000
    assert found.kv_bytes == 1000 * (100 + 100)
    assert found.read_bytes_per_second == 38_600_000 * 315
    assert found.fraction_of_bandwidth == pytest.approx(38_600_000 * 315 / 19.8e9)
    assert found.arithmetic_intensity == pytest.approx(19.2 / 38.6)
    assert found.bound == "memory"
    assert describe_roofline(found) == (
        "at 61 % of this machine's read bandwidth (12.2 of 19.8 GB/s, 1 thread): 38.4 MB of "
        "weights and 0.2 MB of KV cache a token, 315 tokens/s; 0.5 operations a byte; bound by "
        "memory; AVX2; derived, never gated"
    )


def test_large_figures_have_no_exponent() -> None:
    found = replace(compute(PartialEvidence()), tokens_per_second=2138.4, flops=38_600_000 * 123)
    text = describe_roofline(found)
    assert "2,138 tokens/s; 123 operations a byte" in text
    assert "e+" not in text


def test_kv_cache_counts_at_the_mean_position() -> None:
    """Three tokens after a prompt of 100: the second and the third read 101 and 102 positions."""
    found = compute(replace(PartialEvidence(), tokens=("x",) * 3))
    assert found.kv_bytes == 1000 * (101 + 102) / 2


def test_model_file_replaces_facts_of_the_engine() -> None:
    found = compute(replace(PartialEvidence(), engine={}))
    assert found.weights_bytes == 3_000_000
    assert found.kv_bytes is None
    assert "its KV cache is not known and left out" in describe_roofline(found)
    assert "its 32 MiB of cache" in describe_roofline(found)


@pytest.mark.parametrize("peak", [None, 0.0, float("inf"), float("nan")])
def test_no_bound_without_a_peak(peak: float | None) -> None:
    found = compute(PartialEvidence(), peak_flops=peak)
    assert (found.peak_flops, found.bound) == (None, None)


@pytest.mark.parametrize("fact", ["", "0", "-5", "1e9", "many", "9" * 40, "٣"])
def test_no_intensity_without_operations(fact: str) -> None:
    """Unknown operations are not 0, which would look memory-bound."""
    found = compute(
        replace(PartialEvidence(), engine={**FACTS, "flops_per_token": fact}), peak_flops=1e11
    )
    assert (found.flops, found.arithmetic_intensity, found.bound) == (None, None, None)
    assert found.fraction_of_bandwidth is not None


def test_many_operations_a_byte_are_bound_by_compute() -> None:
    found = compute(
        replace(PartialEvidence(), engine={**FACTS, "flops_per_token": "9" * 12}), peak_flops=1e11
    )
    assert found.bound == "compute"


def test_without_a_bandwidth() -> None:
    found = compute(PartialEvidence(), None, peak_flops=1e11)
    assert (found.fraction_of_bandwidth, found.bound) == (None, None)
    assert describe_roofline(found).startswith(
        "not compared with the read bandwidth, for lack of a measured bandwidth: 38.4 MB"
    )


def test_fraction_above_one_is_not_shown() -> None:
    found = compute(PartialEvidence(), replace(BANDWIDTH, fastest=12 * GB), peak_flops=1e11)
    assert found.bound is None
    sentence = describe_roofline(found)
    assert sentence.startswith("not compared with the read bandwidth: the decode would read 1.01")
    assert "a cache of 32 MiB" in sentence
    assert " % of " not in sentence


def test_unknown_cache_is_not_named() -> None:
    found = compute(PartialEvidence(), replace(BANDWIDTH, fastest=GB, cache_bytes=None))
    assert "may fit into a cache, or" in describe_roofline(found)


@pytest.mark.parametrize(
    ("metrics", "rate"),
    [
        ((metric("tokens_per_second", 50.0, "tokens/total"),), None),
        ((metric("tokens_per_second", 50.0, "decode-tokens/decode-time"),), 50.0),
        ((metric("decode_tokens_per_second", 50.0, provenance="ingested"),), None),
        ((metric("decode_tokens_per_second", float("nan")),), None),
        ((metric("decode_tokens_per_second", 0.0),), None),
    ],
    ids=["whole", "decode", "ingested", "nan", "zero"],
)
def test_only_a_measured_decode_rate_counts(
    metrics: tuple[Metric, ...], rate: float | None
) -> None:
    found = compute(replace(PartialEvidence(), metrics=metrics))
    assert found.tokens_per_second == rate
    assert (found.fraction_of_bandwidth is None) == (rate is None)


def test_no_input_gives_no_roofline() -> None:
    nothing: Any = PartialEvidence(engine={}, model={"path": "x"}, metrics=())
    assert compute_roofline(nothing, BANDWIDTH) is None


def test_work_on_a_gpu_is_not_compared_with_the_host() -> None:
    evidence = gpu_run().evidence
    found = compute_roofline(evidence, BANDWIDTH, instructions="AVX2", peak_flops=1e11)
    assert found is not None
    assert (found.backend, found.fraction_of_bandwidth, found.peak_flops) == ("CUDA", None, None)
    assert "CUDA" in describe_roofline(found)


def test_real_evidence() -> None:
    evidence = bundle().evidence
    found = compute_roofline(evidence, BANDWIDTH)
    assert found is not None
    rate = next(m.value for m in evidence.metrics if m.name == "decode_tokens_per_second")
    assert found.tokens_per_second == rate

"""The roofline: computed from its inputs, with those that are missing listed and none guessed."""

from dataclasses import replace
from typing import Any

import pytest

from pytest_flamegate.graph import roofline
from pytest_flamegate.graph.roofline import describe_roofline
from pytest_flamegate.observe.machine import Bandwidth
from pytest_flamegate.receipt.types import Metric
from tests.made import evidence
from tests.receipt.gpu import gpu_run

BANDWIDTH = Bandwidth(19.8e9, 512 << 20, 9, 1, 0.0, 32 << 20)
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


# A prompt of 100 tokens, and 200 generated.
EVIDENCE = evidence(
    engine=FACTS, model={"bytes_per_token": 3_000_000}, metrics=METRICS, tokens=("x",) * 200
)


@pytest.fixture(autouse=True)
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "find_instruction_set", lambda: "AVX2")


def describe(bandwidth: Bandwidth | None = BANDWIDTH, peak: float = 1e11, **changes: Any) -> str:
    return describe_roofline(replace(EVIDENCE, **changes), bandwidth, peak)


def test_all_inputs_known() -> None:
    assert describe() == (
        "at 61 % of this machine's read bandwidth (12.2 of 19.8 GB/s by 1 thread, the fastest of "
        "9 passes over 537 MB): 38.4 MB of weights and 0.2 MB of KV cache a token, 315 tokens/s; "
        "0.50 operations a byte; bound by memory; AVX2; derived, never gated"
    )


def test_large_figures_have_no_exponent() -> None:
    facts = {**FACTS, "flops_per_token": str(38_600_000 * 123)}
    rate = metric("decode_tokens_per_second", 2138.4)
    text = describe(metrics=(rate, *METRICS[1:]), engine=facts)
    assert "2,138 tokens/s; 123 operations a byte" in text


@pytest.mark.parametrize(
    ("tokens", "metrics", "words"),
    [
        (3, METRICS, "and 1.0 MB of KV cache"),
        (200, METRICS, "and 2.0 MB of KV cache"),
        (1, METRICS, "KV cache is not known"),
        (200, METRICS[:2], "KV cache is not known"),
        (200, (*METRICS[:2], metric("time_to_first_token_ms", 0.0)), "KV cache is not known"),
    ],
)
def test_kv_cache_counts_at_the_mean_position(
    tokens: int, metrics: tuple[Metric, ...], words: str
) -> None:
    """Three tokens after a prompt of 100: the second and the third read 101 and 102 positions."""
    facts = {**FACTS, "kv_bytes_per_position": "10000"}
    assert words in describe(engine=facts, tokens=("x",) * tokens, metrics=metrics)


def test_model_file_replaces_facts_of_the_engine() -> None:
    text = describe(engine={})
    assert "3.0 MB of weights a token (its KV cache is not known)" in text
    assert "the weights fit into its 32 MiB of cache" in text
    assert "4.0 kB of weights" in describe(engine={}, model={"bytes_per_token": 4000})


@pytest.mark.parametrize("fact", ["", "0", "-5", "1e9", "9" * 40, "٣"])
def test_no_intensity_without_operations(fact: str) -> None:
    """Unknown operations are not 0, which would look memory-bound."""
    text = describe(engine={**FACTS, "flops_per_token": fact})
    assert text.startswith("at 61 %")
    assert "operations" not in text
    assert "bound by" not in text


def test_the_bound_needs_a_peak_and_a_bandwidth_that_the_decode_stays_below() -> None:
    assert "bound by compute" in describe(engine={**FACTS, "flops_per_token": "9" * 12})
    unknown, above = describe(None), describe(replace(BANDWIDTH, bytes_per_second=12e9))
    compared = "not compared with the read bandwidth"
    assert unknown.startswith(f"{compared}, for lack of a measured bandwidth: 38.4 MB")
    assert above.startswith(f"{compared}: the decode would read 1.01 times")
    for text in (unknown, above, describe(peak=0.0)):
        assert "bound by" not in text


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        (metric("tokens_per_second", 50.0, "tokens/total"), False),
        (metric("tokens_per_second", 50.0, "decode-tokens/decode-time"), True),
        (metric("decode_tokens_per_second", 50.0, provenance="ingested"), False),
        (metric("decode_tokens_per_second", float("nan")), False),
        (metric("decode_tokens_per_second", 0.0), False),
    ],
    ids=["whole", "decode", "ingested", "nan", "zero"],
)
def test_only_a_measured_decode_rate_counts(found: Metric, counts: bool) -> None:
    text = describe(metrics=(found,))
    assert ("50.0 tokens/s" in text) == counts
    assert ("for lack of a decode rate:" in text) != counts


def test_no_input_gives_no_roofline() -> None:
    assert describe(engine={}, model={"path": "x"}, metrics=()) == ""
    assert "for lack of the weights' bytes" in describe(engine={}, model={"path": "x"})


def test_work_on_a_gpu_is_not_compared_with_the_host() -> None:
    text = describe_roofline(gpu_run().evidence, BANDWIDTH, 1e11)
    assert text.startswith("not compared with the read bandwidth, for lack of")
    assert "a measured bandwidth:" in text
    assert "CUDA; derived" in text

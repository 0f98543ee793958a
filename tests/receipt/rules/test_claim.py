"""Each rule over a receipt alone: receipts that break it, and honest ones that just do not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pytest_flamegate.receipt import Grade, Verification
from tests.receipt.documents import document, encoded
from tests.receipt.forgeries import book
from tests.receipt.rules.changes import codes

NOW = datetime(2025, 10, 14, 12, 0, tzinfo=UTC)
CUDA = {"backend": "cuda", "kernels": ["gemm_fp16", "i2s_gpu_quantize", "cuda_sync"]}
V1_1 = {"schema_version": "1.1.0"}


def perf(**fields: Any) -> dict[str, Any]:
    return {"performance_baseline": fields}


def timing(**fields: float) -> dict[str, Any]:
    """Times of three tokens in milliseconds; a whole number may have been rounded or cut off."""
    names = {"first": "first_token_ms", "average": "average_token_latency_ms", "total": "total_ms"}
    named = {names.get(name, name): value for name, value in fields.items()}
    return {"timing": {"tokens_generated": 3, **named}}


def env(**variables: str) -> dict[str, Any]:
    return {"environment": {"OS": "linux-x86_64", **variables}}


def verify(changes: dict[str, Any], **options: Any) -> Verification:
    return book.verify({"receipt.json": encoded(**changes)}, **{"now": NOW, **options})


# A code, and changes of an honest receipt of which each leads to it, beside those of the corpus.
FORGERIES: dict[str, list[dict[str, Any]]] = {
    "E_TPS": [{"tokens_per_second": 1_000_001}],
    "E_FIGURES_CONTRADICT": [
        {"tokens_requested": 127},
        perf(tokens_generated=4),
        perf(tokens_per_second=16.0),
        perf(total_time_ms=4000),
        perf(total_time_ms=9000.5),
        {"total_time_s": 4.0},
        perf(total_time_ms=8258, first_token_latency_ms=500, average_token_latency_ms=30),
        perf(total_time_ms=8258, first_token_latency_ms=9000),
        perf(total_time_ms=8258, average_token_latency_ms=90),
        {"timing": {"prefill_ms": 60, "decode_ms": 50, "total_ms": 100}},
        {"a": [{"b": {"decode_time_us": 3.5e6, "total_time_s": 2}}]},
        timing(first=10.0, average=20.0, total=49.0),
        timing(first=10.0, average=20.0, total=48),
        timing(first=10.0, average_token_latency_us=20_000, total=48.9),
        timing(average=20.0, total=30.0),
        perf(first_token_latency_ms=-1),
        perf(total_time_ms=-8258),
    ],
    "E_RUN_FAILED": [
        *({"test_results": {name: 1}} for name in ("failed", "errors", "failures")),
        *({"parity": {name: False}} for name in ("passed", "prefill_decode_parity", "success")),
        *({"cross_validation": {name: " Failed"}} for name in ("status", "result")),
    ],
}

HONEST: dict[str, dict[str, Any]] = {
    "slow": {"tokens_per_second": 0.0003},
    "whole-number rate": {"tokens_per_second": 16},
    "fast, just believable": {"tokens_per_second": 1e6},
    "ended early": {"tokens_generated": 3},
    "backend in other case": {"backend": "CPU"},
    "id of 128 bytes": {"kernels": ["i2s_" + "x" * 124]},
    "hybrid of quantised and fallback": {"kernels": ["i2s_gemv", "fp32_matmul"]},
    "hybrid that counts its fallbacks": {**V1_1, "quantization": {"fallback_count": 2}},
    "gpu run with a CPU kernel": {**CUDA, "kernels": ["gemm_fp32", "i2s_cpu_pack"]},
    "fp32 path that says so": {**CUDA, **V1_1, "kernel_path": "fp32_fallback"},
    "unknown extra fields": {"quantization": "i2s", "kernel_path": 7, "x": {"y": [1]}},
    "extra fields that are null": {"corrections": None, "performance_baseline": None},
    "no corrections": {"corrections": []},
    "a time that is no number": perf(total_time_ms="fast"),
    "all tests passed": {"test_results": {"total_tests": 3, "passed": 2, "skipped": 1}},
    "all but an ignored test passed": {"parity": {"total": 3, "passed": 2, "ignored": 1}},
    "an error as large as tolerated": {"test_results": {"mse": 1e-3, "tolerance": 1e-3}},
    "rounded total": timing(first=10.0, average=20.0, total=49),
    "rounded first": timing(first=10, average=20.0, total=48.1),
    "rounded average": timing(first=10.0, average=20, total=46.2),
    "an average without a first time": timing(average=20.0, total=100.0),
    "rate rounded by 1 %": perf(total_time_ms=8340, tokens_per_second=15.35),
    "milliseconds cut off": {"tokens_generated": 1, "tokens_per_second": 625.0}
    | perf(tokens_generated=1, total_time_ms=1, average_token_latency_ms=1),
    "average over the later tokens": perf(
        total_time_ms=8258, first_token_latency_ms=638, average_token_latency_ms=60
    ),
    "average over all tokens": perf(
        total_time_ms=8258, first_token_latency_ms=638, average_token_latency_ms=64.5
    ),
    "phases that fill it": {"timing": {"prefill_ms": 50, "decode_ms": 50, "total_ms": 100}},
    "phases in whole milliseconds": {"t": {"prefill_ms": 1, "decode_ms": 1, "total_ms": 1}},
    "determinism not claimed": {"deterministic": False, **env(BITNET_DETERMINISTIC="0")},
    "no seed recorded": env(BITNET_DETERMINISTIC="1", RUST_VERSION="", BITNET_SEED=""),
    "nine fractional digits": {"timestamp": "2025-10-13T19:41:18.920441642+00:00"},
    "a clock some hours ahead": {"timestamp": "2025-10-14T15:00:00+00:00"},
    "generic engine": env(FLAMEGATE_ENGINE="command") | {"kernels": ["main", "memcpy"]},
}


@pytest.mark.parametrize(
    ("code", "changes"), [(code, each) for code, every in FORGERIES.items() for each in every]
)
def test_a_forgery_is_rejected(code: str, changes: dict[str, Any]) -> None:
    answer = verify(changes)
    assert code in codes(answer)
    assert "E_INTERNAL" not in codes(answer)
    assert not answer.ok


@pytest.mark.parametrize("changes", HONEST.values(), ids=HONEST)
def test_an_honest_but_awkward_receipt_passes(changes: dict[str, Any]) -> None:
    answer = verify(changes)
    assert answer.refusals == ()
    assert answer.grade is Grade.CONSISTENT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_results": [{"a": {"failed": 2}}]}, "test_results[0].a.failed is 2."),
        (
            {"parity": {"mse": 0.002, "tolerance": 0.001}},
            "parity.mse is 0.002, above its tolerance of 0.001.",
        ),
        (
            {"test_results": {"total": 5, "passed": 3, "skipped": 1}},
            "test_results counts 5 tests, but 3 passed, 0 failed, 1 skipped.",
        ),
        (
            timing(first=10.0, average=20.0, total=49.0),
            "10 ms + 2 x 20 ms = 50 ms, but total_ms is 49 ms.",
        ),
    ],
)
def test_the_place_and_the_figures_are_stated(changes: dict[str, Any], message: str) -> None:
    assert message in {refusal.message for refusal in verify(changes).refusals}


def test_a_wish_of_the_reader_does_not_lower_the_grade() -> None:
    answer = verify({}, require_gpu_kernels=True, max_age_s=1.0)
    assert {"E_GPU_REQUIRED", "E_EXPIRED"} == codes(answer)
    assert answer.grade is Grade.CONSISTENT
    assert verify(CUDA, require_gpu_kernels=True, max_age_s=86_400.0).ok


def test_of_thousands_of_breaches_a_handful_is_reported() -> None:
    kernels = ["i2s_gemv", *(f"mock_{index}" for index in range(5000))]
    messages = [refusal.message for refusal in verify({"kernels": kernels}).refusals]
    assert len(messages) == 9
    assert messages[-1] == "The same problem occurs 4,992 more times."


def test_a_malformed_field_is_reported_once() -> None:
    answer = verify({"kernels": [7], "environment": {"OS": 1}, "tokens_generated": "many"})
    assert codes(answer) == {"E_KERNELS", "E_SCHEMA"}


def test_the_age_is_relative_to_the_given_moment() -> None:
    stamp = datetime.fromisoformat(document()["timestamp"])
    for seconds, expired in ((59, False), (61, True)):
        moment = stamp + timedelta(seconds=seconds)
        for now in (moment, moment.replace(tzinfo=None)):
            assert verify({}, max_age_s=60, now=now).ok is not expired
    assert codes(verify({}, max_age_s=float("nan"))) == {"E_EXPIRED"}
    ahead = {"timestamp": "2025-10-14T12:10:00Z"}
    assert codes(verify(ahead, max_age_s=3600)) == {"E_FROM_THE_FUTURE"}

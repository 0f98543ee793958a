"""Each rule over a receipt alone: receipts that break it, and honest ones that just do not."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pytest_flamegate.core.text import Finding
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.rules import NOTICES, RULES
from tests.receipt.documents import document, encoded

NOW = datetime(2025, 10, 14, 12, 0, tzinfo=UTC)
CUDA = {"backend": "cuda", "kernels": ["gemm_fp16", "i2s_gpu_quantize", "cuda_sync"]}
V1_1 = {"schema_version": "1.1.0"}


def perf(**fields: Any) -> dict[str, Any]:
    return {"performance_baseline": fields}


def env(**variables: str) -> dict[str, Any]:
    return {"environment": {"OS": "linux-x86_64", **variables}}


def verify(changes: dict[str, Any], **options: Any) -> Verification:
    return verify_receipt(encoded(**changes), now=NOW, **options)


def codes(answer: Verification) -> set[str]:
    findings: list[Finding] = [*answer.refusals, *answer.warnings]
    return {finding.code for finding in findings}


# The code, the change of an honest receipt, and the options of the verification.
FORGERIES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("E_KERNELS", {"kernels": ["i2s_gemv", "é" * 65]}, {}),
    ("E_HIDDEN_CHARACTER", {"kernels": ["i2s_gemv", "rope\u202eapply"]}, {}),
    ("E_HIDDEN_CHARACTER", {"kernels": ["i2s_gemv", "rope\nE_FORGED"]}, {}),
    ("E_HIDDEN_CHARACTER", {"kernels": ["i2s_gemv", "rope\u200b"]}, {}),
    ("E_HIDDEN_CHARACTER", {"kernels": ["i2s_gemv", "i2s\u3164gemv"]}, {}),
    ("E_HIDDEN_CHARACTER", {"kernels": ["i2s_gemv", "rope\u00a0apply"]}, {}),
    ("E_HIDDEN_CHARACTER", {"kernels": ["i2s_gemv "]}, {}),
    ("E_MOCK_KERNEL", {"kernels": ["i2s_gemv", "mock_gemv"]}, {}),
    ("E_MOCK_KERNEL", {"kernels": ["i2s_gemv", "i2s_MockGemv"]}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "cuda"}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "CUDA", "kernels": ["i2s_gemv", "cuda_sync"]}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "cuda", "kernels": ["cuda_memcpy_h2d", "cuda_sync"]}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "cuda", "kernels": ["i2s_cpu_quantize", "gemm_"]}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "cuda", "kernels": ["i2s_gpu_quantize"]}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "cuda", "kernels": ["cuda_fallback_matmul"]}, {}),
    ("E_GPU_REQUIRED", {}, {"require_gpu_kernels": True}),
    ("E_GPU_KERNEL_ON_CPU", {"kernels": ["i2s_gemv", "gemm_fp16"]}, {}),
    ("E_GPU_KERNEL_ON_CPU", {"kernels": ["i2s_gemv", "cuda_sync"]}, {}),
    ("E_GPU_KERNEL_ON_CPU", {"kernels": ["i2s_gemv", "i2s_gpu_matmul"]}, {}),
    ("E_GPU_KERNEL_ON_CPU", {"kernels": ["i2s_gemv", "GEMM_FP16"]}, {}),
    ("E_GPU_KERNEL_ON_CPU", {"kernels": ["i2s_gemv", "i2s_quantize"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["rope_apply"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["i2s_"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["dequantize_i2s_helper", "rope_apply"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["I2S_gemv"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["\u04562s_gemv"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["fp32_matmul"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["matmul_f32", "rope_apply"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["i2s_dequant"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["tl1_cpu_dequant_f32_gemm"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["i2s_FP32_matmul"]}, {}),
    ("E_NO_COMPUTE_KERNEL", {"kernels": ["tl2_scalar_fallback"]}, {}),
    ("E_NO_GPU_KERNEL", {"backend": "cuda", "kernels": ["dequant_i2s", "fp32_matmul"]}, {}),
    (
        "E_NO_COMPUTE_KERNEL",
        {**V1_1, "kernels": ["fp32_matmul"], "quantization": {"types_used": ["I2S"]}},
        {"policy": "generic"},
    ),
    (
        "E_KERNEL_PATH",
        {**V1_1, "kernel_path": "native_quantized", "quantization": {"fallback_count": 3}},
        {},
    ),
    (
        "E_KERNEL_PATH",
        {**V1_1, "kernels": ["i2s_gemv", "fp32_matmul"], "quantization": {"fallback_count": 0}},
        {},
    ),
    ("E_TPS", {"tokens_per_second": 1e9}, {}),
    ("E_TPS", {"tokens_per_second": 1_000_001}, {}),
    ("E_FIGURES_CONTRADICT", {"tokens_requested": 127}, {}),
    ("E_FIGURES_CONTRADICT", perf(tokens_generated=4), {}),
    ("E_FIGURES_CONTRADICT", perf(tokens_per_second=16.0), {}),
    ("E_FIGURES_CONTRADICT", perf(total_time_ms=4000), {}),
    ("E_FIGURES_CONTRADICT", perf(total_time_ms=9000.5), {}),
    ("E_FIGURES_CONTRADICT", {"total_time_s": 4.0}, {}),
    (
        "E_FIGURES_CONTRADICT",
        perf(total_time_ms=8258, first_token_latency_ms=500, average_token_latency_ms=30),
        {},
    ),
    ("E_FIGURES_CONTRADICT", perf(total_time_ms=8258, first_token_latency_ms=9000), {}),
    ("E_FIGURES_CONTRADICT", perf(total_time_ms=8258, average_token_latency_ms=90), {}),
    ("E_FIGURES_CONTRADICT", {"timing": {"prefill_ms": 60, "decode_ms": 50, "total_ms": 100}}, {}),
    ("E_FIGURES_CONTRADICT", {"a": [{"b": {"decode_time_us": 3.5e6, "total_time_s": 2}}]}, {}),
    ("E_FIGURES_CONTRADICT", perf(first_token_latency_ms=-1), {}),
    ("E_FIGURES_CONTRADICT", perf(total_time_ms=-8258), {}),
    ("E_RUN_FAILED", {"success": False}, {}),
    ("E_RUN_FAILED", {"error": "out of memory"}, {}),
    ("E_RUN_FAILED", {"exit_code": 1}, {}),
    ("E_RUN_FAILED", {"status": "Failed"}, {}),
    ("E_RUN_FAILED", {"test_results": {"total_tests": 5, "passed": 4, "failed": 1}}, {}),
    ("E_RUN_FAILED", {"test_results": {"total_tests": 5, "passed": 3}}, {}),
    ("E_RUN_FAILED", {"test_results": [{"name": "x", "outcome": "failed"}]}, {}),
    (
        "E_RUN_FAILED",
        {"test_results": {"accuracy_tests": {"i2s": {"mse": 2e-3, "tolerance": 1e-3}}}},
        {},
    ),
    ("E_RUN_FAILED", {"test_results": {"accuracy_tests": {"i2s": {"passed": False}}}}, {}),
    ("E_RUN_FAILED", {"cross_validation": {"parity_tests_passed": False}}, {}),
    ("E_RUN_FAILED", {"parity": {"status": "divergence"}}, {}),
    ("E_CORRECTED", {"corrections": [{"layer": 0}]}, {}),
    ("E_CORRECTED", {"model_info": {"effective_correction_digest": "ab"}}, {}),
    ("E_NOT_DETERMINISTIC", env(BITNET_DETERMINISTIC="0"), {}),
    ("E_NOT_DETERMINISTIC", env(BITNET_DETERMINISTIC=" False "), {}),
    ("E_NOT_DETERMINISTIC", env(BITNET_SEED="random"), {}),
    (
        "E_NOT_DETERMINISTIC",
        {"test_results": {"determinism_tests": {"identical_sequences": False}}},
        {},
    ),
    ("E_HIDDEN_CHARACTER", {"model": {"path": "a\x1b[2Jb.gguf"}}, {}),
    ("E_HIDDEN_CHARACTER", env(CPU="x\u202ey"), {}),
    ("E_FROM_THE_FUTURE", {"timestamp": "2025-10-16T12:00:00Z"}, {}),
    ("E_FROM_THE_FUTURE", {"timestamp": "2025-10-14T12:10:00Z"}, {"max_age_s": 3600}),
    ("E_EXPIRED", {}, {"max_age_s": 3600.0}),
    ("E_EXPIRED", {}, {"max_age_s": float("nan")}),
    ("W_DUPLICATE_KERNELS", {"kernels": ["i2s_gemv", "i2s_gemv"]}, {}),
]

HONEST: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("slow", {"tokens_per_second": 0.0003}, {}),
    ("whole-number rate", {"tokens_per_second": 16}, {}),
    ("fast, just believable", {"tokens_per_second": 1e6}, {}),
    ("ended early", {"tokens_generated": 3}, {}),
    ("backend in other case", {"backend": "CPU"}, {}),
    ("cuda in other case", {**CUDA, "backend": "Cuda"}, {}),
    ("id of 128 bytes", {"kernels": ["i2s_" + "x" * 124]}, {}),
    ("id of 128 bytes in 66 letters", {"kernels": ["i2s_" + "é" * 62]}, {}),
    ("hybrid of quantised and fallback", {"kernels": ["i2s_gemv", "fp32_matmul"]}, {}),
    ("hybrid that counts its fallbacks", {**V1_1, "quantization": {"fallback_count": 2}}, {}),
    ("table lookup that dequantises", {"kernels": ["tl1_lut_dequant_forward"]}, {}),
    ("block dequantisation on the CPU", {"kernels": ["i2s_dequantize_block_cpu"]}, {}),
    ("named like an interruption", {"kernels": ["i2s_gemv", "interrupted"]}, {}),
    ("gpu run", CUDA, {"require_gpu_kernels": True}),
    ("gpu run with a CPU kernel", {**CUDA, "kernels": ["gemm_fp32", "i2s_cpu_pack"]}, {}),
    (
        "gpu dequantisation by its whole name",
        {"backend": "cuda", "kernels": ["i2s_dequantize"]},
        {},
    ),
    ("fp32 path that says so", {**CUDA, **V1_1, "kernel_path": "fp32_fallback"}, {}),
    ("unknown extra fields", {"quantization": "i2s", "kernel_path": 7, "x": {"y": [1]}}, {}),
    ("extra fields that are null", {"corrections": None, "performance_baseline": None}, {}),
    ("no corrections", {"corrections": []}, {}),
    ("all tests passed", {"test_results": {"total_tests": 3, "passed": 2, "skipped": 1}}, {}),
    ("rate rounded by 1 %", perf(total_time_ms=8340, tokens_per_second=15.35), {}),
    (
        "milliseconds cut off",
        {"tokens_generated": 1, "tokens_per_second": 625.0}
        | perf(tokens_generated=1, total_time_ms=1, average_token_latency_ms=1),
        {},
    ),
    (
        "average over the later tokens",
        perf(total_time_ms=8258, first_token_latency_ms=638, average_token_latency_ms=60),
        {},
    ),
    (
        "average over all tokens",
        perf(total_time_ms=8258, first_token_latency_ms=638, average_token_latency_ms=64.5),
        {},
    ),
    (
        "phases that fill the total",
        {"timing": {"prefill_ms": 50, "decode_ms": 50, "total_ms": 100}},
        {},
    ),
    ("phases in whole milliseconds", {"t": {"prefill_ms": 1, "decode_ms": 1, "total_ms": 1}}, {}),
    ("determinism not claimed", {"deterministic": False, **env(BITNET_DETERMINISTIC="0")}, {}),
    ("no seed recorded", env(BITNET_DETERMINISTIC="1", RUST_VERSION="", BITNET_SEED=""), {}),
    ("nine fractional digits", {"timestamp": "2025-10-13T19:41:18.920441642+00:00"}, {}),
    ("a clock some hours ahead", {"timestamp": "2025-10-14T15:00:00+00:00"}, {}),
    ("young enough", {}, {"max_age_s": 86_400.0}),
    ("generic engine", env(FLAMEGATE_ENGINE="command") | {"kernels": ["main", "memcpy"]}, {}),
    ("embedded engine", env(FLAMEGATE_ENGINE="embedded") | {"kernels": ["ternary_gemv"]}, {}),
]


@pytest.mark.parametrize(
    ("code", "changes", "options"), FORGERIES, ids=[f"{f[0]}-{i}" for i, f in enumerate(FORGERIES)]
)
def test_a_forgery_is_rejected(code: str, changes: dict[str, Any], options: dict[str, Any]) -> None:
    answer = verify(changes, **options)
    assert code in codes(answer)
    assert "E_INTERNAL" not in codes(answer)
    assert answer.ok is code.startswith("W_")


@pytest.mark.parametrize(("name", "changes", "options"), HONEST, ids=[h[0] for h in HONEST])
def test_an_honest_but_awkward_receipt_passes(
    name: str, changes: dict[str, Any], options: dict[str, Any]
) -> None:
    answer = verify(changes, **options)
    assert answer.refusals == ()
    assert answer.grade is Grade.CONSISTENT


def test_every_rule_is_described() -> None:
    every = [*RULES, *NOTICES]
    assert len({rule.sentence for rule in every}) == len(every)
    for rule in every:
        assert rule.code.startswith("W_" if rule in tuple(NOTICES) else "E_")
        assert rule.sentence.endswith(".")
        assert rule.remedy.endswith(".")


def test_a_wish_of_the_reader_does_not_lower_the_grade() -> None:
    answer = verify({}, require_gpu_kernels=True, max_age_s=1.0)
    assert {"E_GPU_REQUIRED", "E_EXPIRED"} == codes(answer)
    assert answer.grade is Grade.CONSISTENT


def test_of_thousands_of_breaches_a_handful_is_reported() -> None:
    kernels = ["i2s_gemv", *(f"mock_{index}" for index in range(5000))]
    messages = [refusal.message for refusal in verify({"kernels": kernels}).refusals]
    assert len(messages) == 9
    assert messages[-1] == "The same problem occurs 4,992 more times."


def test_a_malformed_field_is_reported_once() -> None:
    answer = verify({"kernels": [7], "environment": {"OS": 1}, "tokens_generated": "many"})
    assert codes(answer) == {"E_KERNELS", "E_ENVIRONMENT", "E_TOKENS"}


def test_messages_are_one_printable_line() -> None:
    foreign = {"\x1b[31m\n": {"failed": 1}, "y" * 5000: {"failed": 1}}
    kernels = ["i2s_gemv", "mock\x1b[31m\n" + "y" * 100]
    answer = verify({"kernels": kernels, "status": "error\x07", "test_results": foreign})
    assert len(answer.refusals) >= 3
    for refusal in answer.refusals:
        assert refusal.message.isprintable()
        assert refusal.message.isascii()
        assert len(refusal.message) < 500


def test_the_age_is_relative_to_the_given_moment() -> None:
    stamp = datetime.fromisoformat(document()["timestamp"])
    for seconds, expired in ((59, False), (61, True)):
        moment = stamp + timedelta(seconds=seconds)
        answer = verify_receipt(json.dumps(document()).encode(), max_age_s=60, now=moment)
        assert answer.ok is not expired
        naive = moment.replace(tzinfo=None)
        again = verify_receipt(json.dumps(document()).encode(), max_age_s=60, now=naive)
        assert again.ok is not expired

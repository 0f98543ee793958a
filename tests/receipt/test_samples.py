"""The shared sample receipts: every honest one passes, every other is refused for its reason."""

from pathlib import Path

import pytest

from pytest_flamegate.receipt import Grade, verify_receipt
from tests.receipt.documents import INVALID, VALID

EXPECTED = {
    "f01_zero_tps_baseline": "E_TPS",
    "f02_failed_run_placeholder": "E_TPS",
    "f03_backend_gpu_no_gpu_kernel": "E_BACKEND",
    "f06_tps_negative": "E_TPS",
    "f08_mock_next_to_quant": "E_MOCK_KERNEL",
    "f09_fallback_named_i2s_dequant_fp32": "E_NO_COMPUTE_KERNEL",
    "f12_failed_tests_inside": "E_RUN_FAILED",
    "f15_latency_contradiction": "E_FIGURES_CONTRADICT",
    "f17_literal_timestamp": "E_TIMESTAMP",
    "f18_three_field_forgery": "E_TPS",
    "f19_duplicate_keys": "E_JSON_DUPLICATE_KEY",
    "f21_more_tokens_than_requested": "E_FIGURES_CONTRADICT",
    "f25_backend_trailing_space": "E_BACKEND",
    "i01_compute_path_mock": "E_COMPUTE_PATH",
    "i02_kernels_empty": "E_KERNELS",
    "i03_kernels_missing": "E_KERNELS",
    "i04_kernels_non_string": "E_KERNELS",
    "i07_schema_missing": "E_SCHEMA_VERSION",
    "i08_schema_2_0_0": "E_SCHEMA_VERSION",
    "i10_cpu_fallback_only": "E_NO_COMPUTE_KERNEL",
    "i11_cpu_no_quant": "E_NO_COMPUTE_KERNEL",
    "i13_cuda_cpu_kernels": "E_NO_GPU_KERNEL",
    "i14_cpu_with_require_gpu": "E_GPU_REQUIRED",
    "i15_benchmark_report_not_receipt": "E_SCHEMA_VERSION",
    "i17_truncated_json": "E_JSON_SYNTAX",
}


def test_every_sample_is_expected() -> None:
    assert {path.stem for path in INVALID} == set(EXPECTED)
    assert len(VALID) >= 7


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_honest_samples_pass(path: Path) -> None:
    answer = verify_receipt(path)
    assert answer.refusals == ()
    assert answer.ok
    assert answer.grade is Grade.CONSISTENT
    assert answer.policy == "bitnet"
    assert verify_receipt(path.read_bytes()) == answer


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_other_samples_are_refused(path: Path) -> None:
    wants_gpu = path.stem == "i14_cpu_with_require_gpu"
    answer = verify_receipt(path, require_gpu_kernels=wants_gpu)
    assert not answer.ok
    assert EXPECTED[path.stem] in {refusal.code for refusal in answer.refusals}
    # Wanting a GPU is a wish: the CPU receipt is no less honest for it.
    assert answer.grade is (Grade.CONSISTENT if wants_gpu else Grade.SELF_REPORTED)


def test_every_refusal_is_reported_not_only_the_first() -> None:
    answer = verify_receipt(next(path for path in INVALID if path.stem.startswith("i15")))
    codes = {refusal.code for refusal in answer.refusals}
    assert {"E_SCHEMA_VERSION", "E_KERNELS", "E_MODEL", "E_FIGURES_CONTRADICT"} <= codes


def test_duplicate_kernels_only_warn() -> None:
    path = next(path for path in VALID if path.stem.startswith("v06"))
    assert [notice.code for notice in verify_receipt(path).warnings] == ["W_DUPLICATE_KERNELS"]

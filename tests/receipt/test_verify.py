"""One receipt in, one answer out: sources, policies, grades, samples, and no exception ever."""

from pathlib import Path
from typing import Any

import pytest

import pytest_flamegate
from pytest_flamegate.receipt import Grade, verify, verify_receipt
from tests.made import bundle
from tests.receipt.documents import INVALID, VALID, encoded
from tests.receipt.rules.changes import NOW, rejected

# The sample receipts that must be rejected, and the code of the reason.
REJECTED = {
    "f01_zero_tps_baseline": "E_TPS",
    "f02_failed_run_placeholder": "E_TPS",
    "f03_backend_gpu_no_gpu_kernel": "E_SCHEMA",
    "f06_tps_negative": "E_TPS",
    "f08_mock_next_to_quant": "E_MOCK_KERNEL",
    "f09_fallback_named_i2s_dequant_fp32": "E_NO_COMPUTE_KERNEL",
    "f12_failed_tests_inside": "E_RUN_FAILED",
    "f15_latency_contradiction": "E_FIGURES_CONTRADICT",
    "f17_literal_timestamp": "E_SCHEMA",
    "f18_three_field_forgery": "E_TPS",
    "f19_duplicate_keys": "E_JSON_DUPLICATE_KEY",
    "f21_more_tokens_than_requested": "E_FIGURES_CONTRADICT",
    "f25_backend_trailing_space": "E_SCHEMA",
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


def env(**variables: str) -> dict[str, Any]:
    return {"environment": {"OS": "linux-x86_64", **variables}}


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_honest_samples_pass(path: Path) -> None:
    answer = verify_receipt(path)
    assert (answer.ok, answer.refusals) == (True, ())
    assert (answer.grade, answer.policy) == (Grade.CONSISTENT, "bitnet")
    duplicates = ["W_DUPLICATE_KERNELS"] if path.stem.startswith("v06") else []
    assert [each.code for each in answer.warnings if "DUPLICATE" in each.code] == duplicates
    assert answer.files == {"receipt.json": path.read_bytes()}
    assert verify_receipt(path.read_bytes()) == answer


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_other_samples_are_rejected(path: Path) -> None:
    wants_gpu = path.stem == "i14_cpu_with_require_gpu"
    answer = verify_receipt(path, require_gpu_kernels=wants_gpu)
    assert not answer.ok
    assert REJECTED[path.stem] in rejected(answer)
    # Wanting a GPU is a wish: the CPU receipt is no less honest for it.
    assert answer.grade is (Grade.CONSISTENT if wants_gpu else Grade.SELF_REPORTED)
    if path.stem.startswith("i15"):  # every reason is reported, not only the first
        assert {"E_KERNELS", "E_SCHEMA", "E_FIGURES_CONTRADICT"} <= set(rejected(answer))


def test_files_of_one_directory_are_read_together(tmp_path: Path) -> None:
    assert pytest_flamegate.verify_receipt is verify_receipt
    path = bundle().write(tmp_path)
    answer = verify_receipt(path, now=NOW)
    assert (answer.ok, answer.grade, answer.policy) == (True, Grade.OBSERVED, "embedded")
    assert "observed by flamegate" in answer.ceiling
    receipt = bundle().files["receipt.json"]
    evidence = path.with_name("evidence.json")
    folded = path.with_name("profile.folded").read_bytes()
    path.with_name("profile.folded").unlink()
    answer = verify_receipt(receipt, evidence=evidence, profile_folded=folded, now=NOW)
    assert answer.grade is Grade.OBSERVED
    assert (answer.evidence, answer.files) == (bundle().evidence, bundle().files)
    evidence.unlink()
    answer = verify_receipt(path, now=NOW)
    assert (answer.ok, answer.grade) == (True, Grade.CONSISTENT)
    assert "unverified claims of its author" in answer.ceiling


@pytest.mark.parametrize("wanted", Grade)
def test_the_requested_grade(wanted: Grade) -> None:
    assert Grade.parse(f" {wanted.name.lower().replace('_', '-')}") is wanted
    answer = verify_receipt(encoded(), require_grade=wanted)
    assert answer.ok is (wanted <= Grade.CONSISTENT)
    assert rejected(answer) == ([] if answer.ok else ["E_GRADE"])
    assert answer.grade is Grade.CONSISTENT
    assert answer.ceiling == max(wanted, Grade.CONSISTENT).ceiling


@pytest.mark.parametrize(
    ("changes", "policy", "used", "expected"),
    [
        ({}, None, "bitnet", []),
        ({}, "generic", "generic", []),
        ({}, "magic", "bitnet", ["E_BAD_OPTION"]),
        (env(FLAMEGATE_ENGINE="command"), None, "generic", []),
        (
            {**env(FLAMEGATE_ENGINE="llama-cpp"), "kernels": ["rope"]},
            None,
            "ggml",
            ["E_NO_COMPUTE_KERNEL"],
        ),
        (env(FLAMEGATE_ENGINE="llama-cpp"), "bitnet", "bitnet", []),
        (env(FLAMEGATE_ENGINE="magic"), None, "bitnet", ["E_UNKNOWN_ENGINE"]),
        (env(FLAMEGATE_ENGINE="magic"), "generic", "generic", []),
        (env(FLAMEGATE_ENGINE=""), None, "bitnet", ["E_SCHEMA"]),
    ],
)
def test_the_policy_that_is_used(
    changes: dict[str, Any], policy: str | None, used: str, expected: list[str]
) -> None:
    answer = verify_receipt(encoded(**changes), policy=policy)
    assert (answer.policy, rejected(answer)) == (used, expected)


def test_the_engine_of_the_evidence_comes_before_that_of_the_receipt() -> None:
    files = bundle(engine="python").with_receipt(environment=env()["environment"]).files
    answer = verify_receipt(files["receipt.json"], evidence=files["evidence.json"], now=NOW)
    assert answer.policy == "generic"
    assert rejected(answer) == []


@pytest.mark.parametrize("given", [Path("no such file"), b"", Path("nul\0byte"), Path()])
@pytest.mark.parametrize("where", ["data", "evidence", "profile_folded"])
def test_bad_input_never_raises(given: bytes | Path, where: str) -> None:
    arguments: dict[str, Any] = {"data": encoded(), where: given}
    answer = verify_receipt(**arguments, now=NOW)
    assert "E_INTERNAL" not in rejected(answer)
    # A profile without evidence is not read.
    assert answer.ok is (where == "profile_folded")


@pytest.mark.parametrize(
    ("odd", "code"), [(b"[" * 70 + b"]" * 70, "E_JSON_DEPTH"), (b"9" * 70, "E_JSON_NUMBER")]
)
def test_evidence_that_is_canonical_has_the_limits_of_any_other(odd: bytes, code: str) -> None:
    evidence = bundle().files["evidence.json"].replace(b'"2+2="', odd)
    answer = verify_receipt(bundle().files["receipt.json"], evidence=evidence)
    assert (rejected(answer), answer.grade) == ([code], Grade.CONSISTENT)


def test_a_verifier_that_fails_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "read_sources", lambda *_: 1 / 0)
    answer = verify_receipt(VALID[0])
    assert rejected(answer) == ["E_INTERNAL"]
    assert (answer.ok, answer.grade) == (False, Grade.SELF_REPORTED)

"""Tests of pytest-benchmark are gated: each is a workload of its own.

The effects are far larger than any noise, so that no test depends on a quiet machine.
"""

import json

import pytest

from tests.doors.benchmarked import BRIEF, KERNEL, NAME, PLAIN, UNPROFILED, repository
from tests.doors.project import JUDGED, Project

pytestmark = pytest.mark.measures


@pytest.fixture
def kernels(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTEST_ADDOPTS", PLAIN)
    return repository(project)


def test_the_slower_commit_fails_by_the_tests_name(kernels: Project) -> None:
    kernels.write("kernel.py", KERNEL.format(rounds=5000))
    kernels.commit()
    # It ends at the first answer, which a busy machine gives late.
    options = ("--flamegate-against=HEAD~1", "--flamegate-budget=90")
    result = kernels.run(*UNPROFILED, *BRIEF, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_kernels.py::test_kernel[[]3[]] - regressed:*slower*"])
    verdict = kernels.verdict(NAME)
    assert (verdict["verdict"], verdict["method"]) == ("regressed", "pairs")
    (rate,) = (each for each in verdict["signals"] if each["name"] == "tokens_per_second")
    assert (rate["unit"], rate["threshold_pct"]) == ("rounds/s", 10.0)
    base, head = kernels.document(NAME, "base-evidence.json"), kernels.document(NAME)
    assert base["workload"]["calls"] == head["workload"]["calls"]
    assert head["token_source"] == "called:round"
    metrics = {each["name"]: each for each in head["metrics"]}
    calls = metrics["kernel_calls_per_second"]
    assert calls["provenance"] == "derived"
    assert metrics["kernel_elements_per_second"]["value"] == pytest.approx(300 * calls["value"])
    assert metrics["kernel_bytes_per_second"]["value"] == pytest.approx(800 * calls["value"])
    assert "kernel_gflops" not in metrics
    assert kernels.has_one_worktree()


def test_a_baseline_is_stored_and_compared_with(kernels: Project) -> None:
    options = (*UNPROFILED, *BRIEF, "--flamegate-budget=1")
    result = kernels.run(*options, "--flamegate-update", "--benchmark-json=told.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*calls/s*elements/s*B/s*", "*benchmark: 1 tests*"])
    (told,) = json.loads((kernels.path / "told.json").read_text())["benchmarks"]
    assert told["fullname"] == "test_kernels.py::test_kernel[3]"
    assert told["stats"]["rounds"] >= 2
    first = kernels.document(NAME)
    kernels.run(*options, "--benchmark-disable")
    assert kernels.verdict(NAME)["verdict"] in JUDGED
    again = kernels.document(NAME)
    assert again["workload"] == first["workload"]
    assert again["nonce"] != first["nonce"]

"""Tests of pytest-benchmark, gated: each a workload of its own, at two revisions for real.

The effects are far larger than any noise, so that no test depends on a quiet machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.doors.project import JUDGED, refused
from tests.workload.repositories import git

if TYPE_CHECKING:
    from tests.doors.project import Project

KERNEL = "from toy import hash_round\n\n\ndef kernel(x):\n    return hash_round(x, {rounds})\n"
MARK = 'throughput="10%", elements=lambda start: 100 * start, bytes=800'
TEST = """\
import pytest

from kernel import kernel


@pytest.mark.flamegate({mark})
@pytest.mark.parametrize("start", [3])
def test_kernel(benchmark, start):
    assert benchmark(kernel, start) > 0
"""
NAME = "test_kernels.test_kernel-3"
UNPROFILED = ("--flamegate", "--flamegate-profiler=none", "-p", "no:cacheprovider")
BRIEF = ("--benchmark-max-time=0.05", "--benchmark-min-rounds=2")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")


@pytest.fixture
def kernels(project: Project) -> Project:
    """A repository with one benchmark, committed."""
    git(project.path, "init", "-q", "-b", "main")
    project.write("conftest.py", "")
    project.write("kernel.py", KERNEL.format(rounds=1000))
    project.write("test_kernels.py", TEST.format(mark=MARK))
    project.write(".gitignore", "stdout\nstderr\nrunpytest-*\n__pycache__\n.flamegate\n*.json\n")
    git(project.path, "add", "-A")
    git(project.path, "commit", "-q", "-m", "a kernel")
    return project


def test_the_slower_commit_fails_by_the_tests_name(kernels: Project) -> None:
    kernels.write("kernel.py", KERNEL.format(rounds=5000))
    git(kernels.path, "commit", "-qam", "much slower")
    # It ends at the first answer, which a busy machine gives late.
    options = ("--flamegate-against=HEAD~1", "--flamegate-budget=90")
    result = kernels.run(*UNPROFILED, *BRIEF, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_kernels.py::test_kernel[[]3[]] - regressed:*slower*"])
    verdict = kernels.verdict(NAME)
    assert (verdict["verdict"], verdict["method"]) == ("regressed", "pairs")
    (rate,) = (each for each in verdict["signals"] if each["name"] == "tokens_per_second")
    assert rate["unit"] == "rounds/s"
    assert rate["threshold_pct"] == 10.0
    latest = kernels.artifacts / "latest" / NAME
    base, head = (
        json.loads((latest / name).read_text()) for name in ("base-evidence.json", "evidence.json")
    )
    assert base["workload"]["calls"] == head["workload"]["calls"]
    assert head["token_source"] == "called:round"
    metrics = {each["name"]: each for each in head["metrics"]}
    calls = metrics["kernel_calls_per_second"]
    assert calls["provenance"] == "derived"
    assert metrics["kernel_elements_per_second"]["value"] == pytest.approx(300 * calls["value"])
    assert metrics["kernel_bytes_per_second"]["value"] == pytest.approx(800 * calls["value"])
    assert "kernel_gflops" not in metrics
    assert len(git(kernels.path, "worktree", "list").splitlines()) == 1


def test_the_same_code_is_not_regressed_and_a_new_test_has_no_base(kernels: Project) -> None:
    more = (
        TEST.format(mark='throughput="60%"')
        + "\n\n"
        + ("@pytest.mark.flamegate\ndef test_new(benchmark):\n    benchmark(kernel, 1)\n")
    )
    git(kernels.path, "commit", "-q", "--allow-empty", "-m", "nothing")
    kernels.write("test_kernels.py", more)
    options = ("--flamegate-against=HEAD", "--flamegate-budget=3", "--benchmark-disable")
    result = kernels.run(*UNPROFILED, *options)
    result.assert_outcomes(passed=2)
    assert kernels.verdict(NAME)["verdict"] in ("pass", "inconclusive", "improved")
    absent = kernels.verdict("test_kernels.test_new")
    assert absent["verdict"] == "no_baseline"
    assert absent["reasons"][0]["code"] == "E_NOT_AT_REVISION"


def test_a_baseline_is_stored_and_compared_with(kernels: Project) -> None:
    options = (*UNPROFILED, *BRIEF, "--flamegate-budget=1")
    result = kernels.run(*options, "--flamegate-update", "--benchmark-json=told.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*calls/s*elements/s*B/s*", "*benchmark: 1 tests*"])
    (told,) = json.loads((kernels.path / "told.json").read_text())["benchmarks"]
    assert told["fullname"] == "test_kernels.py::test_kernel[3]"
    assert told["stats"]["rounds"] >= 2
    calls = json.loads((kernels.artifacts / "latest" / NAME / "evidence.json").read_text())
    kernels.run(*options, "--benchmark-disable")
    assert kernels.verdict(NAME)["verdict"] in JUDGED
    again = json.loads((kernels.artifacts / "latest" / NAME / "evidence.json").read_text())
    assert again["workload"] == calls["workload"]
    assert again["nonce"] != calls["nonce"]


def test_without_flamegate_it_is_a_benchmark_as_ever(kernels: Project) -> None:
    kernels.run(*BRIEF).assert_outcomes(passed=1)
    assert not kernels.artifacts.exists()
    kernels.run("--benchmark-skip", "--flamegate").assert_outcomes(skipped=1)
    assert not (kernels.artifacts / "latest").exists()


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('tokens_per_second="5%"', "a benchmark generates no tokens"),
        ("speed=1", "no argument 'speed'"),
        ('workload="1tok", elements=1', "elements is said of a benchmark"),
    ],
)
def test_a_marker_that_means_nothing_is_refused(kernels: Project, mark: str, words: str) -> None:
    kernels.write("test_kernels.py", TEST.format(mark=mark))
    refused(kernels.run(*UNPROFILED), "E_MARKER", words)


@pytest.mark.parametrize(
    ("mark", "code"),
    [
        ('throughput="5pp"', "E_BAD_THRESHOLD"),
        ("elements=0", "E_BAD_WORK*elements is 0."),
        ("elements=1.5", "E_BAD_WORK*elements is 1.5."),
        ("flops=lambda nobody: 1", "E_BAD_WORK*flops is not known: KeyError: 'nobody'."),
    ],
)
def test_what_a_marker_says_wrongly_fails_the_test(kernels: Project, mark: str, code: str) -> None:
    kernels.write("test_kernels.py", TEST.format(mark=mark))
    result = kernels.run(*UNPROFILED, "--benchmark-disable")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{code}*"])
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


def test_a_failed_test_and_one_that_benchmarks_twice_are_not_gated(kernels: Project) -> None:
    twice = "@pytest.mark.flamegate\ndef test_it(benchmark):\n    benchmark(len, [])\n"
    kernels.write("test_kernels.py", f"import pytest\n\n\n{twice}    benchmark(len, [])\n")
    result = kernels.run(*UNPROFILED, *BRIEF)
    result.assert_outcomes(failed=1)
    assert not (kernels.artifacts / "latest").exists()

"""Tests of pytest-benchmark are gated: each is a workload of its own.

The measured effects are far larger than any noise, so that no test depends on a quiet machine.
"""

import json

import pytest

from pytest_flamegate.core.errors import ToolError
from tests.doors.project import BARE, IGNORED, JUDGED, Project
from tests.run.fakes import World

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


@pytest.fixture
def kernels(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository with one benchmark, committed."""
    monkeypatch.setenv("PYTEST_ADDOPTS", BARE.replace("-p no:benchmark", ""))
    project.write("conftest.py", "")
    project.write("kernel.py", KERNEL.format(rounds=1000))
    project.write("test_kernels.py", TEST.format(mark=MARK))
    project.write(".gitignore", f"{IGNORED}*.json\n")
    project.commit()
    return project


@pytest.mark.measures
@pytest.mark.usefixtures("brief")
def test_the_slower_commit_fails_by_the_tests_name(kernels: Project) -> None:
    kernels.write("kernel.py", KERNEL.format(rounds=5000))
    kernels.commit()
    # It ends at the first answer, which a busy machine gives late.
    options = ("--flamegate-against=HEAD~1", "--flamegate-budget=90")
    result = kernels.ask(*UNPROFILED, *BRIEF, *options)
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


@pytest.mark.measures
@pytest.mark.usefixtures("brief")
def test_a_baseline_is_stored_and_compared_with(kernels: Project) -> None:
    options = (*UNPROFILED, *BRIEF, "--flamegate-budget=1")
    result = kernels.ask(*options, "--flamegate-update", "--benchmark-json=told.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*calls/s*elements/s*B/s*", "*benchmark: 1 tests*"])
    (told,) = json.loads((kernels.path / "told.json").read_text())["benchmarks"]
    assert told["fullname"] == "test_kernels.py::test_kernel[3]"
    assert told["stats"]["rounds"] >= 2
    first = kernels.document(NAME)
    kernels.ask(*options, "--benchmark-disable")
    assert kernels.verdict(NAME)["verdict"] in JUDGED
    again = kernels.document(NAME)
    assert again["workload"] == first["workload"]
    assert again["nonce"] != first["nonce"]


# Nothing is measured


@pytest.mark.usefixtures("world")
def test_without_flamegate_it_is_a_benchmark_as_ever(kernels: Project) -> None:
    kernels.ask(*BRIEF).assert_outcomes(passed=1)
    assert not kernels.artifacts.exists()
    kernels.ask("--benchmark-skip", "--flamegate").assert_outcomes(skipped=1)
    assert not (kernels.artifacts / "latest").exists()


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("mark", "code", "words"),
    [
        ('tokens_per_second="5%"', 4, "E_MARKER*a benchmark generates no tokens"),
        ('workload="1tok", elements=1', 4, "E_MARKER*elements belongs to a benchmark"),
        ('throughput="5pp"', 1, "E_BAD_THRESHOLD"),
        ("elements=0", 1, "E_MARKER*elements is 0."),
        ("elements=1.5", 1, "E_MARKER*elements is 1.5."),
        ("flops=lambda nobody: 1", 1, "E_MARKER*flops is not known: KeyError: 'nobody'."),
    ],
)
def test_an_error_in_a_marker_is_named(kernels: Project, mark: str, code: int, words: str) -> None:
    kernels.write("test_kernels.py", TEST.format(mark=mark))
    result = kernels.ask(*UNPROFILED, "--benchmark-disable")
    assert result.ret == code
    output = result.stderr if code == pytest.ExitCode.USAGE_ERROR else result.stdout
    output.fnmatch_lines([f"*{words}*"])
    for unwanted in ("*Traceback*", "*During handling*"):
        output.no_fnmatch_line(unwanted)


def test_a_new_benchmark_has_no_base(
    kernels: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fail(ToolError("E_TARGET_NOT_FOUND", "It has no test_new.", ""), times=1)
    kernels.write(
        "test_kernels.py", TEST.format(mark='throughput="60%"').replace("_kernel(", "_new(")
    )
    options = ("--flamegate-against=HEAD", "--benchmark-disable")
    monkeypatch.setenv("CI", "true")
    result = kernels.ask("--flamegate", *options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*no baseline: NOTHING WAS COMPARED: the workload is new.*"])
    name = "test_kernels.test_new-3"
    assert kernels.verdict(name)["verdict"] == "no_baseline"
    assert "I_NEW_WORKLOAD" in kernels.reasons(name)


@pytest.mark.usefixtures("world")
def test_a_failed_test_and_one_that_benchmarks_twice_are_not_gated(kernels: Project) -> None:
    twice = "@pytest.mark.flamegate\ndef test_it(benchmark):\n    benchmark(len, [])\n"
    kernels.write("test_kernels.py", f"import pytest\n\n\n{twice}    benchmark(len, [])\n")
    kernels.ask(*UNPROFILED, *BRIEF).assert_outcomes(failed=1)
    assert not (kernels.artifacts / "latest").exists()

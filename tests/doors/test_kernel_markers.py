"""Markers on benchmarks, and benchmarks without the gate; nothing is measured."""

import pytest

from pytest_flamegate.core.errors import ToolError
from tests.doors.benchmarked import BRIEF, PLAIN, TEST, UNPROFILED, repository
from tests.doors.project import Project
from tests.run.fakes import World


@pytest.fixture
def kernels(project: Project, world: World, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTEST_ADDOPTS", PLAIN)
    return repository(project)


def test_without_flamegate_it_is_a_benchmark_as_ever(kernels: Project) -> None:
    kernels.ask(*BRIEF).assert_outcomes(passed=1)
    assert not kernels.artifacts.exists()
    kernels.ask("--benchmark-skip", "--flamegate").assert_outcomes(skipped=1)
    assert not (kernels.artifacts / "latest").exists()


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('tokens_per_second="5%"', "E_MARKER*a benchmark generates no tokens"),
        ("speed=1", "E_MARKER*no argument 'speed'"),
        ('workload="1tok", elements=1', "E_MARKER*elements belongs to a benchmark"),
        ('throughput="5pp"', "E_BAD_THRESHOLD"),
        ("elements=0", "E_BAD_WORK*elements is 0."),
        ("elements=1.5", "E_BAD_WORK*elements is 1.5."),
        ("flops=lambda nobody: 1", "E_BAD_WORK*flops is not known: KeyError: 'nobody'."),
    ],
)
def test_an_error_in_a_marker_is_named(kernels: Project, mark: str, words: str) -> None:
    kernels.write("test_kernels.py", TEST.format(mark=mark))
    result = kernels.ask(*UNPROFILED, "--benchmark-disable")
    is_usage_error = words.startswith("E_MARKER")
    assert result.ret == (pytest.ExitCode.USAGE_ERROR if is_usage_error else 1)
    output = result.stderr if is_usage_error else result.stdout
    output.fnmatch_lines([f"*{words}*"])
    for unwanted in ("*Traceback*", "*During handling*"):
        output.no_fnmatch_line(unwanted)


def test_a_new_benchmark_has_no_base(
    kernels: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fail(ToolError("E_BENCHMARK_NOT_FOUND", "It has no test_new.", ""), times=1)
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


def test_a_failed_test_and_one_that_benchmarks_twice_are_not_gated(kernels: Project) -> None:
    twice = "@pytest.mark.flamegate\ndef test_it(benchmark):\n    benchmark(len, [])\n"
    kernels.write("test_kernels.py", f"import pytest\n\n\n{twice}    benchmark(len, [])\n")
    kernels.ask(*UNPROFILED, *BRIEF).assert_outcomes(failed=1)
    assert not (kernels.artifacts / "latest").exists()

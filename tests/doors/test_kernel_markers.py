"""Markers on benchmarks, and benchmarks without the gate; nothing is measured."""

import pytest

from pytest_flamegate.core.errors import ToolError
from tests.doors.benchmarked import BRIEF, PLAIN, TEST, UNPROFILED, repository
from tests.doors.project import Project, refused
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
        ('tokens_per_second="5%"', "a benchmark generates no tokens"),
        ("speed=1", "no argument 'speed'"),
        ('workload="1tok", elements=1', "elements belongs to a benchmark"),
    ],
)
def test_a_marker_that_means_nothing_is_refused(kernels: Project, mark: str, words: str) -> None:
    kernels.write("test_kernels.py", TEST.format(mark=mark))
    refused(kernels.ask(*UNPROFILED), "E_MARKER", words)


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
    result = kernels.ask(*UNPROFILED, "--benchmark-disable")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{code}*"])
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


def test_a_new_benchmark_has_no_base(kernels: Project, world: World) -> None:
    def fail(role: str) -> None:
        raise ToolError("E_BENCHMARK_NOT_FOUND", "It has no test_new.", "")

    world.on_process = fail
    kernels.write(
        "test_kernels.py", TEST.format(mark='throughput="60%"').replace("_kernel(", "_new(")
    )
    options = ("--flamegate-against=HEAD", "--benchmark-disable")
    kernels.ask("--flamegate", *options).assert_outcomes(passed=1)
    verdict = kernels.verdict("test_kernels.test_new-3")
    assert verdict["verdict"] == "no_baseline"
    assert verdict["reasons"][0]["code"] == "E_NOT_AT_REVISION"


def test_a_failed_test_and_one_that_benchmarks_twice_are_not_gated(kernels: Project) -> None:
    twice = "@pytest.mark.flamegate\ndef test_it(benchmark):\n    benchmark(len, [])\n"
    kernels.write("test_kernels.py", f"import pytest\n\n\n{twice}    benchmark(len, [])\n")
    result = kernels.ask(*UNPROFILED, *BRIEF)
    result.assert_outcomes(failed=1)
    assert not (kernels.artifacts / "latest").exists()

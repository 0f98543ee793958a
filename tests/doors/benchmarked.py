"""A repository with one benchmark in it, for the tests that gate it."""

from tests.doors.project import IGNORED, Project

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
PLAIN = "-p no:hypothesispytest"
"""Options that spare each process a second."""


def repository(project: Project) -> Project:
    """Make ``project`` a repository with one benchmark, committed."""
    project.write("conftest.py", "")
    project.write("kernel.py", KERNEL.format(rounds=1000))
    project.write("test_kernels.py", TEST.format(mark=MARK))
    project.write(".gitignore", f"{IGNORED}*.json\n")
    project.commit()
    return project

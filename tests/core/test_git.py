"""The commit that a directory is at, and the files that count as uncommitted."""

from pathlib import Path

import pytest

from pytest_flamegate.core.git import Commit, read_commit
from tests.workload.repositories import git, repository, write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repository(tmp_path, {"engine.py": "x = 1\n", "Cargo.lock": "# locked\n"})


def commit_at(directory: Path) -> Commit:
    commit = read_commit(directory)
    assert commit is not None
    return commit


def test_changed_and_new_source_files_are_uncommitted(project: Path) -> None:
    commit = commit_at(project)
    assert (commit.branch, commit.uncommitted, len(commit.revision)) == ("main", 0, 40)
    write(
        project, {"engine.py": "x = 2\n", "new.py": "", "kernels/gemv.c": "", "kernels/gemv.o": ""}
    )
    assert commit_at(project).uncommitted == 3
    # A committed file counts whatever its name.
    write(project, {"Cargo.lock": "# other versions\n"})
    assert commit_at(project).uncommitted == 4
    assert commit_at(project / "kernels").tree == commit_at(project).tree


@pytest.mark.parametrize(
    "name",
    [
        ".coverage",
        ".coverage.host.123",
        "htmlcov/index.html",
        "junit.xml",
        "reports/test-results-3.xml",
        "reports/report.html",
        "target/release/engine",
        "kernel.o",
        "__pycache__/engine.cpython-312.pyc",
        ".pytest_cache/README.md",
        "build/lib/engine.py",
        ".flamegate/latest/1tok/receipt.json",
    ],
)
def test_products_of_builds_and_test_tools_do_not_count(project: Path, name: str) -> None:
    write(project, {name: "made by a tool"})
    assert commit_at(project).uncommitted == 0


def test_commits_that_differ_in_baselines_alone_are_the_same_code(project: Path) -> None:
    before = commit_at(project)
    write(project, {".flamegate/baselines/m/1tok/receipt.json": "{}"})
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "accept")
    after = commit_at(project)
    assert after.revision != before.revision
    assert after.same_code(before)
    (project / "engine.py").write_text("x = 3\n")
    assert not commit_at(project).same_code(before)

"""The commit that a directory is at, and the files that count as uncommitted."""

import subprocess
from pathlib import Path

import pytest

from pytest_flamegate.core.git import Commit, read_commit


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with one commit that holds ``engine.py`` and ``Cargo.lock``."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "engine.py").write_text("x = 1\n")
    (tmp_path / "Cargo.lock").write_text("# locked\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True)


def commit_at(directory: Path) -> Commit:
    commit = read_commit(directory)
    assert commit is not None
    return commit


def test_a_clean_checkout_has_no_uncommitted_files(project: Path) -> None:
    commit = commit_at(project)
    assert commit.branch == "main"
    assert commit.uncommitted == 0
    assert len(commit.revision) == 40


def test_changed_and_new_source_files_are_uncommitted(project: Path) -> None:
    (project / "engine.py").write_text("x = 2\n")
    (project / "new.py").write_text("")
    assert commit_at(project).uncommitted == 2
    assert commit_at(project / ".").tree == commit_at(project).tree


def test_without_git_there_is_no_commit(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_commit(project) is None


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
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("made by a tool")
    assert commit_at(project).uncommitted == 0


def test_a_committed_file_that_changed_counts_whatever_its_name(project: Path) -> None:
    (project / "Cargo.lock").write_text("# other versions\n")
    assert commit_at(project).uncommitted == 1


def test_a_directory_of_new_sources_next_to_products_counts(project: Path) -> None:
    (project / "kernels").mkdir()
    (project / "kernels/gemv.c").write_text("")
    (project / "kernels/gemv.o").write_text("")
    assert commit_at(project).uncommitted == 1


def test_commits_that_differ_in_baselines_alone_are_the_same_code(project: Path) -> None:
    before = commit_at(project)
    accepted = project / ".flamegate/baselines/m/1tok/receipt.json"
    accepted.parent.mkdir(parents=True)
    accepted.write_text("{}")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "accept")
    after = commit_at(project)
    assert after.revision != before.revision
    assert after.same_code(before)
    (project / "engine.py").write_text("x = 3\n")
    assert not commit_at(project).same_code(before)

"""The commit that a directory is at, and the files that count as uncommitted."""

import os
from pathlib import Path

import pytest

from pytest_flamegate.core import git as core_git
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.git import (
    Commit,
    Hunk,
    code_digest,
    digest_file,
    digest_files,
    find_top,
    read_changes,
    read_commit,
)
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
        "src/engine.egg-info/PKG-INFO",
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


@pytest.mark.parametrize("name", ["my.flamegate/engine.py", "ü/my.flamegate/engine.py"])
def test_a_directory_with_a_name_that_ends_like_ours_is_code(project: Path, name: str) -> None:
    before = commit_at(project)
    write(project, {name: "x = 1"})
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "more")
    assert not commit_at(project).same_code(before)


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_a_file_that_git_status_skips_is_uncommitted(project: Path, flag: str) -> None:
    git(project, "update-index", f"--{flag}", "engine.py")
    write(project, {"engine.py": "x = 2\n"})
    assert commit_at(project).uncommitted == 1
    (project / "engine.py").unlink()
    # A sparse checkout leaves files out; a deleted file has changed.
    assert commit_at(project).uncommitted == (flag == "assume-unchanged")
    git(project, "update-index", f"--no-{flag}", "engine.py")
    git(project, "checkout", "-q", "engine.py")
    assert commit_at(project).uncommitted == 0


def test_a_changed_submodule_is_uncommitted_whatever_git_is_to_ignore(tmp_path: Path) -> None:
    kernels = repository(tmp_path / "kernels", {"gemv.c": "1\n"})
    project = repository(tmp_path / "project", {"engine.py": "x = 1\n"})
    git(project, "submodule", "add", "-q", str(kernels), "kernels")
    git(project, "config", "-f", ".gitmodules", "submodule.kernels.ignore", "all")
    git(project, "add", ".")
    git(project, "commit", "-qm", "kernels")
    assert commit_at(project).uncommitted == 0
    write(project, {"kernels/gemv.so": "a product\n"})
    assert commit_at(project).uncommitted == 0
    write(project, {"kernels/gemv.c": "2\n"})
    assert commit_at(project).uncommitted == 1


@pytest.mark.parametrize("kind", ["GLOB", "ICASE", "LITERAL", "NOGLOB"])
def test_how_git_reads_paths_is_not_for_the_environment_to_say(
    project: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern of our artifacts would be the name of a file, or match other names as well."""
    write(project, {"engine.py": "x = 2\n", ".flamegate/latest/1tok/receipt.json": "{}"})
    write(project, {".Flamegate/engine.py": "x = 1\n"})
    monkeypatch.setenv(f"GIT_{kind}_PATHSPECS", "1")
    assert commit_at(project).uncommitted == 2


def test_digests_of_files_do_not_depend_on_the_index(project: Path) -> None:
    write(project, {".flamegate/waivers/a.toml": "", "sub/link": ""})
    (project / "sub/link").unlink()
    (project / "sub/link").symlink_to("elsewhere")
    git(project, "add", "-f", ".")
    files = digest_files(project / "sub")
    assert {str(path.relative_to(project)) for path in files} == {
        *("engine.py", "Cargo.lock", "sub/link")
    }
    git(project, "update-index", "--assume-unchanged", "engine.py")
    write(project, {"engine.py": "x = 2\n"})
    (project / "Cargo.lock").chmod(0o755)
    (project / "sub/link").unlink()
    assert all(digest_file(path) != digest for path, digest in files.items())


def test_the_top_of_a_tree_may_have_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    top = repository(tmp_path / os.fsdecode(b"w\xf6rds"), {"sub/engine.py": "x = 1\n"})
    assert find_top(top / "sub") == top
    assert {*digest_files(top / "sub")} == {top / "sub/engine.py"}
    assert find_top(tmp_path) is None


def test_files_that_git_cannot_list_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="E_GIT"):
        digest_files(tmp_path)


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_digest_of_code_does_not_depend_on_how_git_quotes_names(
    project: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"wörds.py": "x = 1\n", "ü/.flamegate/receipt.json": "{}"})
    git(project, "add", "-f", ".")
    git(project, "commit", "-qm", "more")
    monkeypatch.setattr(core_git, "_CODE_DIGESTS", {})
    expected = code_digest(project, "HEAD")
    core_git._CODE_DIGESTS.clear()
    git(project, "config", "core.quotePath", value)
    assert code_digest(project, "HEAD") == expected


USER_SETTINGS = {
    "color.diff": "always",
    "core.quotePath": "true",
    "diff.external": "true",
    "diff.interHunkContext": "9",
    "diff.mnemonicPrefix": "true",
    "diff.noprefix": "true",
    "diff.renames": "false",
    "diff.twice.textconv": "sed p",
}


def test_changes_of_files_are_read_from_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved, removed and untracked files, and lines whose text looks like a header.

    No setting, attribute or variable of the user changes what is read.
    """
    monkeypatch.setenv("GIT_DIFF_OPTS", "--unified=3")
    lines = [f"line {number}" for number in range(1, 31)]
    write(project, {"a.c": "\n".join(lines), "gone.c": "1\n", "old name.c": "\n".join(lines)})
    write(project, {"two wörds.c": "1\n2\n", ".git/info/attributes": "*.c diff=twice\n"})
    quoted = 'a "\\\t\n\x07ä".c'
    write(project, {quoted: "1\n", f"{quoted}1": "2\n"})
    git(project, "add", "-A")
    git(project, "commit", "-qm", "base")
    lines[4:6] = ["-- a/x", "++ b/x", "@@ -1 +1 @@"]
    del lines[20]
    write(project, {"a.c": "\n".join(lines), "new.c": "", "sub/deep.c": "1\n"})
    write(project, {"two wörds.c": "1\n2\n3\n"})
    for key, value in USER_SETTINGS.items():
        git(project, "config", key, value)
    write(project, {".git/info/attributes": "*.c -diff\n"})
    git(project, "mv", "old name.c", "name.c")
    git(project, "mv", f"{quoted}1", f"{quoted}2")
    write(project, {quoted: "3\n"})
    (project / "gone.c").unlink()
    changes = read_changes(project, "HEAD")
    assert changes is not None
    found = {(each.base_file, each.head_file): each.hunks for each in changes}
    assert found == {
        ("a.c", "a.c"): (Hunk(5, 2, 5, 3), Hunk(20, 1, 20, 0)),
        ("gone.c", ""): (Hunk(1, 1, 0, 0),),
        ("two wörds.c", "two wörds.c"): (Hunk(2, 0, 3, 1),),
        ("old name.c", "name.c"): (),
        (quoted, quoted): (Hunk(1, 1, 1, 1),),
        (f"{quoted}1", f"{quoted}2"): (),
        ("", "new.c"): (Hunk(0, 0, 1, 999_999_999),),
        ("", "sub/deep.c"): (Hunk(0, 0, 1, 999_999_999),),
    }
    by_base = {each.base_file: each for each in changes}
    assert (by_base["a.c"].base_lines, by_base["a.c"].head_lines) == (
        {5: "line 5", 6: "line 6", 20: "line 20"},
        tuple(lines),
    )
    assert by_base["gone.c"].base_lines == {1: "1"}
    assert read_changes(project, "HEAD", "HEAD") == ()
    below = read_changes(project / "sub", "HEAD")
    assert [each.head_file for each in below or ()] == ["deep.c"]
    assert read_changes(project, "no-such-revision") is None
    # Between two commits the working tree counts for nothing.
    assert read_changes(project, "HEAD~1", "HEAD") != ()
    assert read_changes(project, "HEAD", "HEAD") == ()
    assert read_changes(project, "HEAD", "no-such-revision") is None

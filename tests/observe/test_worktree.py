"""A revision is checked out next to the project, which stays as it is, and nothing is left."""

import errno
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.core import git as core_git
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.git import read_commit
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe import scratch, worktree
from pytest_flamegate.observe.worktree import open_checkout, open_checkouts
from tests.workload.repositories import git, repository, write


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of each test's own, which must be empty at the end."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert [path.name for path in place.iterdir() if path.name.startswith("flamegate-")] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repository(tmp_path / "proj ü", {"a.txt": "one", "deep/b.txt": "b"}, {"a.txt": "two"})


def open_error(directory: Path, rev: str) -> FlamegateError:
    with pytest.raises(FlamegateError) as caught:
        open_checkout(directory, rev)
    return caught.value


def state(project: Path) -> tuple[str, ...]:
    commands = ("worktree list", "status --porcelain", "stash list", "branch -a", "rev-parse HEAD")
    index = (project / ".git/index").read_bytes().hex()
    return (*(git(project, *command.split()) for command in commands), index)


def test_the_project_stays_as_it_is(project: Path) -> None:
    write(project, {"a.txt": "uncommitted", "new.txt": "untracked"})
    git(project, "add", "new.txt")
    before = state(project)
    with closing(open_checkout(project, "HEAD~1")) as checkout:
        assert checkout.project == project
        assert checkout.commit == git(project, "rev-parse", "HEAD~1")
        assert (checkout.root / "a.txt").read_text() == "one"
        assert not (checkout.root / "new.txt").exists()
        assert (project / "a.txt").read_text() == "uncommitted"
        assert git(checkout.root, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
        assert checkout.notes == ()
    assert state(project) == before
    assert not (project / ".git/worktrees").exists()
    checkout.close()


def test_paths_move_into_the_worktree(project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"models/big.gguf": "m"})
    (project / "big.gguf").symlink_to(tmp_path / "models/big.gguf")
    (tmp_path / "link").symlink_to(project)
    with closing(open_checkout(project / "deep", "HEAD")) as checkout:
        root = checkout.root
        for path, moved in (
            (project, root),
            (project / "deep/../a.txt", root / "a.txt"),
            (project / "not/there", root / "not/there"),
            (project / "big.gguf", root / "big.gguf"),
            (tmp_path / "link/deep/b.txt", root / "deep/b.txt"),
            (tmp_path / "proj üx", tmp_path / "proj üx"),
        ):
            assert checkout.move_path(path) == moved
    with closing(open_checkout(tmp_path / "link", "HEAD")) as checkout:
        assert checkout.project == project


def test_a_commit_has_many_names(project: Path) -> None:
    first = git(project, "rev-parse", "HEAD~1")
    git(project, "branch", "feature/x", first)
    git(project, "tag", "-a", "v1", "-m", "annotated", first)
    for rev in ("feature/x", "v1", "HEAD~1", first, first[:8], ":/commit 0"):
        with closing(open_checkout(project, rev)) as checkout:
            assert checkout.commit == first, rev
    with closing(open_checkout(project, "main")) as checkout:  # also checked out in the project
        assert (checkout.root / "a.txt").read_text() == "two"
    git(project, "branch", "twice", "HEAD~1")
    git(project, "tag", "twice")
    with closing(open_checkout(project, "twice")) as checkout:
        assert "ambiguous" in checkout.notes[0]


def test_a_base_that_was_replaced_or_has_other_parents_is_what_it_was(project: Path) -> None:
    """A build of this clone may have done so, for the check of a later change."""
    write(project, {"a.txt": "three"})
    git(project, "commit", "-qam", "commit 2")
    first, second, head = (git(project, "rev-parse", f"HEAD~{back}") for back in (2, 1, 0))
    git(project, "replace", "-f", second, head)
    (project / ".git/info").mkdir(exist_ok=True)
    (project / ".git/info/grafts").write_text(f"{head} {first}\n")
    with closing(open_checkout(project, "HEAD~1")) as checkout:
        assert checkout.commit == second
        assert (checkout.root / "a.txt").read_text() == "two"


def test_an_unknown_revision_is_an_error(project: Path) -> None:
    before = state(project)
    for rev in ("", "nothing", "-h", "--all", "f" * 40, "HEAD:a.txt", "HEAD~9", "a\0b", "^HEAD"):
        error = open_error(project, rev)
        assert (error.code, error.exit_code) == ("E_REV_UNKNOWN", 2)
        assert repr(rev) in error.problem
    assert state(project) == before


def test_a_clone_may_lack_a_branch_and_the_history(project: Path, tmp_path: Path) -> None:
    git(project, "branch", "release")
    git(tmp_path, "clone", "-q", "--depth=1", "--no-single-branch", project.as_uri(), "clone")
    clone = tmp_path / "clone"
    error = open_error(clone, "HEAD~1")
    assert error.code == "E_REV_SHALLOW"
    assert "git fetch --unshallow" in error.remedy
    assert "fetch-depth: 0" in error.remedy
    assert open_error(clone, "--all").code == "E_REV_UNKNOWN"
    git(clone, "fetch", "-q", "--unshallow")
    error = open_error(clone, "release")
    assert error.code == "E_REV_UNKNOWN"
    assert "origin/release" in error.remedy
    for rev, text in (("origin/release", "two"), ("HEAD~1", "one")):
        with closing(open_checkout(clone, rev)) as checkout:
            assert (checkout.root / "a.txt").read_text() == text


def test_without_a_usable_repository(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare")
    error = open_error(repository(tmp_path / "empty"), "HEAD")
    assert error.code == "E_REV_UNKNOWN"
    assert "none yet" in error.problem
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for variable, value, directory, word in (
        ("LANG", "C", tmp_path / "nowhere", ""),
        ("LANG", "C", tmp_path / "bare", ""),
        ("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1", project, "safe.directory"),
        ("PATH", "/nowhere", project, "git"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(variable, value)
            error = open_error(directory, "HEAD")
            assert error.code == "E_NO_REPOSITORY"
            assert word in error.problem
            assert directory != project or word != "git" or read_commit(project) is None


def test_a_project_and_a_temporary_directory_may_be_linked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    git(project, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "linked"), "HEAD~1")
    (tmp_path / "tmp").symlink_to(temporary)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = state(project)
    with closing(open_checkout(tmp_path / "linked", "HEAD")) as checkout:
        assert checkout.project == tmp_path / "linked"
        assert (checkout.root / "a.txt").read_text() == "one"
        assert checkout.root.is_relative_to(temporary)
    assert state(project) == before


def test_hooks_do_not_run_and_their_variables_are_ignored(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = project / ".git/hooks/post-checkout"
    write(hook.parent, {hook.name: f"#!/bin/sh\ntouch '{tmp_path}/ran'\n"})
    hook.chmod(0o755)
    other = repository(tmp_path / "other", {"c.txt": "c"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index.hook"))
    monkeypatch.setenv("GIT_PREFIX", "deep/")
    with closing(open_checkout(project, "HEAD")) as checkout:
        assert checkout.project == project
        assert (checkout.root / "a.txt").read_text() == "two"
    assert not (other / ".git/index.hook").exists()
    found = read_commit(project)
    assert found is not None
    assert found.revision == git(project, "rev-parse", "HEAD")
    kept = {"GIT_CONFIG_COUNT": "0", "GIT_SSH_COMMAND": "ssh -v", "HOME": "/h"}
    assert core_git.without_git_variables({**kept, "GIT_DIR": ".git"}) == kept
    assert not (tmp_path / "ran").exists()
    git(project, "checkout", "-q", "--detach")
    assert (tmp_path / "ran").exists(), "the hook would have run"


def test_submodules_are_noted(project: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"c.txt": "c"})
    git(project, "submodule", "--quiet", "add", str(other), "vendored")
    git(project, "commit", "-q", "-m", "a submodule")
    git(project, "config", "submodule.recurse", "true")
    with closing(open_checkout(project, "HEAD")) as checkout:
        assert "submodules" in checkout.notes[0]


def test_products_of_a_build_are_removed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rmtree = shutil.rmtree

    def as_a_user(path: Path, *, ignore_errors: bool) -> None:
        """Remove like a user who is not root: nothing below an unwritable directory."""
        below = (Path(directory) for directory, _, _ in os.walk(path))
        if all(each.stat().st_mode & stat.S_IRWXU == stat.S_IRWXU for each in below):
            rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr("shutil.rmtree", as_a_user)
    with closing(open_checkout(project, "HEAD")) as checkout:
        write(checkout.root, {"target/deep/object.o": "o"})
        built = checkout.root / "target/deep"
        (built / "object.o").chmod(0o400)
        (built / "away").symlink_to(project)
        built.chmod(0o500)
        built.parent.chmod(0o000)
    assert not checkout.root.parent.exists()
    assert (project / "a.txt").exists()


def test_a_worktree_that_is_already_gone(project: Path) -> None:
    before = state(project)
    with closing(open_checkout(project, "HEAD")) as checkout:
        shutil.rmtree(checkout.root.parent)
    assert state(project) == before
    with closing(open_checkout(project, "HEAD")) as checkout:
        git(project, "worktree", "remove", str(checkout.root))
    assert state(project) == before


def test_a_stuck_worktree_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = open_checkout(project, "HEAD")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(ToolError) as caught:
            checkout.close()
        assert caught.value.code == "E_WORKTREE"
    checkout.close()


def test_a_failed_worktree_quotes_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = git(project, "rev-parse", "HEAD:a.txt")
    (project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    before = git(project, "worktree", "list")
    error = open_error(project, "HEAD")
    assert error.code == "E_WORKTREE"
    assert blob in error.problem
    assert git(project, "worktree", "list") == before

    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkdtemp", full)
    error = open_error(project, "HEAD")
    assert error.code == "E_WORKTREE"
    assert "No space left" in error.problem
    late = CompletedCommand(-9, b"", b"", timed_out=True, elapsed_s=60.0)
    assert "60 s" in core_git.failure_text(late)


def test_an_interrupt_leaves_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(project)
    run = process.run

    def interrupted(argv: list[str], **given: object) -> CompletedCommand:
        result = run(argv, **given)  # type: ignore[arg-type]
        if "worktree" in argv:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(process, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_checkout(project, "HEAD")
    assert state(project) == before


class Backwards(random.Random):
    """Draws the last first."""

    def sample(self, population: Any, k: int, **_: Any) -> list[Any]:
        return [*population][::-1][:k]


@pytest.mark.parametrize("rng", [Backwards, random.SystemRandom])
def test_two_revisions_lie_side_by_side(
    project: Path, monkeypatch: pytest.MonkeyPatch, rng: type[random.Random]
) -> None:
    before = state(project)
    monkeypatch.setattr("pytest_flamegate.observe.worktree.random.SystemRandom", rng)
    one, two = open_checkouts(project, "HEAD~1", "HEAD")
    with closing(one):
        assert (one.root / "a.txt").read_text() == "one"
        assert (two.root / "a.txt").read_text() == "two"
        assert one.home == two.home == one.root.parents[1] == two.root.parents[1]
        assert one.root.name == two.root.name == project.name
        assert len(str(one.root)) == len(str(two.root))
        assert (one.others, two.others) == ((two.root,), (one.root,))
        # Neither the order in which they were made nor a name in .git belongs to a side.
        links = [(each.root / ".git").read_text().strip() for each in (one, two)]
        if rng is Backwards:
            assert links[0] == f"{links[1]}1"
    assert state(project) == before
    two.close()


def test_a_shared_file_does_not_move(project: Path) -> None:
    with closing(open_checkout(project, "HEAD")) as checkout:
        text = str(project / "a.txt")
        assert checkout.move_existing(text) == str(checkout.root / "a.txt")
        assert replace(checkout, shared=frozenset({text})).move_existing(text) == text


# Homes of killed runs

KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_flamegate.observe.worktree import open_checkout
print(open_checkout(Path(sys.argv[1]), "HEAD").root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(project: Path, temporary: Path) -> Path:
    """The worktree of a process that was killed."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(project)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    return Path(done.stdout.strip())


def test_a_killed_runs_worktree_is_removed(project: Path, temporary: Path, tmp_path: Path) -> None:
    before = state(project)
    left = killed(project, temporary)
    assert (left / "a.txt").exists()
    assert str(left) in git(project, "worktree", "list")
    # Its files may be gone, or lie in another temporary directory.
    shutil.rmtree(killed(project, temporary).parent)
    (tmp_path / "other-tmp").mkdir()
    elsewhere = killed(project, tmp_path / "other-tmp")
    with closing(open_checkout(project, "HEAD")):
        assert not left.parent.exists()
        assert not elsewhere.parent.exists()
    assert state(project) == before


def test_worktrees_of_others_stay(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "theirs"))
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "unmounted"))
    (tmp_path / "unmounted").rename(tmp_path / "away")
    opened = (closing(open_checkout(project, "HEAD")) for _ in range(2))
    with next(opened) as first, next(opened) as second:
        assert first.root.exists()
        assert second.root.exists()
        assert first.root != second.root
    listed = git(project, "worktree", "list")
    assert str(tmp_path / "theirs") in listed
    assert str(tmp_path / "unmounted") in listed


def test_homes_and_scratch_of_dead_processes_are_removed(temporary: Path, project: Path) -> None:
    """A reused process id is another owner."""
    mine = [Path(tempfile.mkdtemp(prefix=scratch.scratch_prefix())) for _ in range(2)]
    dead, others = [], [temporary / "flamegate-notes"]
    for path in mine:
        machine, pid, ticks, rest = path.name.removeprefix("flamegate-").split("-")
        dead.append(path.with_name(f"flamegate-{machine}-{pid}-{int(ticks) - 1}-{rest}"))
        others.append(path.with_name(f"flamegate-{'0' * 8}-{pid}-{int(ticks) - 1}-{rest}"))
        others.append(path.with_name(f"flamegate-{machine}-{pid}-0-{rest}"))
    for remove in (
        lambda: worktree.remove_abandoned_homes(project / ".git"),
        scratch.sweep_scratch,
    ):
        for directory in (*dead, *others):
            write(directory, {"perf.data": "samples"})
        assert not remove()
        assert all(path.exists() for path in (*mine, *others))
        assert not any(path.exists() for path in dead)
    for directory in (*mine, *others):
        shutil.rmtree(directory)


def test_a_checkout_that_is_only_read_fetches_no_large_file(project: Path) -> None:
    write(project, {".gitattributes": "*.gguf filter=lfs\n", "m.gguf": "version https://lfs\n"})
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "model")
    for name, value in (("smudge", "false"), ("process", ""), ("required", "true")):
        git(project, "config", f"filter.lfs.{name}", value)
    with pytest.raises(ToolError, match="E_WORKTREE"):
        open_checkout(project, "HEAD")
    with closing(open_checkout(project, "HEAD", lfs=False)) as checkout:
        assert (checkout.root / "m.gguf").read_text() == "version https://lfs\n"

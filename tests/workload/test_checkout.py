from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_flamegate.core import git as core_git
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.core.git import read_commit
from pytest_flamegate.core.process import CompletedCommand
from pytest_flamegate.observe import worktree
from pytest_flamegate.observe.worktree import open_checkout
from tests.workload.repositories import git, repository, write

pytestmark = pytest.mark.measures


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test a temporary directory of its own, and see that nothing stays in it."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert [path.name for path in place.iterdir() if path.name.startswith("flamegate-")] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repository(tmp_path / "proj ü", {"a.txt": "one", "deep/b.txt": "b"}, {"a.txt": "two"})


def refusal(directory: Path, rev: str) -> FlamegateError:
    with pytest.raises(FlamegateError) as refused:
        open_checkout(directory, rev)
    return refused.value


def state(project: Path) -> tuple[str, ...]:
    questions = ("worktree list", "status --porcelain", "stash list", "branch -a", "rev-parse HEAD")
    index = (project / ".git/index").read_bytes().hex()
    return (*(git(project, *question.split()) for question in questions), index)


def test_the_revision_stands_beside_the_project_and_leaves_nothing_behind(project: Path) -> None:
    write(project, {"a.txt": "uncommitted", "new.txt": "untracked"})
    git(project, "add", "new.txt")
    before = state(project)
    with open_checkout(project, "HEAD~1") as checkout:
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


def test_paths_are_mapped_into_the_worktree(project: Path, tmp_path: Path) -> None:
    with open_checkout(project / "deep", "HEAD") as checkout:
        assert checkout.move_path(project) == checkout.root
        assert checkout.move_path(project / "deep/b.txt") == checkout.root / "deep/b.txt"
        assert checkout.move_path(project / "deep/../a.txt") == checkout.root / "a.txt"
        assert checkout.move_path(project / "not/there") == checkout.root / "not/there"
        assert checkout.move_path(tmp_path / "elsewhere") == tmp_path / "elsewhere"
        assert checkout.move_path(tmp_path / "proj üx") == tmp_path / "proj üx"
        assert checkout.move_path(checkout.root / "a.txt") == checkout.root / "a.txt"


def test_every_way_to_name_a_commit(project: Path) -> None:
    first = git(project, "rev-parse", "HEAD~1")
    git(project, "branch", "feature/x", first)
    git(project, "tag", "-a", "v1", "-m", "annotated", first)
    for rev in ("feature/x", "v1", "HEAD~1", first, first[:8], "HEAD^", ":/commit 0"):
        with open_checkout(project, rev) as checkout:
            assert checkout.commit == first, rev
            assert (checkout.root / "a.txt").read_text() == "one"


@pytest.mark.parametrize(
    "rev",
    ["", "nothing", "-h", "--help", "--all", "f" * 40, "HEAD:a.txt", "HEAD~9", "a\0b", "^HEAD"],
)
def test_what_names_no_commit_is_refused(project: Path, rev: str) -> None:
    before = state(project)
    error = refusal(project, rev)
    assert (error.code, error.exit_code) == ("E_REV_UNKNOWN", 2)
    assert repr(rev) in error.problem
    assert state(project) == before


def test_an_ambiguous_name_is_told(project: Path) -> None:
    git(project, "branch", "twice", "HEAD~1")
    git(project, "tag", "twice")
    with open_checkout(project, "twice") as checkout:
        assert "ambiguous" in checkout.notes[0]


def test_a_branch_that_only_the_remote_has_is_suggested(project: Path, tmp_path: Path) -> None:
    git(project, "branch", "release")
    git(tmp_path, "clone", "-q", str(project), "clone")
    error = refusal(tmp_path / "clone", "release")
    assert error.code == "E_REV_UNKNOWN"
    assert "origin/release" in error.remedy
    with open_checkout(tmp_path / "clone", "origin/release") as checkout:
        assert (checkout.root / "a.txt").read_text() == "two"


def test_a_shallow_clone_lacks_the_history_and_says_how_to_get_it(
    project: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", project.as_uri(), "clone")
    clone = tmp_path / "clone"
    error = refusal(clone, "HEAD~1")
    assert error.code == "E_REV_SHALLOW"
    assert "git fetch --unshallow" in error.remedy
    assert "fetch-depth: 0" in error.remedy
    assert refusal(clone, "--all").code == "E_REV_UNKNOWN"
    with open_checkout(clone, "HEAD") as checkout:
        assert (checkout.root / "a.txt").read_text() == "two"
    git(clone, "fetch", "-q", "--unshallow")
    with open_checkout(clone, "HEAD~1") as checkout:
        assert (checkout.root / "a.txt").read_text() == "one"


def test_a_partial_clone_fetches_what_the_revision_needs(project: Path, tmp_path: Path) -> None:
    git(project, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", project.as_uri(), "clone")
    with open_checkout(tmp_path / "clone", "HEAD~1") as checkout:
        assert (checkout.root / "a.txt").read_text() == "one"


def test_a_partial_clone_without_its_server_says_gits_words(project: Path, tmp_path: Path) -> None:
    git(project, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", project.as_uri(), "clone")
    project.rename(tmp_path / "gone")
    error = refusal(tmp_path / "clone", "HEAD~1")
    assert error.code == "E_WORKTREE"
    assert "proj" in error.problem
    assert not (tmp_path / "clone/.git/worktrees").exists()


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert refusal(tmp_path, "HEAD").code == "E_NO_REPOSITORY"
    assert refusal(tmp_path / "nowhere", "HEAD").code == "E_NO_REPOSITORY"
    git(tmp_path, "init", "-q", "--bare", "bare")
    assert refusal(tmp_path / "bare", "HEAD").code == "E_NO_REPOSITORY"


def test_without_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    error = refusal(project, "HEAD")
    assert error.code == "E_NO_REPOSITORY"
    assert "git" in error.problem
    assert read_commit(project) is None


def test_a_repository_that_git_does_not_trust(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    error = refusal(project, "HEAD")
    assert error.code == "E_NO_REPOSITORY"
    assert "safe.directory" in error.problem


def test_a_repository_without_commits(tmp_path: Path) -> None:
    error = refusal(repository(tmp_path / "empty"), "HEAD")
    assert error.code == "E_REV_UNKNOWN"
    assert "none yet" in error.problem


def test_a_linked_worktree_is_a_project_of_its_own(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "linked"), "HEAD~1")
    before = state(project)
    with open_checkout(tmp_path / "linked", "HEAD") as checkout:
        assert checkout.project == tmp_path / "linked"
        assert (checkout.root / "a.txt").read_text() == "one"
    assert state(project) == before


def test_through_a_link_to_the_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    with open_checkout(tmp_path / "link", "HEAD") as checkout:
        assert checkout.project == project
        assert checkout.move_path(tmp_path / "link/deep/b.txt") == checkout.root / "deep/b.txt"


def test_a_temporary_directory_that_is_a_link(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    (tmp_path / "tmp").symlink_to(temporary)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = state(project)
    with open_checkout(project, "HEAD") as checkout:
        assert checkout.root.is_relative_to(temporary)
    assert state(project) == before


def test_a_link_in_the_project_is_mapped_by_its_own_place(project: Path, tmp_path: Path) -> None:
    write(tmp_path, {"models/big.gguf": "m"})
    (project / "big.gguf").symlink_to(tmp_path / "models/big.gguf")
    with open_checkout(project, "HEAD") as checkout:
        assert checkout.move_path(project / "big.gguf") == checkout.root / "big.gguf"


def test_hooks_do_not_run(project: Path, tmp_path: Path) -> None:
    hook = project / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    hook.chmod(0o755)
    open_checkout(project, "HEAD").close()
    assert not (tmp_path / "ran").exists()
    git(project, "checkout", "-q", "--detach")
    assert (tmp_path / "ran").exists(), "the hook would have run"


def test_the_variables_of_a_hook_do_not_confuse(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository(tmp_path / "other", {"c.txt": "c"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index.hook"))
    monkeypatch.setenv("GIT_PREFIX", "deep/")
    with open_checkout(project, "HEAD") as checkout:
        assert checkout.project == project
        assert (checkout.root / "a.txt").read_text() == "two"
    assert not (other / ".git/index.hook").exists()
    found = read_commit(project)
    assert found is not None
    assert found.revision == git(project, "rev-parse", "HEAD")


def test_configuration_that_comes_in_variables_stays() -> None:
    kept = {"GIT_CONFIG_COUNT": "0", "GIT_SSH_COMMAND": "ssh -v", "HOME": "/h"}
    assert core_git.without_git_variables({**kept, "GIT_DIR": ".git"}) == kept


def test_submodules_are_noted(project: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"c.txt": "c"})
    git(project, "submodule", "--quiet", "add", str(other), "vendored")
    git(project, "commit", "-q", "-m", "a submodule")
    git(project, "config", "submodule.recurse", "true")
    with open_checkout(project, "HEAD") as checkout:
        assert "submodules" in checkout.notes[0]


def test_what_a_build_leaves_goes_too(project: Path) -> None:
    with open_checkout(project, "HEAD") as checkout:
        built = checkout.root / "target/deep"
        built.mkdir(parents=True)
        (built / "object.o").write_text("o")
        (built / "object.o").chmod(0o400)
        (built / "away").symlink_to(project)
        built.chmod(0o500)
        built.parent.chmod(0o000)
    assert not checkout.root.parent.exists()
    assert (project / "a.txt").exists()


def test_directories_that_may_not_be_written_are_opened_first(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmtree = shutil.rmtree

    def as_a_user(path: Path, *, ignore_errors: bool) -> None:
        """Remove as one who is not root: where a directory may not be written, nothing goes."""
        below = (Path(directory) for directory, _, _ in os.walk(path))
        if all(each.stat().st_mode & stat.S_IRWXU == stat.S_IRWXU for each in below):
            rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr("shutil.rmtree", as_a_user)
    with open_checkout(project, "HEAD") as checkout:
        write(checkout.root, {"target/deep/object.o": "o"})
        (checkout.root / "target/deep").chmod(0o500)
        (checkout.root / "target").chmod(0o000)
    assert not checkout.root.parent.exists()


def test_a_worktree_that_is_already_gone(project: Path) -> None:
    before = state(project)
    with open_checkout(project, "HEAD") as checkout:
        shutil.rmtree(checkout.root.parent)
    assert state(project) == before
    with open_checkout(project, "HEAD") as checkout:
        git(project, "worktree", "remove", str(checkout.root))
    assert state(project) == before


def test_what_cannot_be_removed_is_told_but_hides_no_other_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = open_checkout(project, "HEAD")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(ToolError) as refused:
            checkout.close()
        assert refused.value.code == "E_WORKTREE"
        with pytest.raises(KeyboardInterrupt), checkout:
            raise KeyboardInterrupt
    checkout.close()


def test_a_failed_worktree_tells_gits_words(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = git(project, "rev-parse", "HEAD:a.txt")
    (project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    before = git(project, "worktree", "list")
    error = refusal(project, "HEAD")
    assert error.code == "E_WORKTREE"
    assert blob in error.problem
    assert git(project, "worktree", "list") == before


def test_no_room_for_a_temporary_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkdtemp", full)
    error = refusal(project, "HEAD")
    assert error.code == "E_WORKTREE"
    assert "No space left" in error.problem


def test_an_interrupt_during_the_checkout_leaves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_flamegate.observe.worktree import open_checkout
print(open_checkout(Path(sys.argv[1]), "HEAD").root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(project: Path, temporary: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(project)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    return Path(done.stdout.strip())


def test_what_a_killed_run_left_is_swept(project: Path, temporary: Path) -> None:
    before = state(project)
    left = killed(project, temporary)
    assert (left / "a.txt").exists()
    assert str(left) in git(project, "worktree", "list")
    with open_checkout(project, "HEAD"):
        assert not left.parent.exists()
        assert str(left) not in git(project, "worktree", "list")
    assert state(project) == before


def test_a_note_is_swept_when_the_files_are_gone_or_elsewhere(
    project: Path, temporary: Path, tmp_path: Path
) -> None:
    before = state(project)
    elsewhere = tmp_path / "other-tmp"
    elsewhere.mkdir()
    shutil.rmtree(killed(project, temporary).parent)
    left = killed(project, elsewhere)
    open_checkout(project, "HEAD").close()
    assert state(project) == before
    assert not left.parent.exists()


def test_what_others_use_stays(project: Path, temporary: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "theirs"))
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "unmounted"))
    (tmp_path / "unmounted").rename(tmp_path / "away")
    left = killed(project, temporary)
    machine, _, rest = left.parent.name.removeprefix("flamegate-").partition("-")
    foreign = temporary / f"flamegate-{'0' * 8}-{rest}"
    (temporary / "flamegate-mine").mkdir()
    foreign.mkdir()
    alive = temporary / f"flamegate-{machine}-{os.getpid()}-0-abc"
    alive.mkdir()
    with open_checkout(project, "HEAD") as first, open_checkout(project, "HEAD") as second:
        assert first.root.exists()
        assert second.root.exists()
        assert first.root != second.root
    assert foreign.exists()
    assert alive.exists()
    listed = git(project, "worktree", "list")
    assert str(tmp_path / "theirs") in listed
    assert str(tmp_path / "unmounted") in listed
    for path in (foreign, alive, temporary / "flamegate-mine"):
        path.rmdir()


def test_a_reused_process_id_is_another_owner(temporary: Path, project: Path) -> None:
    home = worktree.make_home()
    machine, pid, ticks, rest = home.name.removeprefix("flamegate-").split("-")
    assert (int(pid), worktree.remove_abandoned_homes(project / ".git")) == (os.getpid(), ())
    assert home.exists()
    earlier = home.with_name(f"flamegate-{machine}-{pid}-{int(ticks) - 1}-{rest}")
    home.rename(earlier)
    assert worktree.remove_abandoned_homes(project / ".git") == ()
    assert not earlier.exists()


def test_a_branch_may_be_checked_out_twice(project: Path) -> None:
    with open_checkout(project, "main") as checkout:
        assert (checkout.root / "a.txt").read_text() == "two"
    assert git(project, "branch", "--format=%(refname:short)") == "main"


def test_a_failing_git_is_told_by_its_status(project: Path) -> None:
    result = CompletedCommand(("git",), 3, b"", b"", timed_out=False, elapsed_s=0.1)
    assert core_git.failure_text(result) == "git ended with status 3"
    late = CompletedCommand(("git",), -9, b"", b"", timed_out=True, elapsed_s=60.0)
    assert "60 s" in core_git.failure_text(late)

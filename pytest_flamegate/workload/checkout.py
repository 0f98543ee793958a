"""Another revision of the project, checked out beside it for a while."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.paths import is_file, real
from pytest_flamegate.workload import git, worktrees
from pytest_flamegate.workload.sides import Sides

if TYPE_CHECKING:
    from types import TracebackType

_ASK_S = 60.0
_CHECKOUT_S = 1800.0
"""Long enough for a large repository whose files still have to come over the network."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SAYS_NOTHING = "Needed a single revision"
_QUIET = (
    # Nothing of the user's runs for a checkout of ours, and nothing of it stays running.
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A worktree of ``commit`` at ``root``, of the repository whose own top is ``project``.

    Use it as a context manager: the worktree is gone at the end. ``notes`` say what the
    reader of a comparison should know about it.
    """

    commit: str
    root: Path
    project: Path
    notes: tuple[str, ...]
    git_directory: Path

    def __enter__(self) -> Checkout:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What went wrong before is what the user has to know.
        with contextlib.suppress(*(() if kind is None else (FlamegateError,))):
            self.close()

    def path(self, path: Path) -> Path:
        """Return where ``path`` lies in the worktree; what both sides share stays as it is."""
        return Sides(self.project, self.root).moved(path) or path

    def close(self) -> None:
        """Remove the worktree and git's note of it; a second time there is nothing to do.

        ``ToolError`` ``E_WORKTREE_STAYS`` where a file cannot be removed.
        """
        worktrees.remove_home(self.root.parent, self.git_directory)


def open_checkout(directory: Path, rev: str) -> Checkout:
    """Check ``rev`` of the repository around ``directory`` out into a worktree of its own.

    Neither the index nor the working tree of the project is touched, and no branch is made.
    Raises ``E_NO_REPOSITORY``, ``E_REV_UNKNOWN`` or ``E_REV_SHALLOW`` (``UsageError``), and
    ``E_WORKTREE`` (``ToolError``) where git cannot make the worktree.
    """
    project, git_directory = _repository(directory)
    commit, notes = _commit(directory, rev)
    notes += [f"{home} of a dead run cannot be removed" for home in worktrees.sweep(git_directory)]
    try:
        home = worktrees.make_home()
    except OSError as error:
        raise _no_worktree(rev, f"no temporary directory: {error.strerror}") from None
    root = home / (project.name or "base")
    try:
        result = git.run(
            directory,
            *_QUIET,
            *("worktree", "add", "--detach", str(root), commit),
            timeout_s=_CHECKOUT_S,
        )
        if result.returncode != 0:
            raise _no_worktree(rev, git.last_words(result))
    except BaseException:
        with contextlib.suppress(ToolError):
            worktrees.remove_home(home, git_directory)
        raise
    if is_file(root / ".gitmodules"):
        notes.append("submodules are empty in the checkout; the workload's build may fetch them")
    return Checkout(commit, root, project, tuple(notes), git_directory)


def _repository(directory: Path) -> tuple[Path, Path]:
    """Return the top of the working tree around ``directory``, and git's common directory."""
    try:
        top = git.run(directory, "rev-parse", "--show-toplevel", timeout_s=_ASK_S)
        common = git.run(directory, "rev-parse", "--git-common-dir", timeout_s=_ASK_S)
    except ToolError as error:
        raise _no_repository(directory, error.what.rstrip(".")) from None
    for result in (top, common):
        if result.returncode != 0:
            raise _no_repository(directory, git.last_words(result))
    return real(Path(git.said(top))), real(directory / git.said(common))


def _commit(directory: Path, rev: str) -> tuple[str, list[str]]:
    """Return the commit that ``rev`` names, and what git warns of about the name."""
    words = ""
    # No name begins with a dash: git would read it as an option.
    if rev and not rev.startswith("-"):
        # The message searched for in ":/message" goes on to the end.
        name = rev if rev.startswith(":/") else f"{rev}^{{commit}}"
        try:
            result = git.run(directory, "rev-parse", "--verify", name, timeout_s=_ASK_S)
        except ToolError:
            # git starts, or the repository would not be known: this is no name for a command line.
            raise _unknown(directory, rev, words) from None
        commit = git.said(result)
        if result.returncode == 0 and _COMMIT.fullmatch(commit):
            said = result.stderr.decode("utf-8", "replace").splitlines()
            return commit, [f"git: {line}" for line in said if line.startswith("warning:")]
        if _SAYS_NOTHING not in (told := git.last_words(result)):
            words = f" ({told})"
    raise _unknown(directory, rev, words)


def _no_repository(directory: Path, words: str) -> UsageError:
    return UsageError(
        "E_NO_REPOSITORY",
        f"There is no git repository with a working tree at {directory}: {words}.",
        "A comparison against a revision needs one; else compare with a stored baseline.",
    )


def _no_worktree(rev: str, words: str) -> ToolError:
    return ToolError(
        "E_WORKTREE",
        f"{rev} cannot be checked out into a worktree of its own: {words}.",
        "Make room or set TMPDIR to a directory with room; "
        "git worktree add in the project shows the same by hand.",
    )


def _unknown(directory: Path, rev: str, words: str) -> UsageError:
    if (
        not rev.startswith("-")
        and git.answer(directory, "rev-parse", "--is-shallow-repository") == "true"
    ):
        return UsageError(
            "E_REV_SHALLOW",
            f"{rev!r} names no commit of this shallow clone, which lacks the history.",
            "Fetch it: git fetch --unshallow (for actions/checkout: fetch-depth: 0).",
        )
    if git.answer(directory, "rev-parse", "--verify", "HEAD") is None:
        what = f"{rev!r} names no commit: the repository has none yet."
    else:
        what = f"{rev!r} names no commit of the repository around {directory}{words}."
    todo = "Name a branch, a tag or a commit that git log shows here, or fetch it first."
    if remote := _on_a_remote(directory, rev):
        todo = f"Did you mean {remote}? There is no local branch of this name."
    return UsageError("E_REV_UNKNOWN", what, todo)


def _on_a_remote(directory: Path, rev: str) -> str | None:
    """Return the remote's branch of this name: in CI often the only one there is."""
    found = git.answer(
        directory, "for-each-ref", "--format=%(refname:short)", f"refs/remotes/*/{rev}"
    )
    return found.splitlines()[0] if found else None

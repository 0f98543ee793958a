"""Which revision of the code is measured, as git tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.workload import git

if TYPE_CHECKING:
    from pathlib import Path


class Revision(NamedTuple):
    """A commit, its branch, and how many files differ from it (untracked ones included)."""

    commit: str
    branch: str
    uncommitted: int


def revision(directory: Path) -> Revision | None:
    """Return the revision checked out at ``directory``; None without git or a commit."""
    commit = git.answer(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    branch = git.answer(directory, "rev-parse", "--abbrev-ref", "HEAD") or "HEAD"
    status = git.answer(directory, "status", "--porcelain") or ""
    return Revision(commit, branch, len(status.splitlines()))

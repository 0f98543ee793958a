"""Which revision of the code is measured, as git tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 10.0


class Revision(NamedTuple):
    """A commit, its branch, and how many files differ from it (untracked ones included)."""

    commit: str
    branch: str
    uncommitted: int


def revision(directory: Path) -> Revision | None:
    """Return the revision checked out at ``directory``; None without git or a commit."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    branch = _git(directory, "rev-parse", "--abbrev-ref", "HEAD") or "HEAD"
    status = _git(directory, "status", "--porcelain") or ""
    return Revision(commit, branch, len(status.splitlines()))


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        result = process.run(["git", *arguments], timeout_s=_TIMEOUT_S, cwd=directory)
    except ToolError:
        return None
    return result.stdout.decode("utf-8", "replace").strip() if result.returncode == 0 else None

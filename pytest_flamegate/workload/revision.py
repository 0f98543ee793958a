"""Which revision of the code is measured, as git tells it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.workload import git

ARTIFACTS = ".flamegate"
"""Where this package keeps what it wrote: no part of the code, committed or not."""


class Revision(NamedTuple):
    """A commit, its branch, and how many files differ from it (untracked ones included).

    ``tree`` names the code of the commit: it is equal for two commits that differ in accepted
    baselines alone.
    """

    commit: str
    branch: str
    uncommitted: int
    tree: str


def revision(directory: Path) -> Revision | None:
    """Return the revision checked out at ``directory``; None without git or a commit."""
    commit = git.answer(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    branch = git.answer(directory, "rev-parse", "--abbrev-ref", "HEAD") or "HEAD"
    outside = f":(exclude,top,glob)**/{ARTIFACTS}/**"
    status = git.answer(directory, "status", "--porcelain", "--", ":/", outside) or ""
    return Revision(commit, branch, len(status.splitlines()), tree(directory, commit))


def tree(directory: Path, commit: str) -> str:
    """Return the sha256 of the names and contents of all files of ``commit`` that are code.

    Empty where git cannot list them.
    """
    top = git.answer(directory, "rev-parse", "--show-toplevel") or str(directory)
    files = git.answer(Path(top), "ls-tree", "-r", commit)
    if files is None:
        return ""
    kept = [line for line in files.splitlines() if f"{ARTIFACTS}/" not in line.partition("\t")[2]]
    return hashlib.sha256("\n".join(kept).encode("utf-8", "surrogateescape")).hexdigest()

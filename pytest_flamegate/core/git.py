"""Questions to git, in an environment that no hook has bound to another repository."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.receipt.types import Commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.core.process import Result


_TIMEOUT_S = 10.0
_LAST_LINES = 6
_BOUND = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
"""What git sets for a hook: it binds every git below the hook to the hook's repository.

Configuration that comes in variables (``GIT_CONFIG_COUNT``) stays: CI allows
directories and gives credentials in this way.
"""
_SET = {
    # The user's index is not refreshed behind their back, nobody is asked for a password,
    # and what git says can be understood by whoever reads the refusal.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def unbound(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without the variables that bind git to one repository."""
    return {name: value for name, value in environment.items() if name not in _BOUND}


def run(directory: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> Result:
    """Run git in ``directory``. ``ToolError`` ``E_CANNOT_START`` where there is no git."""
    env = {**unbound(os.environ), **_SET}
    return process.run(["git", *arguments], timeout_s=timeout_s, env=env, cwd=directory)


def answer(directory: Path, *arguments: str) -> str | None:
    """Return what git answers, without the line's end; None where it fails or is missing."""
    try:
        result = run(directory, *arguments)
    except ToolError:
        return None
    if result.returncode != 0:
        return None
    return result.stdout.decode("utf-8", "replace").strip()


def said(result: Result) -> str:
    """Return standard output as text; what is no UTF-8 stays usable as a path."""
    return os.fsdecode(result.stdout).strip("\n")


def last_words(result: Result) -> str:
    """Return the last lines git wrote about a failure, as one."""
    if result.timed_out:
        return f"git did not finish within {result.elapsed_s:.0f} s"
    lines = [line.strip() for line in result.stderr.decode("utf-8", "replace").splitlines()]
    told = " ".join(line for line in lines[-_LAST_LINES:] if line)
    return told.rstrip(".") or f"git ended with status {result.returncode}"


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
    commit = answer(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    branch = answer(directory, "rev-parse", "--abbrev-ref", "HEAD") or "HEAD"
    outside = f":(exclude,top,glob)**/{ARTIFACTS}/**"
    status = answer(directory, "status", "--porcelain", "--", ":/", outside) or ""
    return Revision(commit, branch, len(status.splitlines()), tree(directory, commit))


def tree(directory: Path, commit: str) -> str:
    """Return the sha256 of the names and contents of all files of ``commit`` that are code.

    Empty where git cannot list them.
    """
    top = answer(directory, "rev-parse", "--show-toplevel") or str(directory)
    files = answer(Path(top), "ls-tree", "-r", commit)
    if files is None:
        return ""
    kept = [line for line in files.splitlines() if f"{ARTIFACTS}/" not in line.partition("\t")[2]]
    return hashlib.sha256("\n".join(kept).encode("utf-8", "surrogateescape")).hexdigest()


def commit_at(directory: Path) -> Commit | None:
    """Return what is checked out at ``directory``; None without git or a commit."""
    found = revision(directory)
    return Commit(*found) if found else None

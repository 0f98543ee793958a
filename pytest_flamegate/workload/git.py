"""Questions to git, in an environment that no hook has bound to another repository."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload import process

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_flamegate.workload.output import Result

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

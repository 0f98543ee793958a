"""Errors: each has a code, one sentence about the problem and one about the remedy.

The exit code follows from the class. The remedy of a code stands in ``codes.toml`` of its room.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import ClassVar

from pytest_flamegate.core import PACKAGE


@cache
def _load_codes() -> dict[str, dict[str, str]]:
    import tomllib  # not at import: few processes have an error to report

    tables = PACKAGE.glob("*/codes.toml")
    return {
        # The backticks are for the page of all codes.
        code: {key: text.replace("`", "") for key, text in row.items() if isinstance(text, str)}
        for table in tables
        for code, row in tomllib.loads(table.read_text("utf-8")).items()
    }


def find_remedy(code: str) -> str:
    """Return the remedy of ``code`` from ``codes.toml`` of its room; empty if it has none."""
    return _load_codes().get(code, {}).get("remedy", "")


def find_cause(code: str) -> str:
    """Return what ``code`` means, from ``codes.toml`` of its room; empty if that does not say."""
    return _load_codes().get(code, {}).get("cause", "")


class FlamegateError(Exception):
    """An error that the user can act on.

    Attributes:
        code: A stable code that starts with ``E_``; docs/codes.md explains each.
        problem: One sentence: the thing, the value found and the value expected.
        remedy: One sentence: what to do. It is the one of the code unless the error has its own,
            which names values of the run or belongs to one of several causes.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, code: str, problem: str, remedy: str = "") -> None:
        super().__init__(code, problem, remedy)
        self.code = code
        self.problem = problem
        self._remedy = remedy

    @property
    def remedy(self) -> str:
        """What to do: the advice of this error, or else of its code."""
        return self._remedy or find_remedy(self.code)

    def __str__(self) -> str:
        return f"{self.code}: {self.problem} {self.remedy}"


class UsageError(FlamegateError):
    """Invalid options, workload files or markers."""

    exit_code = 2


class ReceiptError(FlamegateError):
    """A receipt, evidence or baseline is malformed or dishonest."""

    exit_code = 3


class UndecidedError(FlamegateError):
    """A decision is not possible: no baseline, not comparable, too few samples."""

    exit_code = 4


class NoBaselineError(UndecidedError):
    """The workload did not exist yet in the revision that it would be compared with."""

    exit_code = 0


class ToolError(FlamegateError):
    """A tool failed: profiler, engine, build, the file system."""

    exit_code = 5


_NO_SPACE = "Free some space, or write elsewhere (--flamegate-dir; TMPDIR for temporary files)."
_NO_PERMISSION = "Change the permissions, or write elsewhere (--flamegate-dir)."
_NO_MEMORY = "End other processes or take a smaller workload, and run it again."
_TOO_MANY_FILES = "Raise the limit on open files (ulimit -n)."
SYSTEM_REMEDIES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EROFS: _NO_PERMISSION,
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.ENOTDIR: "Move away the file that is in the place of a directory.",
    errno.EEXIST: "Move away the existing file.",
    errno.ELOOP: "Replace the symbolic link by its target.",
    errno.EAGAIN: "End some processes: the system allows no more. Then run it again.",
    errno.ENOMEM: _NO_MEMORY,
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
}


def reason_of(error: Exception) -> str:
    """Return the system's reason of an error, or else its message or the name of its class."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextmanager
def system_errors() -> Iterator[None]:
    """Turn errors of the system within the block into a ``ToolError`` ``E_SYSTEM``."""
    try:
        yield
    except OSError as error:
        path = f": {error.filename!a}" if error.filename is not None else ""
        remedy = SYSTEM_REMEDIES.get(error.errno or 0, "")
        problem = f"The system reported an error: {reason_of(error)}{path}."
        raise ToolError("E_SYSTEM", problem, remedy) from error
    except MemoryError as error:
        raise ToolError("E_SYSTEM", "There is not enough memory.", _NO_MEMORY) from error
    except RecursionError as error:
        raise ToolError(
            "E_SYSTEM",
            "A document is nested too deeply.",
            "Restore the file from version control, or report this.",
        ) from error


_SEVERITY = (1, 3, 2, 5, 4, 0)


def worst_code(codes: Iterable[int]) -> int:
    """Return the worst of several exit codes: regressed, rejected, usage, tool, undecided, 0."""
    return min(codes, key=_SEVERITY.index, default=0)

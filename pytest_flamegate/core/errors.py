"""Refusals: each has a code, one sentence of what happened and one of what to do.

The exit code follows from the class, never from the words.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class FlamegateError(Exception):
    """Something was refused or failed, and the user can act on it.

    ``code`` is stable and starts with ``E_``; ``problem`` says what happened and
    ``remedy`` what to do about it, each one sentence.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        super().__init__(code, problem, remedy)
        self.code = code
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.code}: {self.problem} {self.remedy}"


class UsageError(FlamegateError):
    """What was asked for cannot be understood: options, workload files, markers."""

    exit_code = 2


class ReceiptError(FlamegateError):
    """A receipt, evidence or baseline is malformed or dishonest."""

    exit_code = 3


class UndecidedError(FlamegateError):
    """There is nothing sound to judge by: no baseline, not comparable, too few samples."""

    exit_code = 4


class NoBaselineError(UndecidedError):
    """What is measured now did not exist yet in what it would be compared with."""


class ToolError(FlamegateError):
    """A tool failed: profiler, engine, build, the file system."""

    exit_code = 5


_TODO = {
    errno.ENOSPC: "Free some space; TMPDIR says where temporary files go.",
    errno.EACCES: "Check its permissions.",
    errno.EPERM: "Check its permissions.",
    errno.EAGAIN: "Too many processes run here: end some, and run it again.",
    errno.ENOMEM: "End other processes or take a smaller workload, and run it again.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n).",
    errno.ENFILE: "Raise the limit on open files (ulimit -n).",
}


@contextmanager
def system_errors() -> Iterator[None]:
    """Turn what the system refuses within the block into a ``ToolError`` ``E_SYSTEM``."""
    try:
        yield
    except OSError as error:
        path = f": {error.filename!a}" if error.filename is not None else ""
        remedy = _TODO.get(error.errno or 0, "Repair that, and run it again.")
        raise ToolError(
            "E_SYSTEM", f"The system refused: {error.strerror or error}{path}.", remedy
        ) from error
    except MemoryError as error:
        raise ToolError("E_SYSTEM", "There is not enough memory.", _TODO[errno.ENOMEM]) from error
    except RecursionError as error:
        raise ToolError(
            "E_SYSTEM",
            "What was read is nested too deeply.",
            "Restore the file from version control, or report this.",
        ) from error

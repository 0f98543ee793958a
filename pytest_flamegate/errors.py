"""Refusals: each has a code, one sentence of what happened and one of what to do.

The exit code follows from the class, never from the words.
"""

from __future__ import annotations

from typing import ClassVar


class FlamegateError(Exception):
    """Something was refused or failed, and the user can act on it.

    ``code`` is stable and starts with ``E_``; ``what`` says what happened and
    ``todo`` what to do about it, each one sentence.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, code: str, what: str, todo: str) -> None:
        super().__init__(code, what, todo)
        self.code = code
        self.what = what
        self.todo = todo

    def __str__(self) -> str:
        return f"{self.code}: {self.what} {self.todo}"


class UsageError(FlamegateError):
    """What was asked for cannot be understood: options, workload files, markers."""

    exit_code = 2


class ReceiptError(FlamegateError):
    """A receipt, evidence or baseline is malformed or dishonest."""

    exit_code = 3


class UndecidedError(FlamegateError):
    """There is nothing sound to judge by: no baseline, not comparable, too few samples."""

    exit_code = 4


class ToolError(FlamegateError):
    """A tool failed: profiler, engine, build, the file system."""

    exit_code = 5

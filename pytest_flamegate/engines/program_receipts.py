"""The receipt file that a program may write itself, as a source of its figures."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.engines.figures import (
    ProgramOutput,
    SourceReport,
    make_source_report,
    parse_figure,
    source_error,
)

MAX_RECEIPT_BYTES = 1 << 20
_REMEDY = "Have the program write a receipt of schema 1.0.0, or remove the option receipt."

FileState = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _ReceiptFields:
    """The fields of a program's receipt that are read; its other claims are not."""

    schema_version: Literal["1.0.0"]
    compute_path: Literal["real"]
    tokens_generated: float | None = None
    tokens_per_second: float | None = None
    kernels: Annotated[
        tuple[Annotated[str, limit(min_length=1, max_length=128)], ...], limit(max_length=10_000)
    ] = ()


class ProgramReceipt:
    """Tokens, tokens per second and the names of kernels in the receipt that a program writes."""

    name = "receipt"
    markers: tuple[bytes, ...] = ()

    def read(self, output: ProgramOutput) -> SourceReport | None:
        """Return the figures of the file that was written in this run."""
        if output.receipt is None:
            return None
        from pytest_flamegate.core.json import decode_json

        try:
            fields = decode_json(output.receipt, _ReceiptFields, subject="it")
        except ReceiptError as error:
            raise source_error(self.name, f"is not usable: {error.problem}", _REMEDY) from None
        figures = {
            name: parse_figure(self.name, name, value)
            for name, value in (
                ("tokens", fields.tokens_generated),
                ("tokens_per_second", fields.tokens_per_second),
            )
            if value is not None
        }
        kernels: dict[str, int] = {}
        for name in fields.kernels:
            kernels[name] = kernels.get(name, 0) + 1
        return make_source_report(self.name, figures, kernels)


def read_file_state(path: Path) -> FileState | None:
    """Return values that change when the file is written again; None if there is no file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_new_file(path: Path, before: FileState | None) -> bytes | None:
    """Return the start of the file; None if it was not written since ``before``.

    ``ToolError`` ``E_BAD_SOURCE`` if it is no regular file or cannot be read.
    """
    now = read_file_state(path)
    # A copy of an older file has another inode and an earlier time: that is no writing.
    if now is None or now == before or (before is not None and now[1] < before[1]):
        return None
    try:
        # Opening a pipe for reading would block without O_NONBLOCK.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise source_error("receipt", f"is no file: {str(path)!r}", _REMEDY)
            return file.read(MAX_RECEIPT_BYTES + 1)
    except OSError as error:
        raise source_error("receipt", f"cannot be read: {error.strerror}", _REMEDY) from None

"""A receipt that the program writes itself, such as ``ci/inference.json`` (schema 1.0.0)."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

from pytest_flamegate.workload.sources.base import bad_source, figure, told

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.workload.sources.base import Heard, Told

MOST_BYTES = 1 << 20
VERSION = "1.0.0"
_MOST_KERNELS = 10_000
_LONGEST_NAME = 128
_TODO = "Have the program write a receipt of schema 1.0.0, or leave the option receipt out."

Stamp = tuple[int, int, int]


class Receipt:
    """Tokens, tokens per second and the names of kernels; its other claims are not read."""

    name = "receipt"
    markers: tuple[bytes, ...] = ()

    def read(self, heard: Heard) -> Told | None:
        """Return what the file says that was written in this run."""
        if heard.written is None:
            return None
        document = self._document(heard.written)
        figures = {
            ours: figure(self.name, ours, self._number(document, theirs))
            for ours, theirs in (
                ("tokens", "tokens_generated"),
                ("tokens_per_second", "tokens_per_second"),
            )
            if document.get(theirs) is not None
        }
        return told(self.name, figures, self._kernels(document.get("kernels", [])))

    def _document(self, data: bytes) -> dict[str, Any]:
        if len(data) > MOST_BYTES:
            raise bad_source(self.name, f"is a file of more than {MOST_BYTES >> 20} MiB", _TODO)
        try:
            # NaN and infinity are let through here, to be refused by the name of their figure.
            document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise bad_source(self.name, f"is not JSON: {str(error)[:100]}", _TODO) from None
        if not isinstance(document, dict):
            raise bad_source(self.name, "is no JSON object", _TODO)
        version, path = document.get("schema_version"), document.get("compute_path")
        if version != VERSION:
            raise bad_source(self.name, f"has the schema version {str(version)[:40]!r}", _TODO)
        if path != "real":
            raise bad_source(self.name, f"has the compute path {str(path)[:40]!r}", _TODO)
        return document

    def _number(self, document: dict[str, Any], key: str) -> float:
        value = document[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_source(self.name, f"has no number for {key}", _TODO)
        return value

    def _kernels(self, named: object) -> dict[str, int]:
        if not isinstance(named, list) or len(named) > _MOST_KERNELS:
            raise bad_source(self.name, "has no list of kernels, or one without end", _TODO)
        kernels: dict[str, int] = {}
        for name in named:
            if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
                raise bad_source(self.name, f"names a kernel {str(name)[:40]!r}", _TODO)
            kernels[name] = kernels.get(name, 0) + 1
        return kernels


def stamp(path: Path) -> Stamp | None:
    """Return what changes when the file is written anew; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def written(path: Path, before: Stamp | None) -> bytes | None:
    """Return the start of the file if it is not the one of ``before``; None if it is.

    ``ToolError`` ``E_BAD_SOURCE`` where it is no file or may not be read.
    """
    now = stamp(path)
    # A copy of an older file has a later inode and an earlier time: it is no writing.
    if now is None or now == before or (before is not None and now[1] < before[1]):
        return None
    try:
        # A pipe in its place would keep an opening reader waiting.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise bad_source("receipt", f"is no file: {str(path)!r}", _TODO)
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise bad_source("receipt", f"cannot be read: {error.strerror}", _TODO) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found

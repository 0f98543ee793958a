"""The files of a model: their parts, their state, and their digest, which is cached."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pytest_flamegate.core.errors import ToolError, reason_of
from pytest_flamegate.core.files import path_text, read_cached, write_cached

_PART = re.compile(r"(?s)(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The state of a file: if the stamp changes, its bytes may have changed.

    ``ctime_ns`` changes with every write, rename and change of times; no program can set it.
    """

    path: Path
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def from_status(cls, path: Path, status: os.stat_result) -> FileStamp:
        """Return the stamp of ``path``, whose status is ``status``."""
        place = (status.st_dev, status.st_ino, status.st_size)
        return cls(path, *place, status.st_mtime_ns, status.st_ctime_ns)


def read_stamp(path: Path) -> FileStamp:
    """Return the stamp of the file at ``path``, links followed.

    Raises ``ToolError`` E_MODEL_MISSING if there is no regular file, or none that may be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no file")
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from None
    return FileStamp.from_status(path, status)


def read_stamps(model: Path | None) -> tuple[FileStamp, ...]:
    """Return the stamps of all files of a model; empty for an engine without a file."""
    return () if model is None else tuple(map(read_stamp, model_files(model)))


def require_unchanged(before: Sequence[FileStamp]) -> None:
    """Raise ``ToolError`` E_MODEL_CHANGED if a file has another stamp now."""
    for known in before:
        try:
            now = read_stamp(known.path)
            difference = "" if now == known else _difference(known, now)
        except ToolError as error:
            difference = error.problem
        if difference:
            raise _changed_error(known.path, f"changed while it was measured: {difference}")


def parse_part_name(path: Path) -> tuple[str, int, int] | None:
    """Return stem, number (from 1) and count if the name is of a part of a split model."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return None
    stem, number, count = match[1], int(match[2]), int(match[3])
    return (stem, number, count) if 1 <= number <= count else None


def model_files(model: Path) -> tuple[Path, ...]:
    """Return the files of a model in order: itself, or all parts of which it is the first.

    Raises ``ToolError`` E_MODEL_PARTS if it is a later part, or if one is missing.
    """
    part = parse_part_name(model)
    if part is None:
        return (model,)
    stem, number, count = part
    if number != 1:
        raise ToolError(
            "E_MODEL_PARTS",
            f"{path_text(model)} is part {number} of {count} of a model.",
            f"Name the first part: {path_text(stem)}-00001-of-{count:05d}.gguf.",
        )
    names = [f"{stem}-{each:05d}-of-{count:05d}.gguf" for each in range(1, count + 1)]
    files = tuple(model.with_name(name) for name in names)
    missing = list(islice((file.name for file in files if not file.is_file()), _MAX_NAMED))
    if missing:
        raise ToolError(
            "E_MODEL_PARTS",
            f"The model {path_text(model)} has {count} parts. Not found next to it: "
            f"{', '.join(map(path_text, missing))}.",
        )
    return files


def unreadable_error(path: Path, error: Exception) -> ToolError:
    """Return the error for a model file that the system does not let this user read."""
    return ToolError(
        "E_MODEL_MISSING",
        f"The model file {path_text(path)} cannot be read: {reason_of(error)}.",
        "Check the path and its permissions.",
    )


def _changed_error(path: Path, problem: str) -> ToolError:
    return ToolError("E_MODEL_CHANGED", f"The model file {path_text(path)} {problem.rstrip('.')}.")


def _difference(before: FileStamp, now: FileStamp) -> str:
    if (before.device, before.inode) != (now.device, now.inode):
        return "another file is there now"
    if before.size_bytes != now.size_bytes:
        return f"it had {before.size_bytes} bytes and has {now.size_bytes}"
    return "it was written to, or its times, links or permissions were changed"


CACHED_BYTES = 32 << 20
"""Smaller models are read again each time, which takes no longer than the cache."""
_CACHE = "model-sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SETTLED_NS = 2_000_000_000
_CHUNK_BYTES = 1 << 20


def model_sha256(model: Path) -> str:
    """Return the SHA-256 of a model as lower-case hex: of its file, or of all parts in order.

    The digest of a large model is cached in the user's cache directory under device, inode, size,
    mtime and ctime of each file, two seconds after the last change, so that a later change has
    another time. A program that still writes through a mapping can deceive it, and so can a user
    who sets the clock.

    Raises ``ToolError``: E_MODEL_MISSING, E_MODEL_PARTS, and E_MODEL_CHANGED if a file changes
    while it is read.
    """
    files = model_files(model)
    before = [read_stamp(path) for path in files]
    is_large = sum(each.size_bytes for each in before) >= CACHED_BYTES
    key = ",".join(
        f"{each.device}:{each.inode}:{each.size_bytes}:{each.mtime_ns}:{each.ctime_ns}"
        for each in before
    )
    if is_large and _SHA256.fullmatch(cached := read_cached(_CACHE, key) or ""):
        return cached
    digest = hashlib.sha256()
    stamps = [_read(path, digest) for path in files]
    if not before == stamps == [read_stamp(path) for path in files]:
        raise _changed_error(model, "changed while it was read")
    newest_ns = max(max(each.mtime_ns, each.ctime_ns) for each in stamps)
    is_settled = newest_ns + _SETTLED_NS <= time.time_ns()
    if is_large and is_settled:
        write_cached(_CACHE, key, digest.hexdigest())
    return digest.hexdigest()


def _read(path: Path, digest: hashlib._Hash) -> FileStamp:
    """Add the bytes of a file to ``digest`` and return its stamp from before they were read."""
    try:
        with path.open("rb", buffering=0) as file:
            stamp = FileStamp.from_status(path, os.fstat(file.fileno()))
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
            return stamp
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from None

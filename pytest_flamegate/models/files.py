"""Digests of large files, kept in the user's cache directory: a line for each state of files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import cache
from pytest_flamegate.core.cache import tracks_all_writes
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.files import path_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_FILE = "model-sha256-1"
_MOST_FILES = 64
_LINE = re.compile(r"([0-9:,-]{9,16384}) ([0-9a-f]{64})", re.ASCII)


def find_digest(files: Sequence[FileStamp]) -> str | None:
    """Return the digest kept for files in exactly this state."""
    return cache.read_cached(_FILE, _LINE, _key(files))


def keep_digest(files: Sequence[FileStamp], sha256: str) -> None:
    """Keep a digest; without a word where that is impossible."""
    if len(files) <= _MOST_FILES:
        cache.write_cached(_FILE, _LINE, _key(files), sha256)


def _key(files: Sequence[FileStamp]) -> str:
    return ",".join(
        f"{each.device}:{each.inode}:{each.size_bytes}:{each.mtime_ns}:{each.ctime_ns}"
        for each in files
    )


_PART = re.compile(r"(?s)(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What the system says of a file: another stamp means that its bytes may be others.

    ``ctime_ns`` no program can set: it moves with every write, rename and change of times.
    """

    path: Path
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path, status: os.stat_result) -> FileStamp:
        """Return the stamp of what ``status`` was told of."""
        return cls(
            path,
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )


def read_stamp(path: Path) -> FileStamp:
    """Return the stamp of the file at ``path``, links followed.

    Raises ``ToolError``: E_MODEL_MISSING (nothing there, or no regular file),
    E_MODEL_UNREADABLE (the system refused).
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(f"There is no model file at {path_text(path)}.") from None
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise _missing(f"{path_text(path)} is not a file.")
    return FileStamp.of(path, status)


def read_stamps(model: Path | None) -> tuple[FileStamp, ...]:
    """Return the stamps of all files of a model, none for an engine without a file."""
    return () if model is None else tuple(map(read_stamp, model_files(model)))


def require_unchanged(before: Sequence[FileStamp]) -> None:
    """Raise ``ToolError`` E_MODEL_CHANGED where a file is no longer as its stamp says."""
    for known in before:
        try:
            now = read_stamp(known.path)
        except ToolError as error:
            raise _changed(known.path, error.problem) from None
        if now != known:
            raise _changed(known.path, _difference(known, now))


def parse_part_name(path: Path) -> tuple[str, int, int] | None:
    """Return stem, number (from 1) and count where the name is that of a part of a split model."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return None
    stem, number, count = match[1], int(match[2]), int(match[3])
    return (stem, number, count) if 1 <= number <= count else None


def model_files(model: Path) -> tuple[Path, ...]:
    """Return the files of a model in order: itself, or all parts of which it is the first.

    ``ToolError`` E_MODEL_PARTS: it is a later part, or one is missing.
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
    files = []
    missing: list[str] = []
    for each in range(1, count + 1):
        file = model.with_name(f"{stem}-{each:05d}-of-{count:05d}.gguf")
        if file.is_file():
            files.append(file)
        else:
            missing.append(file.name)
            if len(missing) == _NAMED:
                break
    if missing:
        raise ToolError(
            "E_MODEL_PARTS",
            f"The model {path_text(model)} has {count} parts, and not all stand beside it: "
            f"{', '.join(map(path_text, missing))}.",
            "Fetch the missing parts into the same directory.",
        )
    return tuple(files)


def unreadable_error(path: Path, error: Exception) -> ToolError:
    """Return what to raise where the system refused to read a model file."""
    reason = getattr(error, "strerror", None) or str(error)
    return ToolError(
        "E_MODEL_UNREADABLE",
        f"The model file {path_text(path)} cannot be read: {reason}.",
        "Check the path and its permissions.",
    )


def _missing(what: str) -> ToolError:
    return ToolError("E_MODEL_MISSING", what, "Give the path of an existing .gguf file.")


def _changed(path: Path, how: str) -> ToolError:
    return ToolError(
        "E_MODEL_CHANGED",
        f"The model file {path_text(path)} changed while it was measured: {how.rstrip('.')}.",
        "Measure again, and let nothing write to it meanwhile.",
    )


def _difference(before: FileStamp, now: FileStamp) -> str:
    if (before.device, before.inode) != (now.device, now.inode):
        return "another file stands there now"
    if before.size_bytes != now.size_bytes:
        return f"it had {before.size_bytes} bytes and has {now.size_bytes}"
    return "it was written to, or its times, links or permissions were changed"


WORTH_KEEPING_BYTES = 32 << 20
"""Less is read again each time: it takes no longer than asking."""
_SETTLED_NS = 2_000_000_000
_CHUNK_BYTES = 1 << 20


def model_sha256(model: Path) -> str:
    """Return the sha256 of a model as lower-case hex: of its file, or of all parts in order.

    What is large is read once: the digest is kept in the user's cache directory under device,
    inode, size, mtime and ctime of each file, and a kept one serves wherever a read one does,
    for a baseline or a published receipt too. For ctime no program can set: every write,
    rename and change of times moves it, and a digest is kept only (a) after the writes of
    whoever has the file mapped were brought to the disk, so that the next one moves it as
    well, (b) two seconds after the last change, so that no later one has the same time, and
    (c) on file systems known to keep to that. Who can set the clock or write to the disk
    beneath its file system can deceive it; so can they the reader of the file.

    Raises ``ToolError``: E_MODEL_MISSING, E_MODEL_UNREADABLE, E_MODEL_PARTS, and
    E_MODEL_CHANGED where a file was written to while it was read.
    """
    files = model_files(model)
    before = [read_stamp(path) for path in files]
    worth = sum(each.size_bytes for each in before) >= WORTH_KEEPING_BYTES
    kept = find_digest(before) if worth else None
    if kept is not None and all(map(tracks_all_writes, files)):
        return kept
    digest = hashlib.sha256()
    flushed = worth and all(map(_flushed, files))
    seen = [_read(path, digest) for path in files]
    if [read_stamp(path) for path in files] != seen:
        raise ToolError(
            "E_MODEL_CHANGED",
            f"The model file {path_text(model)} changed while it was read.",
            "Measure again, and let nothing write to it meanwhile.",
        )
    if flushed and _settled(seen) and all(map(tracks_all_writes, files)):
        keep_digest(seen, digest.hexdigest())
    return digest.hexdigest()


def _flushed(path: Path) -> bool:
    """Bring what was written to a file to the disk, and say whether that was possible."""
    try:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


def _read(path: Path, digest: hashlib._Hash) -> FileStamp:
    """Add the bytes of a file to ``digest`` and return its stamp from before they were read."""
    try:
        with path.open("rb", buffering=0) as file:
            began = FileStamp.of(path, os.fstat(file.fileno()))
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
            return began
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from None


def _settled(seen: Sequence[FileStamp]) -> bool:
    """Whether the last change is so long ago that another would have another time."""
    newest = max(max(each.mtime_ns, each.ctime_ns) for each in seen)
    return newest + _SETTLED_NS <= time.time_ns()

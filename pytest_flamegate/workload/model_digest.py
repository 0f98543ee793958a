"""The sha256 of a model's files, read once for as long as nothing writes to them."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.paths import shown
from pytest_flamegate.workload import digest_cache
from pytest_flamegate.workload.file_system import tells_of_writes
from pytest_flamegate.workload.model_files import Stamp, model_files, stamp, unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
    before = [stamp(path) for path in files]
    worth = sum(each.size_bytes for each in before) >= WORTH_KEEPING_BYTES
    kept = digest_cache.find(before) if worth else None
    if kept is not None and all(map(tells_of_writes, files)):
        return kept
    digest = hashlib.sha256()
    flushed = worth and all(map(_flushed, files))
    seen = [_read(path, digest) for path in files]
    if [stamp(path) for path in files] != seen:
        raise ToolError(
            "E_MODEL_CHANGED",
            f"The model file {shown(model)} changed while it was read.",
            "Measure again, and let nothing write to it meanwhile.",
        )
    if flushed and _settled(seen) and all(map(tells_of_writes, files)):
        digest_cache.keep(seen, digest.hexdigest())
    return digest.hexdigest()


def _flushed(path: Path) -> bool:
    """Bring what was written to a file to the disk, and say whether that was possible."""
    try:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


def _read(path: Path, digest: hashlib._Hash) -> Stamp:
    """Add the bytes of a file to ``digest`` and return its stamp from before they were read."""
    try:
        with path.open("rb", buffering=0) as file:
            began = Stamp.of(path, os.fstat(file.fileno()))
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
            return began
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def _settled(seen: Sequence[Stamp]) -> bool:
    """Whether the last change is so long ago that another would have another time."""
    newest = max(max(each.mtime_ns, each.ctime_ns) for each in seen)
    return newest + _SETTLED_NS <= time.time_ns()

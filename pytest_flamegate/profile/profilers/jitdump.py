"""The files that CPython's ``-X perf_jit`` and ``perf inject --jit`` leave in /tmp."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

DIRECTORY = Path("/tmp")  # noqa: S108 - CPython has this path built in
_MAGIC = 0x4A695444
_CODE_LOAD = 0
_HEADER = struct.Struct("=3I")
_RECORD = struct.Struct("=2IQ")
_CODE_LOAD_FIXED = 16 + 40
_SAFE = bytes(0x3F if byte < 0x20 or byte == 0x7F else byte for byte in range(256))


def jitdump_path(pid: int) -> Path:
    """Return where CPython writes the jitdump of ``pid``."""
    return DIRECTORY / f"jit-{pid}.dump"


def scrub_names(path: Path) -> None:
    """Overwrite control characters in the function names of a jitdump with ``?``.

    perf prints names as they are: with a line break in it, the name of a Python
    function could pass for any frame of any library.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags)
    try:
        if os.fstat(fd).st_size < _HEADER.size:
            return
        with mmap.mmap(fd, 0) as data:
            magic, _, offset = _HEADER.unpack_from(data)
            if magic == _MAGIC:
                _scrub_records(data, offset)
    finally:
        os.close(fd)


def remove_jit_files(pid: int) -> None:
    """Remove everything that was written for ``pid``."""
    for path in (jitdump_path(pid), *DIRECTORY.glob(f"jitted-{pid}-*.so")):
        with contextlib.suppress(OSError):
            path.unlink()


def _scrub_records(data: mmap.mmap, offset: int) -> None:
    while offset + _RECORD.size <= len(data):
        kind, size, _ = _RECORD.unpack_from(data, offset)
        if size < _RECORD.size:
            return
        if kind == _CODE_LOAD:
            start = offset + _CODE_LOAD_FIXED
            end = data.find(b"\0", start, offset + size)
            if end > start:
                data[start:end] = data[start:end].translate(_SAFE)
        offset += size

"""Digests of large files, kept in the user's cache directory: a line for each state of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.workload import user_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.workload.model_files import Stamp

_FILE = "model-sha256-1"
_MOST_FILES = 64
_LINE = re.compile(r"([0-9:,-]{9,16384}) ([0-9a-f]{64})", re.ASCII)


def find(files: Sequence[Stamp]) -> str | None:
    """Return the digest kept for files in exactly this state."""
    return user_cache.find(_FILE, _LINE, _key(files))


def keep(files: Sequence[Stamp], sha256: str) -> None:
    """Keep a digest; without a word where that is impossible."""
    if len(files) <= _MOST_FILES:
        user_cache.keep(_FILE, _LINE, _key(files), sha256)


def _key(files: Sequence[Stamp]) -> str:
    return ",".join(
        f"{each.device}:{each.inode}:{each.size_bytes}:{each.mtime_ns}:{each.ctime_ns}"
        for each in files
    )

"""The cache of the Hugging Face hub, as it lies on this machine: looked into, never written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.paths import real

if TYPE_CHECKING:
    from pytest_flamegate.workload.search import Search

_MOST_REVISION_BYTES = 256


def hub_cache() -> Path:
    """Return the directory that the hub's own tools use, by their variables."""
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := os.environ.get(name):
            return Path(os.path.expanduser(value), below)  # noqa: PTH111 - raises without a home
    return Path(os.path.expanduser("~/.cache/huggingface/hub"))  # noqa: PTH111


def hub_files(search: Search, pattern: str) -> list[Path]:
    """Return the files of all models there that match ``pattern`` below their snapshot.

    Of several snapshots of a model the one that ``refs/main`` names counts; where it names
    none of them, all do. Snapshots are links into the cache's own blobs: what leads out of the
    cache is somebody else's, and is passed over.
    """
    cache = hub_cache()
    inside = real(cache)
    found: list[Path] = []
    for name in search.names(cache):
        if name.startswith("models--"):
            for snapshot in _snapshots(search, inside / name):
                found += search.files(snapshot, pattern)
    return [cache / path.relative_to(inside) for path in found if real(path).is_relative_to(inside)]


def _snapshots(search: Search, model: Path) -> list[Path]:
    # The hub's tools link files alone: a directory that is a link was laid by somebody else.
    revisions = [
        name
        for name in search.names(model / "snapshots")
        if real(model / "snapshots" / name) == model / "snapshots" / name
    ]
    if len(revisions) > 1 and (main := _main(model)) in revisions:
        revisions = [main]
    return [model / "snapshots" / revision for revision in revisions]


def _main(model: Path) -> str:
    try:
        with (model / "refs" / "main").open("rb") as file:
            return file.read(_MOST_REVISION_BYTES).decode("ascii", "replace").strip()
    except (OSError, ValueError):
        return ""

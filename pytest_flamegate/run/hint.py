"""Commands to copy: what was said on this run and is not the default is said again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_flamegate.config.settings import Settings


def pytest_command(settings: Settings, *nodes: str) -> str:
    """Return what measures again: the tests ``nodes``, or everything."""
    words = ["pytest", *nodes, "--flamegate"]
    return shlex.join([*words, *_options(settings, "--flamegate-")])


def run_command(settings: Settings, *workloads: str) -> str:
    """Return what measures again without pytest: ``workloads``, or everything."""
    return shlex.join(["flamegate", "run", *workloads, *_options(settings, "--")])


def _options(settings: Settings, prefix: str) -> list[str]:
    """Return where to look and how to measure; how much and against what is the user's."""
    told = {}
    if settings.config is not None:
        told["config"] = relative(settings.config, settings.root)
    if settings.directory != settings.root / ".flamegate":
        told["dir"] = relative(settings.directory, settings.root)
    if settings.against is not None:
        told["against"] = settings.against
    if settings.profiler != "auto":
        told["profiler"] = settings.profiler
    return [f"{prefix}{name}={value}" for name, value in told.items()]


def relative(path: Path, root: Path) -> str:
    """Return ``path`` as seen from ``root``, whole where it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

"""The parts that every room uses: errors, text, files, locks, processes, clocks, git, JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__version__ = "0.1.0"
PACKAGE = Path(__file__).parents[1]
"""The directory of this package."""
ARTIFACTS = ".flamegate"
"""The directory of this package's own files: never part of the code, committed or not."""


def limit(**bounds: Any) -> Any:
    """Return ``msgspec.Meta(**bounds)``, for annotations of types that an engine imports too.

    With postponed evaluation of annotations msgspec is imported when a document is first decoded,
    and never in a measured process, whose interpreter may not have it.

    Example:
        ``calls: Annotated[int, limit(ge=0)]``
    """
    from msgspec import Meta

    return Meta(**bounds)

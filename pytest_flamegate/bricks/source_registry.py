"""Sources of kernels by a hash of them: FNV-1a, 64 bits, over their UTF-8."""

from __future__ import annotations

from pytest_flamegate.bricks.fnv import fnv1a
from pytest_flamegate.errors import UsageError


class SourceRegistry:
    """Kernel sources, found again by the hash that a ``Kernel`` of the graph carries."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: dict[int, str] = {}

    def register(self, source: str) -> int:
        """Keep ``source`` and return its hash; the same source again gives the same.

        Raises ``UsageError`` ``E_SOURCE_COLLISION`` where another source has that hash, and
        ``E_SOURCE_TEXT`` for what has no UTF-8.
        """
        try:
            key = fnv1a(source.encode())
        except UnicodeEncodeError:
            raise UsageError(
                "E_SOURCE_TEXT",
                "The kernel's source holds half a surrogate pair and has no UTF-8.",
                "Read the source as the UTF-8 that it is.",
            ) from None
        if self._sources.setdefault(key, source) != source:
            raise UsageError(
                "E_SOURCE_COLLISION",
                f"Two different kernel sources have the hash {key:016x}.",
                "Change one of them by a comment: a hash must lead to one source.",
            )
        return key

    def lookup(self, key: int) -> str | None:
        """Return the source that has the hash ``key``; None where none was registered."""
        return self._sources.get(key)

    def __len__(self) -> int:
        return len(self._sources)

"""Sources of kernels by a hash of them: FNV-1a, 64 bits, over their UTF-8."""

from __future__ import annotations

from pytest_flamegate.errors import UsageError

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def fnv1a_64(data: bytes, state: int = FNV_OFFSET) -> int:
    """Return the hash of ``data``, going on from ``state``."""
    for byte in data:
        state = (state ^ byte) * FNV_PRIME & _MASK
    return state


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
            key = fnv1a_64(source.encode())
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

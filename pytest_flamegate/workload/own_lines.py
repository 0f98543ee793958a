"""Takes the lines that a program writes about itself out of what it writes as its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_TAKEN_BYTES = 16 << 20
"""What is more is no report of one run."""

At = TypeVar("At")


class OwnLines(Generic[At]):
    """Lets everything pass, each piece with its time, but lines that begin with a marker.

    A piece is held back only for as long as the line it begins may still become such a line,
    so that the answer keeps the times at which it was seen.
    """

    def __init__(self, markers: Sequence[bytes]) -> None:
        self._markers = tuple(markers)
        self._longest = max(map(len, self._markers), default=0)
        self._held: list[tuple[bytes, At]] = []
        self._passes = not self._markers
        self._takes = False
        self._taken = bytearray()

    @property
    def taken(self) -> bytes:
        """The lines that were taken out, each with its end."""
        return bytes(self._taken)

    @property
    def overflows(self) -> bool:
        """Whether more was taken out than any report is long."""
        return len(self._taken) > LONGEST_TAKEN_BYTES

    def feed(self, data: bytes, at: At) -> list[tuple[bytes, At]]:
        """Return what of ``data``, seen ``at``, and of what was held back is the answer's."""
        if not self._markers:
            return [(data, at)]
        passed: list[tuple[bytes, At]] = []
        for line in _lines(data):
            passed += self._part(line, at)
            if line.endswith(b"\n"):
                self._passes = self._takes = False
        return passed

    def finish(self) -> list[tuple[bytes, At]]:
        """Return what was held back when the output ended."""
        held, self._held = self._held, []
        return held

    def _part(self, part: bytes, at: At) -> list[tuple[bytes, At]]:
        """Take a line or a part of one."""
        if self._takes:
            self._taken += part
            return []
        if self._passes:
            return [(part, at)]
        self._held.append((part, at))
        begun = b"".join(piece for piece, _ in self._held)[: self._longest]
        if begun.startswith(self._markers):
            self._takes = True
            self._taken += b"".join(piece for piece, _ in self.finish())
        elif not any(marker.startswith(begun) for marker in self._markers):
            self._passes = True
            return self.finish()
        return []


def _lines(data: bytes) -> list[bytes]:
    """Cut behind each line feed alone: a carriage return ends no line here."""
    *whole, rest = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([rest] if rest else [])]

"""Cuts a program's output into tokens, each with the time at which it began to be seen."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

LONGEST_TOKEN_BYTES = 64 * 1024
"""What is longer is no word and no line of an answer."""

# Each matches one byte, the last of a token, so that a search never goes back.
_ENDS = {"word": re.compile(rb"\S(?=\s)"), "line": re.compile(rb"\n")}

At = TypeVar("At")


class Splitter(Generic[At]):
    """Tokens by the declared unit: ``byte``, ``word`` (with the space before it) or ``line``.

    A word is complete only when the next one begins, so a token carries the time of
    its first byte, never that of what completed it.
    """

    def __init__(self, unit: str) -> None:
        self._ends = _ENDS.get(unit)
        self._rest = b""
        self._began: At | None = None
        self.begun = False
        """Whether a token has begun."""

    @property
    def overflows(self) -> bool:
        """Whether a single token has grown past all bounds."""
        return len(self._rest) > LONGEST_TOKEN_BYTES

    def feed(self, data: bytes, at: At) -> list[tuple[str, At]]:
        """Return the tokens that ``data``, seen ``at``, completes; a byte's text is its value."""
        if self._ends is None:
            self.begun = self.begun or bool(data)
            return [(str(byte), at) for byte in data]
        whole = self._rest + data
        tokens: list[tuple[str, At]] = []
        began, start = self._began, 0
        for match in self._ends.finditer(whole, max(0, len(self._rest) - 1)):
            tokens.append((_text(whole[start : match.end()]), at if began is None else began))
            began, start = None, match.end()
        self._rest = whole[start:]
        # White space alone is no beginning: the word after it may take long to come.
        if began is None and self._rest.strip():
            began = at
        self._began = began
        self.begun = self.begun or bool(tokens) or began is not None
        return tokens

    def finish(self) -> list[tuple[str, At]]:
        """Return the last token, if the output ended inside one."""
        rest, self._rest = self._rest, b""
        return [] if self._began is None else [(_text(rest), self._began)]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")

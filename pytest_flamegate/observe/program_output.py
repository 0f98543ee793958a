"""Split the standard output of a program into tokens, each with the time it was first seen.

In words, ``b"one two th"`` read at 1 and ``b"ree"`` read at 2 are ``("one", 1)``, ``(" two", 1)``
and ``(" three", 1)``.
"""

import re
from collections.abc import Sequence

from pytest_flamegate.engines.base import Streamed
from pytest_flamegate.engines.tokens import Time, Tokenized

MAX_OWN_LINES_BYTES = 16 << 20
"""No report of one run is longer."""
MAX_TOKEN_BYTES = 64 * 1024
"""No word and no line of an answer is longer."""
TAIL_BYTES = 32 << 10
"""The end of the output that is stored to be searched."""

# Each matches one byte, the last of a token, so that a search never goes back.
_ENDS = {"word": re.compile(rb"\S(?=\s)"), "line": re.compile(rb"\n")}

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class OwnLineFilter:
    """Removes the lines that begin with a marker, and passes all others with their times.

    A piece is held back only while the line it begins may still become such a line, so that the
    answer keeps the times at which it was read.
    """

    def __init__(self, markers: Sequence[bytes]) -> None:
        self._markers = tuple(markers)
        self._longest = max(map(len, self._markers), default=0)
        self._held: list[tuple[bytes, Time]] = []
        self._passes = not self._markers
        self._removes = False
        self.removed = bytearray()
        """The removed lines, each with its end."""

    @property
    def overflows(self) -> bool:
        """Whether more was removed than any report is long."""
        return len(self.removed) > MAX_OWN_LINES_BYTES

    def feed(self, data: bytes, at: Time) -> list[tuple[bytes, Time]]:
        """Return the parts of the answer in ``data``, read ``at``, and in the held pieces."""
        if not self._markers:
            return [(data, at)]
        passed: list[tuple[bytes, Time]] = []
        # Not splitlines(): a carriage return ends no line here.
        for line in _LINE.findall(data):
            passed += self._filter(line, at)
            if line.endswith(b"\n"):
                self._passes = self._removes = False
        return passed

    def finish(self) -> list[tuple[bytes, Time]]:
        """Return the pieces still held when the output ended."""
        held, self._held = self._held, []
        return held

    def _filter(self, part: bytes, at: Time) -> list[tuple[bytes, Time]]:
        if self._removes:
            self.removed += part
            return []
        if self._passes:
            return [(part, at)]
        self._held.append((part, at))
        begun = b"".join(piece for piece, _ in self._held)[: self._longest]
        if begun.startswith(self._markers):
            self._removes = True
            self.removed += b"".join(piece for piece, _ in self.finish())
        elif not any(marker.startswith(begun) for marker in self._markers):
            self._passes = True
            return self.finish()
        return []


class TokenSplitter:
    """Tokens by the unit ``byte``, ``word`` (with the space before it) or ``line``.

    A word is complete only when the next one begins, so a token carries the time of its first
    byte, not of the byte that completed it.
    """

    def __init__(self, unit: str) -> None:
        self._ends = _ENDS.get(unit)
        self._rest = b""
        self._began: Time | None = None
        self.begun = False
        """Whether a token has begun."""

    @property
    def overflows(self) -> bool:
        """Whether a single token is longer than any real one."""
        return len(self._rest) > MAX_TOKEN_BYTES

    def feed(self, data: bytes, at: Time) -> list[tuple[str, Time]]:
        """Return the tokens that ``data``, read ``at``, completes; a byte's text is its value."""
        if self._ends is None:
            self.begun = self.begun or bool(data)
            return [(str(byte), at) for byte in data]
        whole = self._rest + data
        tokens: list[tuple[str, Time]] = []
        began, start = self._began, 0
        for match in self._ends.finditer(whole, max(0, len(self._rest) - 1)):
            tokens.append((_decode(whole[start : match.end()]), at if began is None else began))
            began, start = None, match.end()
        self._rest = whole[start:]
        # White space alone begins no token: the word after it may take long to come.
        if began is None and self._rest.strip():
            began = at
        self._began = began
        self.begun = self.begun or bool(tokens) or began is not None
        return tokens

    def finish(self) -> list[tuple[str, Time]]:
        """Return the last token, if the output ended inside one."""
        rest, self._rest = self._rest, b""
        return [] if self._began is None else [(_decode(rest), self._began)]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


class AnswerReader:
    """The tokens of an answer, without the lines in which the program reports its own figures."""

    def __init__(self, plan: Streamed) -> None:
        self._own: OwnLineFilter = OwnLineFilter(plan.sources.markers)
        self._tokens: TokenSplitter | Tokenized = (
            TokenSplitter(plan.token_unit) if plan.tokenizer is None else Tokenized(plan.tokenizer)
        )
        self.unit = plan.token_unit
        self.tail = b""
        """The last 32 KiB of the whole output."""

    @property
    def begun(self) -> bool:
        """Whether a token has begun."""
        return self._tokens.begun

    @property
    def overflows(self) -> bool:
        """Whether a single token or the program's own lines are longer than any real ones."""
        return self._tokens.overflows or self._own.overflows

    @property
    def own_lines(self) -> bytes:
        """The lines that were removed: the program's own figures."""
        return bytes(self._own.removed)

    def feed(self, data: bytes, at: Time) -> list[tuple[str, Time]]:
        """Return the tokens that ``data``, read ``at``, completes, each with its time."""
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        return self._split(self._own.feed(data, at))

    def finish(self) -> list[tuple[str, Time]]:
        """Return the tokens that are complete now that the output has ended."""
        return [*self._split(self._own.finish()), *self._tokens.finish()]

    def _split(self, pieces: list[tuple[bytes, Time]]) -> list[tuple[str, Time]]:
        return [token for piece, at in pieces for token in self._tokens.feed(piece, at)]

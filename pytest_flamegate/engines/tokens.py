"""Tokens of an engine: their plain values, their digest, and counting them in a text."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Any

from pytest_flamegate.core.errors import ToolError, UsageError


def token_digest(tokens: Iterable[str]) -> str:
    """Return the SHA-256 of the tokens, each as UTF-8 with its length in bytes before it.

    The length (as in a netstring: ``2:52,``) separates tokens that contain any separator. Raises
    ``ToolError`` ``E_NO_TOKENS`` if there are no tokens.
    """
    coded = [token.encode("utf-8", "backslashreplace") for token in tokens]
    if not coded:
        raise ToolError("E_NO_TOKENS", "There are no tokens to take a digest of.")
    return hashlib.sha256(b"".join(b"%d:%b," % (len(data), data) for data in coded)).hexdigest()


@dataclass(slots=True)
class SequenceComparison:
    """Compares every sequence with the first one of the same prompt.

    ``first`` has the tokens of the first sequence of each prompt, ``last`` those of the latest
    sequence. ``differs_at`` is the index of the first token in which any differed, None if all are
    equal, and ``differs_to`` the token of that sequence, None if it had ended.
    """

    first: dict[int, tuple[str, ...]] = field(default_factory=dict)
    last: tuple[str, ...] = ()
    differs_at: int | None = None
    differs_to: str | None = None

    def add(self, tokens: tuple[str, ...], prompt: int = 0) -> None:
        """Take the tokens of one more sequence, the answer to the prompt of that number."""
        self.last = tokens
        first = self.first.setdefault(prompt, tokens)
        if self.differs_at is None and tokens != first:
            pairs = enumerate(zip_longest(first, tokens))
            self.differs_at = next(position for position, (a, b) in pairs if a != b)
            self.differs_to = next(iter(tokens[self.differs_at :]), None)

    def join(self, other: SequenceComparison) -> None:
        """Take the sequences of ``other``."""
        for prompt, tokens in other.first.items():
            self.add(tokens, prompt)
        if self.differs_at is None:
            self.differs_at, self.differs_to = other.differs_at, other.differs_to


Time = Any
"""When a piece of output came, in whatever form."""
MOST_BYTES = 16 << 20
"""The largest output that is taken for an answer."""


class Tokenized:
    """Tokens of a Hugging Face ``tokenizer.json``, of the whole output when that has ended.

    The limits of tokens are known only for the whole text; each token has the time of its first
    byte. Line ends at the very end of the output belong to the program, not to the answer. Text
    that the tokenizer skips belongs to the token after it, so the tokens together are the text.
    """

    def __init__(self, path: Path) -> None:
        self._tokenizer = load(path)
        self._path = path
        self._data = bytearray()
        self._ends: list[int] = []
        self._times: list[Time] = []

    @property
    def begun(self) -> bool:
        """Whether anything except white space came."""
        return bool(self._data.strip())

    @property
    def overflows(self) -> bool:
        """Whether the output is longer than ``MOST_BYTES``."""
        return len(self._data) > MOST_BYTES

    def feed(self, data: bytes, at: Time) -> list[tuple[str, Time]]:
        """Store ``data`` that came ``at``; no token is known yet."""
        if data:
            self._data += data
            self._ends.append(len(self._data))
            self._times.append(at)
        return []

    def finish(self) -> list[tuple[str, Time]]:
        """Return all tokens. ``ToolError`` ``E_BAD_TOKENIZER`` if it cannot read the text."""
        return [
            (text, self._times[bisect_right(self._ends, begins)])
            for text, begins in cut(self._tokenizer, bytes(self._data).rstrip(b"\r\n"), self._path)
        ]


def cut(tokenizer: Any, data: bytes, path: Path) -> list[tuple[str, int]]:
    """Return the text of each token of ``data`` and the index of its first byte.

    A character that is several tokens is the text of the first of them; all begin with it.
    """
    # An undecodable byte becomes one character, so that bytes and characters can be matched.
    escaped = data.decode("utf-8", "surrogateescape")
    text = "".join("�" if "\udc80" <= each <= "\udcff" else each for each in escaped)
    starts = [0, *accumulate(len(each.encode("utf-8", "surrogateescape")) for each in escaped)]
    try:
        encoded = tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # the library raises no other
        raise _tokenizer_error(path, error) from None
    found: list[tuple[str, int]] = []
    written = 0
    for start, end in encoded.offsets:
        found.append((text[written : max(end, written)], starts[start]))
        written = max(end, written)
    if found and written < len(text):
        found[-1] = (found[-1][0] + text[written:], found[-1][1])
    return found


@lru_cache(maxsize=4)  # a large file takes a second
def load(path: Path) -> Any:
    """Return the tokenizer that the file describes.

    ``UsageError`` ``E_TOKENIZER_MISSING`` if there is no such file; ``ToolError``
    ``E_NO_LIBRARY`` without the library tokenizers, ``E_BAD_TOKENIZER`` if the file is unusable.
    """
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if a name is too long
        raise UsageError("E_TOKENIZER_MISSING", f"There is no tokenizer file {str(path)!r}.")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ToolError(
            "E_NO_LIBRARY",
            "Counting tokens needs the library tokenizers, which is not installed.",
            "Install it with pip install 'pytest-flamegate[tokenizer]', or count by another "
            "token_unit.",
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
        # A file may cut or pad texts to a length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # the library raises no other
        raise _tokenizer_error(path, error) from None
    return tokenizer


def _tokenizer_error(path: Path, error: Exception) -> ToolError:
    return ToolError(
        "E_BAD_TOKENIZER", f"The tokenizer {str(path)!r} cannot be used: {str(error)[:200]}."
    )

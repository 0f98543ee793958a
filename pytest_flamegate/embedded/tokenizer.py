"""A byte is a token: ids 0 to 255 are the bytes of UTF-8 text, then two markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BOS = 256
EOS = 257
VOCABULARY = 258


def encode(text: str) -> list[int]:
    """Return the beginning marker and the bytes of ``text``."""
    return [BOS, *text.encode()]


def decode(tokens: Iterable[int]) -> bytes:
    """Return the bytes of ``tokens``, markers left out."""
    return bytes(token for token in tokens if token < BOS)

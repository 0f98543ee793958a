"""A byte is a token: ids 0 to 255 are the bytes of UTF-8 text, then two markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


BOS = 256
EOS = 257
VOCABULARY = 258


def encode(text: str) -> list[int]:
    """Return the beginning marker and the bytes of ``text``.

    Bytes of a command line that are not UTF-8 come back as they were typed. Raises
    ``UsageError`` E_PROMPT_ENCODING for half a surrogate pair, which has no bytes.
    """
    try:
        return [BOS, *text.encode("utf-8", "surrogateescape")]
    except UnicodeEncodeError as error:
        raise UsageError(
            "E_PROMPT_ENCODING",
            f"The prompt's character {error.start} is half a surrogate pair, not text.",
            "Write the prompt as UTF-8.",
        ) from None


def decode(tokens: Iterable[int]) -> bytes:
    """Return the bytes of ``tokens``, markers left out."""
    return bytes(token for token in tokens if token < BOS)

"""RFC 3339 timestamps, read strictly."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

MAX_CHARACTERS = 64
"""Nine digits of a second make 35; what is longer is no moment, and costs time to look at."""


def is_timestamp(text: str) -> bool:
    """Say whether ``text`` is an RFC 3339 date-time with an offset, and nothing besides.

    Any number of fractional digits is taken that fits; a trailing newline is not.
    """
    return len(text) <= MAX_CHARACTERS and _is_timestamp(text)


# The same one stands in receipt, evidence and runs, and several rules read it.
@lru_cache(maxsize=256)
def _is_timestamp(text: str) -> bool:
    # Imported here so that importing the receipt room stays free.
    from rfc3339_validator import validate_rfc3339  # type: ignore[import-untyped]

    return text.isascii() and text == text.strip() and bool(validate_rfc3339(text.upper()))


def read_timestamp(text: str) -> datetime:
    """Return the moment that ``text`` names, with its offset; ValueError if it names none."""
    if not is_timestamp(text):
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    return datetime.fromisoformat(text.upper())

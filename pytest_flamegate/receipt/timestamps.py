"""RFC 3339 timestamps, read strictly."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

_LONGEST_KEPT = 64
"""Longer ones are read as well, and not remembered: a timestamp is foreign text."""


def is_timestamp(text: str) -> bool:
    """Say whether ``text`` is an RFC 3339 date-time with an offset, and nothing besides.

    Any number of fractional digits is taken; a trailing newline is not.
    """
    return _is_timestamp(text) if len(text) <= _LONGEST_KEPT else _is_timestamp.__wrapped__(text)


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

"""Names from outside, made safe once: escaped, bounded, and never ambiguous afterwards."""

from __future__ import annotations

import hashlib
from functools import lru_cache

NAME_BYTES = 128
"""A kernel id in a receipt may hold as many bytes; a frame can be claimed as one."""

INVISIBLE = frozenset(
    chr(point)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for point in range(first, last + 1)
)
"""Printable to Python and yet invisible on a screen: fillers, joiners, variation selectors."""


def decode(raw: bytes) -> str:
    """Decode UTF-8; a byte that is not becomes a lone surrogate, which ``escape`` shows."""
    return raw.decode("utf-8", "surrogateescape")


def is_clean(text: str) -> bool:
    """Whether ``text`` is free of ``;`` and of control, bidi and invisible characters."""
    if text.isascii():
        return text.isprintable() and ";" not in text
    return text.isprintable() and ";" not in text and INVISIBLE.isdisjoint(text)


@lru_cache(maxsize=16384)
def escape(text: str, limit_bytes: int = NAME_BYTES) -> str:
    r"""Return ``text`` with every unsafe character and backslash as ``\xNN`` or ``\uNNNN``.

    The result holds at most ``limit_bytes`` bytes of UTF-8; a longer one is cut and
    ends in ``~`` and eight digits of the sha256 of the whole, so that two long names
    stay two names.
    """
    if is_clean(text) and "\\" not in text:
        units = list(text)
    else:
        units = [_unit(character) for character in text]
    whole = "".join(units)
    encoded = whole.encode()
    if len(encoded) <= limit_bytes:
        return whole
    tail = "~" + hashlib.sha256(encoded).hexdigest()[:8]
    room, kept = limit_bytes - len(tail), []
    for unit in units:
        room -= len(unit.encode())
        if room < 0:
            break
        kept.append(unit)
    return "".join(kept) + tail


@lru_cache(maxsize=4096)
def _unit(character: str) -> str:
    # Kept: as many strings as a hostile name has characters would be fifty times its size.
    if character != "\\" and is_clean(character):
        return character
    return escaped_character(character)


def escaped_character(character: str) -> str:
    r"""Return one character as ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``."""
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    if point < 0x10000:
        return f"\\u{point:04x}"
    return f"\\U{point:08x}"

"""Characters that make a text read as something else than it is."""

from __future__ import annotations

import unicodedata

from pytest_flamegate.profile.text import INVISIBLE

_BIDI_AND_BREAKS = frozenset("\u061c\u200e\u200f\u2028\u2029\ufeff") | {
    chr(code)
    for first, last in ((0x202A, 0x202E), (0x2066, 0x2069))
    for code in range(first, last + 1)
}
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def hidden_in_name(name: str) -> str | None:
    """Return what a name hides, in words, or None: control, invisible, edge space."""
    if name.isascii() and name.isprintable() and name.strip() == name:
        return None
    for character in name:
        if _is_hidden(character):
            return f"the character U+{ord(character):04X}"
    return "a space at its edge" if name.strip() != name else None


def steering_in_text(text: str) -> str | None:
    """Return what a text could do to a terminal or to the reading order, or None."""
    if text.isascii() and text.isprintable():
        return None
    for character in text:
        if unicodedata.category(character) == "Cc" or character in _BIDI_AND_BREAKS:
            return f"the character U+{ord(character):04X}"
    return None


def _is_hidden(character: str) -> bool:
    category = unicodedata.category(character)
    if category in _HIDDEN_CATEGORIES:
        return True
    if category == "Zs":
        return character != " "
    return character in INVISIBLE

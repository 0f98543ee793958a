"""Names and values from files of other people, escaped and bounded for display."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from pytest_flamegate.core.errors import find_remedy

T = TypeVar("T")

NAME_BYTES = 128
"""The longest kernel id in a receipt; a frame may be claimed as one."""

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
"""Printable to Python but invisible on a screen: fillers, joiners, variation selectors."""


def decode_name(raw: bytes) -> str:
    """Decode UTF-8; an invalid byte becomes a lone surrogate, which ``escape_name`` escapes."""
    return raw.decode("utf-8", "surrogateescape")


def is_clean(text: str) -> bool:
    """Whether ``text`` is free of ``;`` and of control, bidi and invisible characters."""
    return text.isprintable() and ";" not in text and (text.isascii() or INVISIBLE.isdisjoint(text))


@lru_cache(maxsize=16384)
def escape_name(text: str, limit_bytes: int = NAME_BYTES) -> str:
    r"""Return ``text`` with every unsafe character and backslash as ``\xNN`` or ``\uNNNN``.

    The result has at most ``limit_bytes`` bytes of UTF-8. A longer one is cut and ends in ``~``
    and eight digits of the SHA-256 of the whole, so that two long names stay different.
    """
    is_plain = is_clean(text) and "\\" not in text
    units = list(text) if is_plain else [_unit(character) for character in text]
    whole = "".join(units)
    encoded = whole.encode()
    if len(encoded) <= limit_bytes:
        return whole
    tail = "~" + hashlib.sha256(encoded).hexdigest()[:8]
    room, shown = limit_bytes - len(tail), []
    for unit in units:
        room -= len(unit.encode())
        if room < 0:
            break
        shown.append(unit)
    return "".join(shown) + tail


@lru_cache(maxsize=4096)
def _unit(character: str) -> str:
    # Cached: a string for each character of a hostile name would take fifty times its size.
    is_plain = character != "\\" and is_clean(character)
    return character if is_plain else escape_character(character)


def escape_character(character: str) -> str:
    r"""Return one character as ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``."""
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    if point < 0x10000:
        return f"\\u{point:04x}"
    return f"\\U{point:08x}"


_BIDI_AND_BREAKS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ufeff"
)


def find_hidden_character(name: str) -> str | None:
    """Describe the first control or invisible character, or a space at an edge; None if neither."""
    if name.isascii() and name.isprintable() and name.strip() == name:
        return None
    for character in name:
        if not character.isprintable() or character in INVISIBLE:
            return f"the character U+{ord(character):04X}"
    return "a space at its edge" if name.strip() != name else None


def find_control_character(text: str) -> str | None:
    """Describe the first character that could steer a terminal or the reading order, or None."""
    for character in "" if text.isascii() and text.isprintable() else text:
        if unicodedata.category(character) == "Cc" or character in _BIDI_AND_BREAKS:
            return f"the character U+{ord(character):04X}"
    return None


def escape_control_characters(text: str) -> str:
    """Return ``text`` with backslashes and all that ``find_control_character`` finds as escapes.

    Two texts never become the same.
    """
    if "\\" not in text and find_control_character(text) is None:
        return text
    return "".join(
        char.encode("unicode_escape").decode()
        if char == "\\" or find_control_character(char) is not None
        else char
        for char in text
    )


def suggest(name: str, known: Collection[str]) -> str:
    """Return a remedy for a name that does not exist: the closest known name, or all of them."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Use one of: {', '.join(known)}."


_SHOWN_CHARACTERS = 80
_ESCAPED_CHARACTERS = 250
_LINE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """A stable code, one sentence about the finding and one about the remedy."""

    code: str
    message: str
    own_remedy: str = ""

    @property
    def remedy(self) -> str:
        """The remedy of this finding; without one of its own, the remedy of the code."""
        return self.own_remedy or find_remedy(self.code)


@dataclass(frozen=True, slots=True)
class Refusal(Finding):
    """A finding that makes a receipt invalid."""


@dataclass(frozen=True, slots=True)
class Notice(Finding):
    """A finding that leaves a receipt valid; its code starts with ``W_``."""


def one_line(message: str) -> str:
    """Return ``message`` as one line of printable ASCII of bounded length."""
    if not (message.isascii() and message.isprintable()):
        message = message.encode("unicode_escape").decode("ascii")
    if len(message) > _LINE_CHARACTERS:
        message = f"{message[:_LINE_CHARACTERS]}..."
    return message


def quote(value: object) -> str:
    """Return ``value``, which may be anything, as one short line of printable ASCII."""
    if isinstance(value, str):
        text = _quoted(value, _SHOWN_CHARACTERS)
        # An emoji is one character, and twelve if it is escaped.
        return text if len(text) <= _ESCAPED_CHARACTERS else _quoted(value, _SHOWN_CHARACTERS // 4)
    if value is None or isinstance(value, (bool, int, float)):
        try:
            text = json.dumps(value)
        except ValueError:  # Python limits the digits of an integer
            return "a number too large to show"
        return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    return f"a {type(value).__name__}"


def _quoted(text: str, most: int) -> str:
    cut = text if len(text) <= most else text[:most] + "..."
    return json.dumps(cut).replace("\x7f", "\\u007f")


def quote_toml(value: str | list[str]) -> str:
    """Return a string, or a list of strings, as TOML writes it: like JSON, but DEL is escaped.

    TOML has no way to write a lone surrogate.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_value(value: object) -> str:
    """Return ``value`` as Python writes it: at most 80 characters, and never an exception."""
    try:
        return shorten(repr(value), _SHOWN_CHARACTERS)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} too large to show"


def shorten(text: str, most: int) -> str:
    """Return at most ``most`` characters of ``text``, the last one ``…`` if some are left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def list_some(
    entries: Sequence[T], most: int, separator: str = ", ", show: Callable[[T], str] = str
) -> str:
    """Return the first ``most`` entries as text: ``a, b and 3 more``. No other one is shown."""
    left = len(entries) - most
    return separator.join(map(show, entries[:most])) + (f" and {left:,} more" if left > 0 else "")


def first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the first index at which two sequences differ, else the length of the shorter."""
    shared = zip(one, other, strict=False)
    unequal = (index for index, (a, b) in enumerate(shared) if a != b)
    return next(unequal, min(len(one), len(other)))


IMPLAUSIBLE = 1e18
"""Larger than any time, rate or count. Only such a value is written with an exponent."""


def significant(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits: ``0.5126``, ``518``, ``2,890``."""
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    # The exponent of the rounded value: 9.996 has one digit before the point less than 10.0.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    if not 1.0 / IMPLAUSIBLE < abs(value) < IMPLAUSIBLE:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}"

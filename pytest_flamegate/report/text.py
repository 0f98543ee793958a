"""Text that can be shown: hostile characters made visible, widths counted in cells."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from pytest_flamegate.profile.text import escaped_character

if TYPE_CHECKING:
    from collections.abc import Sequence

ELLIPSIS = "…"
_SGR = {"green": 32, "red": 31, "yellow": 33}
_PAINT = re.compile("\x1b\\[[0-9]*m")
MAX_SHOWN = 300

# Control, format (bidi, zero width), surrogate, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN or (ord(char) & 0xFFFE) == 0xFFFE


def visible(text: str, limit: int = MAX_SHOWN) -> str:
    r"""Return ``text`` on one line with nothing hidden in it, at most ``limit`` characters.

    Control, bidirectional and zero-width characters, lone surrogates and code points
    that XML forbids are written as ``\x1b`` or ``\u202e``. A longer text is cut and
    says how long it was.
    """
    cut = text[:limit]
    shown = cut if cut.isascii() and cut.isprintable() else _make_visible(cut)
    if len(text) <= limit:
        return shown
    return f"{shown}{ELLIPSIS} ({len(text):,} characters)"


def _make_visible(text: str) -> str:
    return "".join(escaped_character(char) if _is_hidden(char) else char for char in text)


def cells(text: str) -> int:
    """Return the columns that ``text`` takes in a terminal.

    A wide character takes two, and what ``paint`` adds takes none.
    """
    if "\x1b" in text:
        text = _PAINT.sub("", text)
    if text.isascii():
        return len(text)
    # Here and not above: reports are imported where rich may not be needed at all.
    from rich.cells import cell_len

    return cell_len(text)


def paint(text: str, colour: str) -> str:
    """Return ``text`` in bold ``green``, ``red`` or ``yellow`` for a terminal."""
    return f"\x1b[1m\x1b[{_SGR[colour]}m{text}\x1b[0m"


def clip(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns, an ellipsis where it was cut."""
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    kept, used = [], 0
    for char in text:
        used += cells(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + ELLIPSIS


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return ``text`` filled with spaces to ``width`` columns, on its left if ``right``."""
    room = " " * max(width - cells(text), 0)
    return room + text if right else text + room


def columns(
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    gap: str = "   ",
    indent: str = "",
) -> list[str]:
    """Return ``rows`` as aligned lines; the columns numbered in ``right`` end flush.

    Every row has as many cells as the first. Trailing spaces are dropped.
    """
    if not rows:
        return []
    widths = [max(cells(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        indent
        + gap.join(
            pad(cell, width, right=i in right)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def wrap(parts: Sequence[str], width: int, separator: str = " · ") -> list[str]:
    """Return ``parts`` joined by ``separator`` in lines of at most ``width`` columns.

    A part is never broken; one that is wider than ``width`` stands clipped on a line
    of its own.
    """
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}{separator}{part}" if lines else part
        if lines and cells(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(clip(part, width))
    return lines

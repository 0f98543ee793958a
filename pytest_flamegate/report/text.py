"""Text that can be shown: hostile characters made visible, widths counted in cells."""

from __future__ import annotations

import unicodedata
from io import StringIO
from typing import TYPE_CHECKING

from pytest_flamegate.profile.text import escaped_character

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

ELLIPSIS = "…"
_SGR = {"green": 32, "red": 31, "yellow": 33}
MAX_SHOWN = 300
_UNBOUNDED = 100_000
"""A width in cells that no row reaches: lines are aligned here, and cut elsewhere."""

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
    """Return the columns that ``text`` takes in a terminal; a wide character takes two."""
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


def clip_front(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns, its end kept: there tests' names differ."""
    turned = clip(text[::-1], width)
    return turned[::-1]


def columns(
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Sequence[int] = (),
    gap: int = 3,
    indent: int = 0,
    colour: bool = False,
) -> list[str]:
    """Return ``rows`` as aligned lines; the columns numbered in ``right`` end flush.

    Every row has as many cells as the first, each of one line. Trailing spaces are
    dropped. The style of a ``Text`` shows with ``colour`` alone, whatever the environment
    says of terminals: the same rows give the same lines everywhere.
    """
    if not rows:
        return []
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, gap, 0, 0))
    for index in range(len(rows[0])):
        table.add_column(justify="right" if index in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console = Console(
        file=StringIO(),
        width=_UNBOUNDED,
        height=len(rows),
        color_system="standard" if colour else None,
        force_terminal=colour,
        force_jupyter=False,
        no_color=not colour,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(table)
    return [" " * indent + line.rstrip() for line in captured.get().splitlines()]


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

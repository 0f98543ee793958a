"""Text that can be shown: hostile characters made visible, widths counted in cells."""

import math
import re
import unicodedata
from collections.abc import Sequence
from importlib.resources import files

from pytest_flamegate.core.text import IMPLAUSIBLE, INVISIBLE, escape_character, significant


def count(value: int) -> str:
    """Return a whole number with thousands separated: ``1,312``."""
    return f"{value:,}"


def plural(value: int, one: str, many: str | None = None) -> str:
    """Return ``1 sample`` or ``1,312 samples``."""
    return f"{count(value)} {one if value == 1 else many or one + 's'}"


def share(value: float) -> str:
    """Return a share of 0 to 1 in percent: ``71.6 %``; less than 0.05 % is ``< 0.1 %``."""
    if 0 < value < 0.0005:
        return "< 0.1 %"
    return f"{100 * value:.1f} %" if math.isfinite(value) else "not finite"


def percent(value: float) -> str:
    """Return a figure that is in percent already: ``1.9 %``."""
    return f"{tidy(value)} %"


def tidy(value: float, digits: int = 1) -> str:
    """Return ``value`` rounded to ``digits`` decimals without a trailing ``.0`` or a ``-0``."""
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:,.{digits}f}"
    if abs(value) >= IMPLAUSIBLE:
        return significant(value)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def seconds(value: float) -> str:
    """Return a time given in seconds in the unit that reads best: ``1.95 ms``, ``62 µs``."""
    if not math.isfinite(value):
        return "not finite"
    size = abs(value)
    if size == 0:
        return "0 s"
    for floor, scale, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs")):
        # Just below a step rounding would show "1,000 µs".
        if size >= floor * 0.9995:
            return f"{significant(value * scale)} {unit}"
    return f"{significant(value * 1e9)} ns"


def micros(value: float) -> str:
    """Return seconds as bare microseconds, for a column headed ``µs/token``."""
    scaled = value * 1e6
    if abs(scaled) >= 9.95:
        return tidy(scaled, 0)
    text = significant(scaled, 2)
    return text.rstrip("0").rstrip(".") if "." in text else text


ELLIPSIS = "…"
_SGR = {"green": 32, "red": 31, "yellow": 33}
MAX_SHOWN = 300
_PAINT = re.compile(r"\x1b\[[0-9;]*m")

# Control, format (bidi, zero width), surrogate, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MARKS = frozenset({"Mn", "Me"})
_WIDE = frozenset({"W", "F"})


def visible(text: str, limit: int = MAX_SHOWN) -> str:
    r"""Return ``text`` on one line with nothing hidden in it, at most ``limit`` characters.

    Control, bidirectional and invisible characters, lone surrogates and code points
    that XML forbids are written as ``\x1b`` or ``\u202e``. A longer text is cut and
    says how long it was.
    """
    cut = text[:limit]
    shown = cut
    if not (cut.isascii() and cut.isprintable()):
        shown = "".join(
            escape_character(char)
            if unicodedata.category(char) in _HIDDEN
            or char in INVISIBLE
            or (ord(char) & 0xFFFE) == 0xFFFE
            else char
            for char in cut
        )
    if len(text) <= limit:
        return shown
    return f"{shown}{ELLIPSIS} ({len(text):,} characters)"


def cells(text: str) -> int:
    """Return the columns that ``text`` takes in a terminal.

    A wide character takes two; a mark that is put on the character before it takes none.
    """
    if "\x1b" in text:
        text = _PAINT.sub("", text)
    if text.isascii():
        return len(text)
    shown = [char for char in text if unicodedata.category(char) not in _MARKS]
    return len(shown) + sum(unicodedata.east_asian_width(char) in _WIDE for char in shown)


def paint(text: str, colour: str) -> str:
    """Return ``text`` in bold ``green``, ``red`` or ``yellow`` for a terminal."""
    return f"\x1b[1;{_SGR[colour]}m{text}\x1b[0m"


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
    rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), gap: int = 3, indent: int = 0
) -> list[str]:
    """Return ``rows`` as aligned lines; the columns numbered in ``right`` end flush.

    Every row has as many cells as the first, each of one line. Trailing spaces are dropped.
    """
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        line = " " * indent
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cells(cell))
            line += (space + cell if index in right else cell + space) + " " * gap
        lines.append(line.rstrip())
    return lines


def wrap(parts: Sequence[str], width: int, separator: str = " · ") -> list[str]:
    """Return ``parts`` joined by ``separator`` in lines of at most ``width`` columns.

    A part is never broken; if one is wider than ``width``, it is clipped on a line
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


def read_asset(name: str) -> str:
    """Return the text of a file in ``assets``."""
    return files("pytest_flamegate.report").joinpath("assets", name).read_text("utf-8")
